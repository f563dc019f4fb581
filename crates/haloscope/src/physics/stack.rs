//! Several operators that look at the same image: camera frames, groups of angles, antennas.
//!
//! Sums over the operators are taken element by element from the first operator to the last,
//! `((t₀ + t₁) + t₂) + …`, in f32 and without a leading zero. An ordered sum over ranks does the same, so
//! a distributed stack gives the same bits as one that is not.

use std::sync::Arc;

use super::{LinearPhysics, Physics, slice, slice_mut, zeros};
use crate::array::{Array, View, add_scaled, standard};
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::words::count;

/// `A = (A₁; A₂; …)`: operators of one image shape, one below the other.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::physics::{Identity, Physics, Stack};
///
/// let frame = || Arc::new(Identity::new(&[1, 4, 4])) as Arc<dyn Physics>;
/// let stack = Stack::new(vec![frame(), frame(), frame()])?;
/// let image = ndarray::ArrayD::ones(vec![1, 1, 4, 4]);
/// let frames = stack.forward(&image)?;
/// assert_eq!(frames.len(), 3);
/// assert_eq!(stack.adjoint(&frames)?, image * 3.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Stack {
    operators: Vec<Arc<dyn Physics>>,
}

impl Stack {
    /// A stack of operators in this order.
    ///
    /// # Errors
    /// If there is none, or they are for images of different shapes.
    pub fn new(operators: Vec<Arc<dyn Physics>>) -> Result<Self> {
        let Some(first) = operators.first() else {
            return Err(Error::argument("stack", "there are no operators; at least one is needed"));
        };
        let shape = first.image_shape();
        let differs = |(_, other): &(usize, &Arc<dyn Physics>)| other.image_shape() != shape;
        if let Some((i, other)) = operators.iter().enumerate().find(differs) {
            return Err(Error::Shape {
                what: format!("the image of operator {i} ({})", other.name()),
                expected: format!("{shape:?} is expected, as of operator 0 ({})", first.name()),
                found: other.image_shape().to_vec(),
            });
        }
        Ok(Self { operators })
    }

    /// The operators, in order.
    #[must_use]
    pub fn operators(&self) -> &[Arc<dyn Physics>] {
        &self.operators
    }

