//! The right-hand side of a system, which is computed again where it is needed instead of being kept.

use std::borrow::Cow;

use super::map::elements_mut;
use super::system::add;
use crate::array::{Array, copy_of, scale_and_add, slice, update_from_two};
use crate::error::Result;

/// `b`, in standard layout.
pub(super) enum RightSide<'a> {
    /// An array.
    Whole(Cow<'a, Array>),
    /// `Aᵀy + shift · center`.
    Shifted { adjoint: Cow<'a, Array>, shift: f64, center: Cow<'a, Array> },
}

impl<'a> RightSide<'a> {
    /// `b` itself.
    pub(super) fn whole(b: &'a Array) -> Self {
        Self::Whole(in_standard_layout(b))
    }

    /// `Aᵀy + shift · center`, or `Aᵀy` without a center.
    pub(super) fn shifted(adjoint: &'a Array, shift: f64, center: Option<&'a Array>) -> Self {
        let adjoint = in_standard_layout(adjoint);
        match center.map(in_standard_layout) {
            None => Self::Whole(adjoint),
            Some(center) => Self::Shifted { adjoint, shift, center },
        }
    }

    /// The array.
    pub(super) fn to_array(&self) -> Result<Array> {
        match self {
            Self::Whole(b) => Ok(copy_of(b)),
            Self::Shifted { adjoint, shift, center } => {
                let mut b = copy_of(adjoint);
                add(&mut b, *shift, center)?;
                Ok(b)
            }
        }
    }

    /// `b − applied`, in the array of `applied`.
    pub(super) fn minus(&self, mut applied: Array) -> Result<Array> {
        match self {
            Self::Whole(b) => {
                scale_and_add(elements_mut(&mut applied, b.shape())?, -1.0, &slice(b));
            }
            Self::Shifted { adjoint, shift, center } => {
                let to = elements_mut(&mut applied, adjoint.shape())?;
                let shift = *shift as f32;
                update_from_two(to, (&slice(adjoint), &slice(center)), |to, adjoint, center| {
                    *to = (adjoint + shift * center) - *to;
                });
            }
        }
        Ok(applied)
    }
}

fn in_standard_layout(array: &Array) -> Cow<'_, Array> {
    if array.is_standard_layout() {
        Cow::Borrowed(array)
    } else {
        Cow::Owned(array.as_standard_layout().into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_computed_again_has_the_bits_of_what_is_kept() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut array = || Array::from_shape_simple_fn(vec![1, 2, 5, 7], || random.f32() - 0.5);
        let (adjoint, center, applied) = (array(), array(), array());
        let computed = RightSide::shifted(&adjoint, 0.3, Some(&center));
        let kept = computed.to_array().expect("one shape");
        let bits = |array: Array| array.iter().map(|value| value.to_bits()).collect::<Vec<_>>();
        let mut expected = kept.clone();
        add(&mut expected, -1.0, &applied).expect("one shape");
        for right in [RightSide::whole(&kept), computed] {
            let found = right.minus(applied.clone()).expect("one shape");
            assert_eq!(bits(found), bits(expected.clone()));
        }
        let turned = center.clone().reversed_axes();
        assert!(RightSide::shifted(&adjoint, 0.3, Some(&turned)).to_array().is_err());
        assert!(RightSide::whole(&kept).minus(turned).is_err());
    }
}
