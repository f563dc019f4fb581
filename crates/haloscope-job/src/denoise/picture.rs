//! What is denoised: what its file says, and how its values are scaled.

use haloscope::io::{self, Axes, Format, Image, ReadOptions};
use haloscope::{Error, Result};

use super::{FileDenoising, WhitePoint};
use crate::scale::{Scale, check_finite};

/// An image, its values possibly elsewhere, and how they are scaled.
pub(super) struct Picture {
    pub(super) image: Image,
    pub(super) scale: Scale,
}

impl Picture {
    pub(super) fn read(denoising: &FileDenoising) -> Result<Self> {
        let path = &denoising.input;
        let image = io::read(path, &read_options(denoising))?;
        check_axes(denoising, &image)?;
        check_finite(path, &image.array)?;
        let scale = match denoising.white {
            WhitePoint::Given(white) => Scale::with_white(white),
            WhitePoint::Normalised => Scale::normalising(&image.array),
            WhitePoint::Automatic => Scale::automatic(&image),
        };
        Ok(Self { image, scale })
    }
}

/// How the input is read: values as they are stored, of pictures as well.
pub(super) fn read_options(denoising: &FileDenoising) -> ReadOptions {
    ReadOptions {
        white: Some(1.0),
        axes: denoising.axes.unwrap_or(Axes::Automatic),
        entry: denoising.entry.clone(),
        ..ReadOptions::default()
    }
}

/// Refuses an array of three axes that is rather a colour picture than a volume, unless somebody says so.
fn check_axes(denoising: &FileDenoising, image: &Image) -> Result<()> {
    let has_axes = matches!(
        image.format,
        Format::Npy | Format::Npz | Format::Fits | Format::Hdf5 | Format::Zarr
    );
    if let (None, true, &[1, 1, height, width, channels @ (3 | 4)]) =
        (denoising.axes, has_axes, image.array.shape())
        && height > 8
        && width > 8
    {
        return Err(Error::Content {
            file: denoising.input.display().to_string(),
            reason: format!(
                "an array of shape [{height}, {width}, {channels}] may be a colour picture (`axes` channel-last) or a \
                 volume of {height} slices (`axes` spatial); say which"
            ),
        });
    }
    Ok(())
}