    /// How many operators there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operators.len()
    }

    /// Never: a stack has at least one operator.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operators.is_empty()
    }

    /// The operator with this index.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Arc<dyn Physics>> {
        self.operators.get(index)
    }

    /// The operators, in order, one after another.
    pub fn iter(&self) -> std::slice::Iter<'_, Arc<dyn Physics>> {
        self.operators.iter()
    }

    /// The shape of an image, without the batch: (channel, spatial…).
    #[must_use]
    pub fn image_shape(&self) -> &[usize] {
        self.operators[0].image_shape()
    }

    /// Whether all operators are linear.
    #[must_use]
    pub fn is_linear(&self) -> bool {
        self.operators.iter().all(|operator| operator.as_linear().is_some())
    }

    /// What all operators measure of the images, without noise.
    pub fn forward(&self, image: &View) -> Result<Measurements> {
        let parts = self.operators.iter().map(|operator| operator.forward(image));
        Ok(Measurements::new(parts.collect::<Result<_>>()?))
    }

    /// What some of the operators measure: a rank's share.
    ///
    /// # Errors
    /// If an index is not one of the stack or is given twice.
    pub fn forward_some(&self, image: &View, indices: &[usize]) -> Result<Measurements> {
        let mut parts = Vec::with_capacity(indices.len());
        for &index in indices {
            let Some(operator) = self.get(index) else {
                let reason = format!("there is no operator {index}; there are {}", self.len());
                return Err(Error::argument("stack", reason));
            };
            parts.push((index, operator.forward(image)?));
        }
        Measurements::partial(self.len(), parts)
    }

    /// `Σ Jᵢᵀ vᵢ`, where `Jᵢ` is the derivative of operator i at `image`.
    pub fn vjp(&self, image: &View, v: &Measurements) -> Result<Array> {
        self.check_complete(v)?;
        self.sum(|i, operator| operator.vjp(image, part(v, i)))
    }

    /// `Aᵀ y = Σ Aᵢᵀ yᵢ`.
    ///
    /// # Errors
    /// If an operator is not linear, or a part of the measurements is absent or has a wrong shape.
    pub fn adjoint(&self, measurements: &Measurements) -> Result<Array> {
        self.check_complete(measurements)?;
        self.sum(|i, _| self.linear(i)?.adjoint(part(measurements, i)))
    }

    /// `AᵀA x = Σ AᵢᵀAᵢ x`, holding no more than one operator's measurements at a time.
    pub fn normal(&self, image: &View) -> Result<Array> {
        self.sum(|i, _| self.linear(i)?.normal(image))
    }

    /// `AAᵀ y`.
    pub fn gram(&self, measurements: &Measurements) -> Result<Measurements> {
        self.forward(&self.adjoint(measurements)?)
    }

    /// Refuses measurements that are not of this stack's number of operators.
    pub fn check_count(&self, measurements: &Measurements) -> Result<()> {
        if measurements.len() == self.len() {
            return Ok(());
        }
        let (parts, operators) = (measurements.len(), self.len());
        let (parts, operators) = (count(parts, "measurement"), count(operators, "operator"));
        let reason = format!("{parts} for {operators}; give one for each");
        Err(Error::argument("stack", reason))
    }

    /// Refuses measurements of which parts are absent, or too few or too many.
    pub(crate) fn check_complete(&self, measurements: &Measurements) -> Result<()> {
        self.check_count(measurements)?;
        let Some(absent) = (0..self.len()).find(|&i| measurements.get(i).is_none()) else {
            return Ok(());
        };
        let reason = format!(
            "the measurement of operator {absent} is absent; a stack that is not distributed needs all"
        );
        Err(Error::argument("stack", reason))
    }

    /// The operator as a linear one.
    fn linear(&self, index: usize) -> Result<&dyn LinearPhysics> {
        let operator = &self.operators[index];
        operator.as_linear().ok_or_else(|| {
            let name = operator.name();
            let reason =
                format!("operator {index} ({name}) is not linear and has no adjoint; use `vjp`");
            Error::argument("stack", reason)
        })
    }

    /// The terms of all operators, added from the first to the last.
    pub(crate) fn sum(&self, term: impl Fn(usize, &dyn Physics) -> Result<Array>) -> Result<Array> {
        let mut terms = self.operators.iter().enumerate().map(|(i, operator)| term(i, &**operator));
        let mut sum = match terms.next() {
            Some(first) => standard(first?),
            None => zeros(0, self.image_shape()),
        };
        for next in terms {
            let next = next?;
            if next.shape() != sum.shape() {
                return Err(Error::Shape {
                    what: "the image that an operator of the stack gives".into(),
                    expected: format!("{:?} is expected, as of the others", sum.shape()),
                    found: next.shape().to_vec(),
                });
            }
            add_scaled(slice_mut(&mut sum), 1.0, &slice(&next));
        }
        Ok(sum)
    }
}

impl IntoIterator for Stack {
    type Item = Arc<dyn Physics>;
    type IntoIter = std::vec::IntoIter<Arc<dyn Physics>>;

    fn into_iter(self) -> Self::IntoIter {
        self.operators.into_iter()
    }
}

impl<'a> IntoIterator for &'a Stack {
    type Item = &'a Arc<dyn Physics>;
    type IntoIter = std::slice::Iter<'a, Arc<dyn Physics>>;

    fn into_iter(self) -> Self::IntoIter {
        self.operators.iter()
    }
}

impl TryFrom<Vec<Arc<dyn Physics>>> for Stack {
    type Error = Error;

    fn try_from(operators: Vec<Arc<dyn Physics>>) -> Result<Self> {
        Self::new(operators)
    }
}

