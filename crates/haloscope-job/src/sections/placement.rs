//! Where the pixels of an image are in the world, which a result takes over from what it was made of.
//!
//! A file that says where it is knows best; next comes the size of pixels that a scan is given, then the distances of
//! pixels in a file. Where none of them says anything, neither does the result.

use haloscope::io::{FitsHeader, Image, Metadata, WriteOptions};

/// Where voxels are in the world, as [`Image::affine`] has it.
pub type Affine = [[f64; 4]; 3];

/// What is known of the place of an image.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placement {
    /// The distance of pixels along each side, in the array's order.
    pub spacing: Option<Vec<f64>>,
    /// From the array's indices to the world.
    pub affine: Option<Affine>,
    /// What else its file says: the unit of the spacing, and the header of a FITS file.
    pub metadata: Metadata,
}

impl Placement {
    /// What a file says, but for what no file of another format could.
    #[must_use]
    pub fn of(image: &Image) -> Self {
        let sides = image.array.ndim().saturating_sub(2);
        let is_length = |step: &f64| step.is_finite() && *step > 0.0;
        let are_lengths = |steps: &Vec<f64>| steps.len() == sides && steps.iter().all(is_length);
        let is_finite = |affine: &Affine| affine.iter().flatten().all(|value| value.is_finite());
        Self {
            spacing: image.spacing.clone().filter(are_lengths),
            affine: image.affine.filter(is_finite),
            metadata: image.metadata.clone(),
        }
    }

    /// That of an image of `sides` sides whose blocks of `factor` pixels along each became one. The middle of the
    /// first is that of the first block.
    #[must_use]
    pub fn shrunk(mut self, factor: usize, sides: usize) -> Self {
        if factor != 1 {
            self.metadata.fits = self.metadata.fits.map(FitsHeader::without_places);
        }
        let factor = factor as f64;
        self.spacing.iter_mut().flatten().for_each(|step| *step *= factor);
        for [steps @ .., origin] in self.affine.iter_mut().flatten() {
            for step in steps.iter_mut().take(sides) {
                *origin += *step * (factor - 1.0) / 2.0;
                *step *= factor;
            }
        }
        self
    }

    /// This one, or another if this one knows nothing.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        if self == Self::default() { other } else { self }
    }

    /// This one, or the pixels that a scan is given if no file says where the image is.
    #[must_use]
    pub(crate) fn or_pixels(self, pixel: Option<Vec<f64>>) -> Self {
        match pixel {
            Some(_) if self.affine.is_none() => Self { spacing: pixel, ..self },
            _ => self,
        }
    }

    /// Options to write an image that is there.
    #[must_use]
    pub fn write_options(&self) -> WriteOptions {
        WriteOptions {
            spacing: self.spacing.clone(),
            affine: self.affine,
            metadata: self.metadata.clone(),
            ..WriteOptions::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_shrunk_voxels_is_in_the_middle_of_its_block() {
        let affine = [[-1.0, 0.0, 0.5, 90.0], [0.0, 2.0, 0.0, -126.0], [0.0, 0.0, 3.0, -72.0]];
        let spacing = Some(vec![3.0, 2.0, 1.0]);
        let placement = Placement { spacing, affine: Some(affine), ..Placement::default() };
        let shrunk = placement.clone().shrunk(6, 3);
        assert_eq!(shrunk.spacing, Some(vec![18.0, 12.0, 6.0]));
        // 2.5 voxels on along each side.
        let expected = [[-6.0, 0.0, 3.0, 88.75], [0.0, 12.0, 0.0, -121.0], [0.0, 0.0, 18.0, -64.5]];
        assert_eq!(shrunk.affine, Some(expected));
        // Nothing happens to the depth of a slice.
        let slice = placement.shrunk(2, 2).affine.expect("a place");
        assert_eq!(slice[2], [0.0, 0.0, 3.0, -72.0]);
        assert_eq!(slice[1], [0.0, 4.0, 0.0, -125.0]);
    }

    #[test]
    fn a_file_that_says_where_it_is_knows_best() {
        let spaced = Placement { spacing: Some(vec![2.0; 2]), ..Placement::default() };
        let placed = Placement { affine: Some([[1.0; 4]; 3]), ..spaced.clone() };
        let pixel = Some(vec![0.5; 2]);
        assert_eq!(placed.clone().or_pixels(pixel.clone()), placed);
        assert_eq!(spaced.clone().or_pixels(pixel.clone()).spacing, pixel);
        assert_eq!(spaced.clone().or_pixels(None), spaced);
        assert_eq!(Placement::default().or(placed.clone()), placed);
        assert_eq!(spaced.clone().or(placed), spaced);
    }
}
