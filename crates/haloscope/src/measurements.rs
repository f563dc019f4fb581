//! The measurements of a stack's operators: a list of arrays, in the order of the operators.
//!
//! A part may be absent because another rank holds it. Every part keeps the index of its operator, so a
//! rank's share of the list cannot be mistaken for a shorter list. Nothing here communicates: sums and
//! norms are over the parts that are present.

use crate::array::{Array, add_scaled, row_of, scale, slice, squared_norm_of_rows};
use crate::error::{Error, Result};

/// The outputs of a stack's operators, some of which may be held elsewhere.
///
/// ```
/// use haloscope::{Array, Measurements};
///
/// let part = || Array::ones(vec![1, 1, 4, 4]);
/// let all = Measurements::new(vec![part(), part()]);
/// assert!(all.is_complete());
///
/// // The share of a rank that has operators 1 and 3 of 4:
/// let some = Measurements::partial(4, [(1, part()), (3, part())])?;
/// assert_eq!(some.len(), 4);
/// assert_eq!(some.iter().map(|(index, _)| index).collect::<Vec<_>>(), [1, 3]);
/// assert!(some.get(0).is_none());
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measurements {
    parts: Vec<Option<Array>>,
}

impl Measurements {
    /// The outputs of all operators, in their order.
    #[must_use]
    pub fn new(parts: Vec<Array>) -> Self {
        Self { parts: parts.into_iter().map(Some).collect() }
    }

    /// The outputs of some of `count` operators.
    ///
    /// # Errors
    /// If an index is not below `count` or is given twice.
    pub fn partial(count: usize, parts: impl IntoIterator<Item = (usize, Array)>) -> Result<Self> {
        let mut places = vec![None; count];
        for (index, part) in parts {
            let Some(place) = places.get_mut(index) else {
                let reason =
                    format!("part {index} is not one of {count}, which are 0 to below {count}");
                return Err(Error::argument("measurements", reason));
            };
            if place.replace(part).is_some() {
                let reason = format!("part {index} was given twice; each operator has one");
                return Err(Error::argument("measurements", reason));
            }
        }
        Ok(Self { parts: places })
    }

    /// How many operators the stack has, whether their parts are present or not.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// Whether the stack has no operators at all.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether all parts are present.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.parts.iter().all(Option::is_some)
    }

    /// The part of an operator, if it is present.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&Array> {
        self.parts.get(index)?.as_ref()
    }

    /// The part of an operator, to be changed, if it is present.
    pub fn get_mut(&mut self, index: usize) -> Option<&mut Array> {
        self.parts.get_mut(index)?.as_mut()
    }

    /// Gives up the parts for which `keep(index)` does not hold: those that another rank holds.
    ///
    /// ```
    /// use haloscope::{Array, Measurements};
    ///
    /// let mut all = Measurements::new(vec![Array::ones(vec![1, 4]); 3]);
    /// all.retain(|index| index == 1);
    /// assert_eq!(all.iter().map(|(index, _)| index).collect::<Vec<_>>(), [1]);
    /// ```
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        for (index, part) in self.parts.iter_mut().enumerate() {
            if !keep(index) {
                *part = None;
            }
        }
    }

    /// The parts that are present with the indices of their operators, in order.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &Array)> {
        self.parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.as_ref()?)))
    }

    /// Like [`iter`](Self::iter), to change the parts.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (usize, &mut Array)> {
        self.parts.iter_mut().enumerate().filter_map(|(i, part)| Some((i, part.as_mut()?)))
    }

    /// The list with each part replaced by `f(index, part)`.
    pub fn map(&self, mut f: impl FnMut(usize, &Array) -> Result<Array>) -> Result<Self> {
        let replace =
            |(i, part): (usize, &Option<Array>)| part.as_ref().map(|p| f(i, p)).transpose();
        Ok(Self { parts: self.parts.iter().enumerate().map(replace).collect::<Result<_>>()? })
    }

    /// The list of `f(index, part, other part)`.
    ///
    /// # Errors
    /// If the two lists do not have the same parts, or `f` fails.
    pub fn zip_map(
        &self,
        other: &Self,
        mut f: impl FnMut(usize, &Array, &Array) -> Result<Array>,
    ) -> Result<Self> {
        self.check_same_parts(other)?;
        let pairs = self.parts.iter().zip(&other.parts).enumerate();
        let combine = |(i, (a, b)): (usize, (&Option<Array>, &Option<Array>))| {
            a.as_ref().zip(b.as_ref()).map(|(a, b)| f(i, a, b)).transpose()
        };
        Ok(Self { parts: pairs.map(combine).collect::<Result<_>>()? })
    }

    /// Σ of the squares of all elements that are present: in f64 within a part, then over the parts in
    /// their order.
    #[must_use]
    pub fn squared_norm(&self) -> f64 {
        let squares = |part: &Array| squared_norm_of_rows(&slice(part), row_of(part));
        self.iter().map(|(_, part)| squares(part)).sum()
    }

    /// `self ← self + factor · other`, on the parts that are present.
    ///
    /// # Errors
    /// If the lists do not have the same parts, of the same shapes.
    pub fn add_scaled(&mut self, factor: f32, other: &Self) -> Result<()> {
        self.check_same_parts(other)?;
        for (to, from) in self.parts.iter_mut().flatten().zip(other.parts.iter().flatten()) {
            add_array(to, factor, from)?;
        }
        Ok(())
    }

    /// `self ← factor · self`, on the parts that are present.
    pub fn scale(&mut self, factor: f32) {
        for part in self.parts.iter_mut().flatten() {
            match part.as_slice_mut() {
                Some(slice) => scale(slice, factor),
                None => part.mapv_inplace(|value| value * factor),
            }
        }
    }

    fn check_same_parts(&self, other: &Self) -> Result<()> {
        let present = |list: &Self| list.iter().map(|(i, _)| i).collect::<Vec<_>>();
        if self.len() == other.len() && present(self) == present(other) {
            return Ok(());
        }
        let describe = |list: &Self| format!("parts {:?} of {}", present(list), list.len());
        let reason =
            format!("{} were met by {}; both must have the same", describe(self), describe(other));
        Err(Error::argument("measurements", reason))
    }
}