/// A part of measurements that were found complete.
fn part(measurements: &Measurements, index: usize) -> &Array {
    measurements.get(index).expect("the measurements are complete")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::physics::Identity;

    fn identity(shape: &[usize]) -> Arc<dyn Physics> {
        Arc::new(Identity::new(shape))
    }

    /// `x²`, which has a derivative but no adjoint.
    #[derive(Debug)]
    struct Square;

    impl Physics for Square {
        fn name(&self) -> &'static str {
            "square"
        }
        fn image_shape(&self) -> &[usize] {
            &[1, 2]
        }
        fn measurement_shape(&self) -> &[usize] {
            &[1, 2]
        }
        fn apply_forward(&self, _: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
            measurement.iter_mut().zip(image).for_each(|(y, x)| *y = x * x);
            Ok(())
        }
        fn apply_vjp(&self, _: usize, image: &[f32], v: &[f32], result: &mut [f32]) -> Result<()> {
            result.iter_mut().zip(image.iter().zip(v)).for_each(|(r, (x, v))| *r = 2.0 * x * v);
            Ok(())
        }
    }

    #[test]
    fn no_operators_and_other_image_shapes_are_refused() {
        assert!(Stack::new(vec![]).expect_err("refused").to_string().contains("at least one"));
        let error = Stack::new(vec![identity(&[1, 4]), identity(&[1, 5])]).expect_err("refused");
        assert!(error.to_string().contains("operator 1 (identity)"), "{error}");
    }

    #[test]
    fn measurements_of_another_count_or_with_a_part_absent_are_refused() {
        let stack = Stack::new(vec![identity(&[1, 2]), identity(&[1, 2])]).expect("valid");
        let image = Array::ones(vec![1, 1, 2]);
        let error = stack.adjoint(&Measurements::new(vec![image.clone()])).expect_err("refused");
        assert!(error.to_string().contains("1 measurement for 2 operators"), "{error}");
        let partial = stack.forward_some(&image, &[0]).expect("valid");
        let error = stack.vjp(&image, &partial).expect_err("refused");
        assert!(error.to_string().contains("operator 1 is absent"), "{error}");
        assert!(stack.forward_some(&image, &[2]).is_err());
        let wrong = Measurements::new(vec![image.clone(), Array::ones(vec![1, 1, 3])]);
        assert!(matches!(stack.adjoint(&wrong), Err(Error::Shape { .. })));
        let batches = Measurements::new(vec![image, Array::ones(vec![2, 1, 2])]);
        assert!(matches!(stack.adjoint(&batches), Err(Error::Shape { .. })));
    }

    #[test]
    fn sums_go_from_the_first_operator_to_the_last() {
        let stack = Stack::new(vec![identity(&[1, 1]); 3]).expect("valid");
        let values = [1e8_f32, -1e8, 1.0];
        let parts = values.map(|value| Array::from_elem(vec![1, 1, 1], value));
        let sum = stack.adjoint(&Measurements::new(parts.to_vec())).expect("valid");
        assert_eq!(sum[[0, 0, 0]], (values[0] + values[1]) + values[2]);
        // A zero in front would turn −0 into 0.
        let minus_zero = Array::from_elem(vec![1, 1, 1], -0.0);
        let sum = stack.adjoint(&Measurements::new(vec![minus_zero; 3])).expect("valid");
        assert!(sum[[0, 0, 0]].is_sign_negative());
    }

    #[test]
    fn the_derivative_of_a_stack_with_a_nonlinear_operator_is_the_sum_of_theirs() {
        let stack = Stack::new(vec![identity(&[1, 2]), Arc::new(Square)]).expect("valid");
        assert!(!stack.is_linear());
        let image = Array::from_shape_vec(vec![1, 1, 2], vec![3.0, -2.0]).expect("valid");
        let v = Measurements::new(vec![Array::ones(vec![1, 1, 2]); 2]);
        let expected = Array::from_shape_vec(vec![1, 1, 2], vec![7.0, -3.0]).expect("valid");
        assert_eq!(stack.vjp(&image, &v).expect("valid"), expected);
        let error = stack.adjoint(&v).expect_err("refused");
        assert!(error.to_string().contains("operator 1 (square) is not linear"), "{error}");
    }

    #[test]
    fn normal_and_gram_are_forward_and_adjoint_in_turn() {
        let stack = Stack::new(vec![identity(&[1, 2]); 2]).expect("valid");
        let image = Array::from_shape_vec(vec![1, 1, 2], vec![3.0, -2.0]).expect("valid");
        assert_eq!(stack.normal(&image).expect("valid"), &image * 2.0);
        let y = stack.forward(&image).expect("valid");
        assert_eq!(stack.gram(&y).expect("valid").get(1), Some(&(&image * 2.0)));
        assert_eq!(stack.iter().count(), 2);
    }
}
