//! What lies beyond the edge of an image.

use std::str::FromStr;

use crate::error::{Error, Result};

/// What a tile sees beyond the edge of the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Border {
    /// The image mirrored in its outermost pixels, as often as it takes.
    Reflect,
    /// The outermost pixels again.
    Replicate,
    /// The other end of the image.
    Circular,
    /// Zeros.
    Zero,
    /// Nothing: windows end at the edge, where the denoiser is as it would be without tiles, and where they need
    /// no overlap. The least work.
    #[default]
    Inside,
}

impl Border {
    /// The pixel of an axis of `length` that is seen at `position`, if any.
    pub(crate) fn source(self, position: isize, length: usize) -> Option<usize> {
        let last = length.cast_signed() - 1;
        if (0..=last).contains(&position) {
            return Some(position.cast_unsigned());
        }
        let source = match self {
            Self::Zero => return None,
            Self::Replicate | Self::Inside => position.clamp(0, last),
            Self::Circular => position.rem_euclid(last + 1),
            Self::Reflect => {
                let period = (2 * last).max(1);
                let within = position.rem_euclid(period);
                within.min(period - within).min(last)
            }
        };
        Some(source.cast_unsigned())
    }
}

impl FromStr for Border {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        match name {
            "reflect" => Ok(Self::Reflect),
            "replicate" => Ok(Self::Replicate),
            "circular" => Ok(Self::Circular),
            "zero" | "constant" => Ok(Self::Zero),
            "inside" => Ok(Self::Inside),
            _ => Err(Error::argument(
                "border",
                format!(
                    "`{name}` is unknown; there are reflect, replicate, circular, zero, inside"
                ),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(border: Border, range: std::ops::Range<isize>) -> Vec<Option<usize>> {
        range.map(|position| border.source(position, 4)).collect()
    }

    #[test]
    fn borders_continue_the_image_as_they_say() {
        let some = |values: &[usize]| values.iter().copied().map(Some).collect::<Vec<_>>();
        let reflected = some(&[2, 1, 0, 1, 2, 3, 2, 1, 0, 1, 2, 3, 2, 1, 0]);
        assert_eq!(sources(Border::Reflect, -8..7), reflected[..]);
        assert_eq!(sources(Border::Replicate, -2..6), some(&[0, 0, 0, 1, 2, 3, 3, 3]));
        assert_eq!(sources(Border::Circular, -2..6), some(&[2, 3, 0, 1, 2, 3, 0, 1]));
        assert_eq!(sources(Border::Zero, -1..1), [None, Some(0)]);
    }

    #[test]
    fn a_single_pixel_is_its_own_mirror_image() {
        assert_eq!(Border::Reflect.source(-3, 1), Some(0));
        assert_eq!(Border::Reflect.source(5, 1), Some(0));
    }
}
