//! The lengths of tiles where nobody asks for others: one policy for the library, the command and its plans.
//!
//! They follow from the image and from how many of its sides the denoiser sees, never from the number of ranks, so that
//! the same image has the same tiles, and the same bits, on any number of them.

/// The longest patch and the overlap along one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lengths {
    patch: usize,
    overlap: usize,
}

/// Along the sides of an image, for a denoiser of pictures.
const PLANE: Lengths = Lengths { patch: 256, overlap: 32 };
/// Along the sides of a volume, for a denoiser of volumes.
const SPACE: Lengths = Lengths { patch: 64, overlap: 16 };
/// Across slices that the denoiser treats one by one: they need not see each other.
const SLICES: Lengths = Lengths { patch: 8, overlap: 0 };

/// The patch and the overlap along each of these sides, for a denoiser that sees so many of them at once: what
/// [`Patch::Standard`](super::Patch::Standard) and [`Overlap::Standard`](super::Overlap::Standard) stand for.
///
/// ```
/// use haloscope::tiling::standard_lengths;
///
/// assert_eq!(standard_lengths(&[512, 384], 2), (vec![256, 192], vec![32, 32]));
/// ```
#[must_use]
pub fn lengths(sides: &[usize], seen: usize) -> (Vec<usize>, Vec<usize>) {
    let along = |axis: usize| match sides.len() {
        all if axis + seen < all => SLICES,
        all if all >= 3 && seen >= all => SPACE,
        _ => PLANE,
    };
    let all = (0..sides.len()).map(along);
    let patches = all.clone().zip(sides).map(|(lengths, side)| even(lengths.patch, *side));
    (patches.collect(), all.map(|lengths| lengths.overlap).collect())
}

/// The length that cuts a side into as many parts as `longest` would, all about equally long.
fn even(longest: usize, side: usize) -> usize {
    let parts = side.div_ceil(longest);
    // A multiple of 8 suits most networks.
    side.div_ceil(parts).next_multiple_of(8.min(longest)).min(side)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patches_are_even_and_no_longer_than_the_side() {
        assert_eq!(even(256, 384), 192);
        assert_eq!(even(256, 256), 256);
        assert_eq!(even(256, 100), 100);
        assert_eq!(even(256, 481), 248);
        assert_eq!(even(8, 189), 8);
    }

    #[test]
    fn lengths_suit_pictures_volumes_and_slices() {
        assert_eq!(lengths(&[384, 100], 2), (vec![192, 100], vec![32, 32]));
        assert_eq!(lengths(&[100, 100, 40], 3), (vec![56, 56, 40], vec![16, 16, 16]));
        // A network for pictures on a volume.
        assert_eq!(lengths(&[20, 300, 256], 2), (vec![8, 152, 256], vec![0, 32, 32]));
        assert_eq!(lengths(&[1000], 1), (vec![256], vec![32]));
    }
}