impl From<Vec<Array>> for Measurements {
    fn from(parts: Vec<Array>) -> Self {
        Self::new(parts)
    }
}

/// `to ← to + factor · from`, for arrays of one shape.
fn add_array(to: &mut Array, factor: f32, from: &Array) -> Result<()> {
    if to.shape() != from.shape() {
        return Err(Error::Shape {
            what: "a part of the measurements".into(),
            expected: format!("{:?} is expected, as in the list it is added to", to.shape()),
            found: from.shape().to_vec(),
        });
    }
    match (to.as_slice_mut(), from.as_slice()) {
        (Some(to), Some(from)) => add_scaled(to, factor, from),
        _ => to.scaled_add(factor, from),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(value: f32) -> Array {
        Array::from_elem(vec![1, 2], value)
    }

    #[test]
    fn a_part_that_is_no_operators_or_comes_twice_is_refused() {
        let error = Measurements::partial(2, [(2, part(0.0))]).expect_err("refused");
        assert!(error.to_string().contains("part 2 is not one of 2"), "{error}");
        let error =
            Measurements::partial(2, [(1, part(0.0)), (1, part(0.0))]).expect_err("refused");
        assert!(error.to_string().contains("part 1 was given twice"), "{error}");
    }

    #[test]
    fn maps_keep_the_indices() {
        let list = Measurements::partial(4, [(3, part(3.0)), (1, part(1.0))]).expect("valid");
        assert!(!list.is_complete());
        let mapped = list.map(|i, part| Ok(part * i as f32)).expect("valid");
        assert_eq!(mapped.get(3), Some(&part(9.0)));
        assert_eq!(mapped.get(2), None);
        let sum = list.zip_map(&mapped, |_, a, b| Ok(a + b)).expect("valid");
        assert_eq!(sum.get(1), Some(&part(2.0)));
        assert_eq!(sum.squared_norm(), 2.0 * (4.0 + 144.0));
    }

    #[test]
    fn sums_of_lists_with_other_parts_or_shapes_are_refused() {
        let mut list = Measurements::new(vec![part(1.0), part(2.0)]);
        let other = Measurements::partial(2, [(0, part(1.0))]).expect("valid");
        let error = list.add_scaled(1.0, &other).expect_err("refused");
        assert!(error.to_string().contains("parts [0] of 2"), "{error}");
        let other = Measurements::new(vec![part(1.0), Array::zeros(vec![1, 3])]);
        assert!(matches!(list.add_scaled(1.0, &other), Err(Error::Shape { .. })));
    }

    #[test]
    fn sums_and_scaling_take_any_memory_order() {
        let turned = ndarray::arr2(&[[1.0_f32, 2.0], [3.0, 4.0]]).reversed_axes().into_dyn();
        let mut list = Measurements::new(vec![turned.clone()]);
        list.add_scaled(2.0, &Measurements::new(vec![turned.clone()])).expect("valid");
        list.scale(2.0);
        assert_eq!(list.get(0), Some(&(turned * 6.0)));
    }
}
