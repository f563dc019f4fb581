//! The fidelities of a stack's operators: one for all of them, or one for each.
//!
//! Values are added in f64 and gradients in f32, from the first operator to the last, which is the
//! order of sums over ranks.

use std::sync::Arc;

use super::Fidelity;
use crate::array::{Array, View};
use crate::error::{Error, Result};
use crate::measurements::Measurements;
use crate::physics::Stack;
use crate::words::count;

/// `Σ dᵢ(Aᵢ x, yᵢ)`.
///
/// ```
/// use std::sync::Arc;
/// use haloscope::fidelity::{Fidelities, L1, L2};
/// use haloscope::physics::{Identity, Physics, Stack};
///
/// let frame = || Arc::new(Identity::new(&[1, 2, 2])) as Arc<dyn Physics>;
/// let stack = Stack::new(vec![frame(), frame()])?;
/// let image = ndarray::ArrayD::ones(vec![1, 1, 2, 2]);
/// let data = stack.forward(&(&image * 3.0))?;
/// let fidelities = Fidelities::each(vec![Arc::new(L2::default()), Arc::new(L1)]);
/// assert_eq!(fidelities.value(&stack, &image, &data)?, 8.0 + 8.0);
/// assert_eq!(fidelities.gradient(&stack, &image, &data)?, &image * -3.0);
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Fidelities(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Same(Arc<dyn Fidelity>),
    Each(Vec<Arc<dyn Fidelity>>),
}

impl Fidelities {
    /// One fidelity for all operators.
    #[must_use]
    pub fn same(fidelity: Arc<dyn Fidelity>) -> Self {
        Self(Kind::Same(fidelity))
    }

    /// A fidelity for each operator, in their order.
    #[must_use]
    pub fn each(fidelities: Vec<Arc<dyn Fidelity>>) -> Self {
        Self(Kind::Each(fidelities))
    }

    /// The fidelity of an operator, if there is one.
    #[must_use]
    pub fn get(&self, operator: usize) -> Option<&dyn Fidelity> {
        match &self.0 {
            Kind::Same(fidelity) => Some(&**fidelity),
            Kind::Each(fidelities) => fidelities.get(operator).map(|fidelity| &**fidelity),
        }
    }

    /// Rejects a number of operators that differs from the number of fidelities.
    pub fn check_count(&self, operators: usize) -> Result<()> {
        match &self.0 {
            Kind::Each(list) if list.len() != operators => {
                let fidelities = match list.len() {
                    1 => "there is 1 fidelity".to_owned(),
                    number => format!("there are {number} fidelities"),
                };
                let operators = count(operators, "operator");
                let reason =
                    format!("{fidelities} for {operators}; give one for each, or one for all");
                Err(Error::argument("fidelities", reason))
            }
            _ => Ok(()),
        }
    }

    /// `w` where the sum is `w/2 ‖A x − y‖²`: all are quadratic, with the same weight.
    #[must_use]
    pub fn quadratic_weight(&self) -> Option<f64> {
        match &self.0 {
            Kind::Same(fidelity) => fidelity.quadratic_weight(),
            Kind::Each(list) => {
                let first = list.first()?.quadratic_weight()?;
                let same = list.iter().all(|other| other.quadratic_weight() == Some(first));
                same.then_some(first)
            }
        }
    }

    /// The sum over all operators.
    pub fn value(&self, stack: &Stack, image: &View, data: &Measurements) -> Result<f64> {
        stack.check_complete(data)?;
        self.check_count(stack.len())?;
        let term = |i: usize| self.term(i)?.value_at(&*stack.operators()[i], image, part(data, i)?);
        (0..stack.len()).map(term).sum()
    }

    /// The gradient of the sum with respect to the image.
    pub fn gradient(&self, stack: &Stack, image: &View, data: &Measurements) -> Result<Array> {
        stack.check_complete(data)?;
        self.check_count(stack.len())?;
        stack.sum(|i, operator| self.term(i)?.gradient_at(operator, image, part(data, i)?))
    }

    fn term(&self, operator: usize) -> Result<&dyn Fidelity> {
        self.get(operator).ok_or_else(|| {
            Error::argument("fidelities", format!("there is none for operator {operator}"))
        })
    }
}

impl<F: Fidelity + 'static> From<F> for Fidelities {
    fn from(fidelity: F) -> Self {
        Self::same(Arc::new(fidelity))
    }
}

fn part(data: &Measurements, operator: usize) -> Result<&Array> {
    data.get(operator).ok_or_else(|| {
        Error::argument("fidelities", format!("the measurement of operator {operator} is absent"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fidelity::{L1, L2};
    use crate::physics::{Identity, Physics};

    #[test]
    fn another_number_of_fidelities_than_operators_is_refused() {
        let identity: Arc<dyn Physics> = Arc::new(Identity::new(&[1, 2]));
        let stack = Stack::new(vec![identity; 2]).expect("valid");
        let image = Array::zeros(vec![1, 1, 2]);
        let data = stack.forward(&image).expect("forward");
        let list = Fidelities::each(vec![Arc::new(L1)]);
        let error = list.value(&stack, &image, &data).expect_err("refused");
        assert!(error.to_string().contains("there is 1 fidelity for 2 operators"), "{error}");
        assert!(list.gradient(&stack, &image, &data).is_err());
        assert_eq!(Fidelities::from(L1).value(&stack, &image, &data), Ok(0.0));
    }

    #[test]
    fn a_list_is_quadratic_if_all_are_with_one_weight() {
        let l2 = |sigma| Arc::new(L2::new(sigma).expect("valid")) as Arc<dyn Fidelity>;
        assert_eq!(Fidelities::each(vec![l2(0.5), l2(0.5)]).quadratic_weight(), Some(4.0));
        assert_eq!(Fidelities::each(vec![l2(0.5), l2(1.0)]).quadratic_weight(), None);
        assert_eq!(Fidelities::each(vec![l2(0.5), Arc::new(L1)]).quadratic_weight(), None);
        assert_eq!(Fidelities::each(vec![]).quadratic_weight(), None);
        assert_eq!(Fidelities::from(L2::default()).quadratic_weight(), Some(1.0));
    }
}
