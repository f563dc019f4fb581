//! Parts of an image whose network runs in several places at once, and where an image may be cut into them.

use std::ops::Range;

use crate::error::{Error, Result};
use crate::shape::Shape;

/// A box of a whole image, or the whole of it.
///
/// ```
/// use haloscope_nn::Shape;
/// use haloscope_nn::engine::Shard;
///
/// let lower = Shard::new(Shape::new([1, 3, 100, 80])?, vec![48..100, 0..80])?;
/// assert_eq!(lower.shape().sizes(), [1, 3, 52, 80]);
/// assert_eq!((lower.is_cut(0), lower.is_cut(1)), ([true, false], [false, false]));
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Shard {
    whole: Shape,
    region: Vec<Range<usize>>,
    shape: Shape,
}

impl Shard {
    /// The part of images of shape `whole`, (batch, channel, spatial…), that lies in `region`, one range for each spatial axis.
    pub fn new(whole: Shape, region: Vec<Range<usize>>) -> Result<Self> {
        let sides = whole.spatial();
        let is_inside = region.len() == sides.len()
            && region.iter().zip(sides).all(|(part, &side)| !part.is_empty() && part.end <= side);
        if !is_inside {
            return Err(argument(format!(
                "the region {region:?}; one range that is not empty for each of the sides of {whole} is needed"
            )));
        }
        let lengths: Vec<usize> = region.iter().map(Range::len).collect();
        let shape = Shape::image(whole.batch(), whole.channels(), &lengths)?;
        Ok(Self { whole, region, shape })
    }

    /// All of the image.
    #[must_use]
    pub(crate) fn whole_of(whole: &Shape) -> Self {
        let region = whole.spatial().iter().map(|&side| 0..side).collect();
        Self { whole: whole.clone(), region, shape: whole.clone() }
    }

    /// The shape of the whole image.
    #[must_use]
    pub fn whole(&self) -> &Shape {
        &self.whole
    }

    /// Where the part lies in it.
    #[must_use]
    pub fn region(&self) -> &[Range<usize>] {
        &self.region
    }

    /// The shape of the part.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Whether the image goes on before and after the part on a spatial axis.
    #[must_use]
    pub fn is_cut(&self, axis: usize) -> [bool; 2] {
        let Range { start, end } = self.region[axis];
        [start > 0, end < self.whole.spatial()[axis]]
    }

    /// Whether it is all of the image.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.shape == self.whole
    }
}

/// Where a side of an image may be cut so that its parts give the bits of the whole.
///
/// ```
/// use haloscope_nn::engine::Grain;
///
/// let grain = Grain { step: 48, last: 8 };
/// assert_eq!(grain.cut(200, 2).as_deref(), Some(&[0..96, 96..200][..]));
/// // The eight rows after 192 are enough for a part, seven are not.
/// assert_eq!((grain.most_parts(200), grain.most_parts(199)), (5, 4));
/// assert_eq!(grain.cut(200, 6), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Cuts are at multiples of it.
    pub step: usize,
    /// The least length of the last part.
    pub last: usize,
}

impl Grain {
    /// The most parts that a side of this length can have.
    #[must_use]
    pub fn most_parts(&self, side: usize) -> usize {
        side.saturating_sub(self.last.max(1)) / self.step.max(1) + 1
    }

    /// A side in so many parts of about equal length, if it can be cut into as many.
    #[must_use]
    pub fn cut(&self, side: usize, parts: usize) -> Option<Vec<Range<usize>>> {
        let units = self.most_parts(side);
        if parts == 0 || parts > units {
            return None;
        }
        // Where units are left over, some parts get one more: the last ones if the last unit is shorter than the others,
        // the first ones if it is longer.
        let (each, more) = (units / parts, units % parts);
        let is_short = side - (units - 1) * self.step < self.step;
        let before = if is_short { parts - more } else { 0 };
        let bound = |part: usize| {
            let extra = part.saturating_sub(before).min(more);
            if part == parts { side } else { (part * each + extra) * self.step }
        };
        Some((0..parts).map(|part| bound(part)..bound(part + 1)).collect())
    }

    /// Refuses a part of a side that begins or ends between two grains.
    pub(crate) fn check(&self, part: &Range<usize>, side: usize) -> Result<()> {
        let is_last = part.end == side;
        let fits = part.start.is_multiple_of(self.step)
            && (is_last || part.end.is_multiple_of(self.step))
            && (part.start == 0 || !is_last || part.len() >= self.last);
        if fits {
            return Ok(());
        }
        Err(argument(format!(
            "the part {part:?} of a side of {side}; parts begin at multiples of {}, and the last one has at least {} \
             values: at most {} parts are possible",
            self.step,
            self.last,
            self.most_parts(side)
        )))
    }
}

fn argument(reason: String) -> Error {
    Error::Argument { what: "shard", reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_even_and_every_one_of_them_is_accepted() {
        for (step, last) in [(1, 1), (6, 1), (48, 8), (96, 5)] {
            let grain = Grain { step, last };
            for side in 1..400 {
                let most = grain.most_parts(side);
                assert_eq!(grain.cut(side, most + 1), None);
                for parts in 1..=most.min(9) {
                    let cut = grain.cut(side, parts).expect("no more than possible");
                    assert_eq!((cut.len(), cut[0].start, cut[parts - 1].end), (parts, 0, side));
                    assert!(cut.windows(2).all(|pair| pair[0].end == pair[1].start));
                    assert!(cut.iter().all(|part| grain.check(part, side).is_ok()));
                    let lengths = || cut.iter().map(Range::len);
                    let (most, least) = (lengths().max(), lengths().min());
                    // At most a unit more than the others, or what the last unit is longer by.
                    assert!(most.zip(least).is_some_and(|(m, l)| m - l < step + last), "{cut:?}");
                }
            }
        }
    }

    #[test]
    fn parts_between_grains_and_last_parts_that_are_too_short_are_refused() {
        let grain = Grain { step: 48, last: 4 };
        for part in [0..50, 10..100, 96..99] {
            let error = grain.check(&part, 99).expect_err("not at a grain").to_string();
            assert!(error.contains("multiples of 48") && error.contains("at most 2"), "{error}");
        }
        // A side that is not cut may be shorter.
        assert_eq!(grain.check(&(0..3), 3), Ok(()));
    }
}
