//! Pictures in files: PNG in and out, values from 0 to 1, channels one after the other.

use std::fs::File;
use std::io::{BufReader, BufWriter};
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use image::{DynamicImage, ImageFormat, ImageReader};

/// A gray or colour picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// 1 or 3.
    pub channels: usize,
    /// Whether the file has 16 bits per value.
    pub is_deep: bool,
    /// Channel by channel, row by row; black is 0 and white is 1.
    pub values: Vec<f32>,
}

impl Picture {
    /// Reads a PNG file. Transparency is dropped, with a warning.
    pub fn read(path: &Path) -> Result<Self> {
        let name = || path.display().to_string();
        // The contents tell the format, whatever the name says.
        let file = BufReader::new(File::open(path).with_context(name)?);
        let reader = ImageReader::new(file).with_guessed_format().with_context(name)?;
        if reader.format() != Some(ImageFormat::Png) {
            bail!("{}: not a PNG file", path.display());
        }
        // The reader's own limits refuse sizes that no memory could hold.
        let image = reader.decode().with_context(name)?;
        if image.color().has_alpha() {
            log::warn!("{}: the transparency is dropped", path.display());
        }
        let (width, height) = (image.width() as usize, image.height() as usize);
        if width * height == 0 {
            bail!("{}: the picture is empty", path.display());
        }
        let is_deep = image.color().bytes_per_pixel() / image.color().channel_count() > 1;
        let (channels, interleaved) = if image.color().has_color() {
            (3, image.into_rgb32f().into_raw())
        } else {
            (
                1,
                image
                    .into_luma16()
                    .into_raw()
                    .into_iter()
                    .map(|v| f32::from(v) / 65_535.0)
                    .collect(),
            )
        };
        let values = (0..channels)
            .flat_map(|channel| interleaved.iter().skip(channel).step_by(channels).copied())
            .collect();
        Ok(Self { width, height, channels, is_deep, values })
    }

    /// Writes a PNG file; what was there before stays until the new file is whole.
    pub fn write(&self, path: &Path) -> Result<()> {
        let name = || format!("cannot write {}", path.display());
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let mut temporary = tempfile::Builder::new()
            .prefix(".haloscope-")
            .tempfile_in(folder.unwrap_or(Path::new(".")))
            .with_context(name)?;
        self.to_image()
            .context("the picture fits its size")?
            .write_to(&mut BufWriter::new(temporary.as_file_mut()), ImageFormat::Png)
            .with_context(name)?;
        temporary.persist(path).map_err(|error| error.error).with_context(name)?;
        Ok(())
    }

    fn to_image(&self) -> Option<DynamicImage> {
        let (width, height) = (self.width as u32, self.height as u32);
        let pixels = self.width * self.height;
        let value =
            |index: usize| self.values[(index % self.channels) * pixels + index / self.channels];
        let scaled = |white: f32| {
            (0..self.values.len()).map(move |index| (value(index).clamp(0.0, 1.0) * white).round())
        };
        let bytes = || scaled(255.0).map(|v| v as u8).collect();
        let words = || scaled(65_535.0).map(|v| v as u16).collect();
        Some(match (self.channels, self.is_deep) {
            (1, false) => {
                DynamicImage::ImageLuma8(image::ImageBuffer::from_raw(width, height, bytes())?)
            }
            (1, true) => {
                DynamicImage::ImageLuma16(image::ImageBuffer::from_raw(width, height, words())?)
            }
            (_, false) => {
                DynamicImage::ImageRgb8(image::ImageBuffer::from_raw(width, height, bytes())?)
            }
            (_, true) => {
                DynamicImage::ImageRgb16(image::ImageBuffer::from_raw(width, height, words())?)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_come_back_as_they_were_written() {
        let folder = tempfile::tempdir().expect("a folder");
        for (channels, is_deep) in [(1, false), (1, true), (3, false), (3, true)] {
            let white = if is_deep { 65_535 } else { 255 };
            let values = (0..channels * 15).map(|i| (i * 5) as f32 / white as f32).collect();
            let picture = Picture { width: 5, height: 3, channels, is_deep, values };
            let path = folder.path().join("picture.png");
            picture.write(&path).expect("written");
            let back = Picture::read(&path).expect("read");
            assert_eq!((back.width, back.height, back.channels), (5, 3, channels));
            assert_eq!(back.is_deep, is_deep);
            for (a, b) in back.values.iter().zip(&picture.values) {
                assert!((a - b).abs() < 1e-6, "{a} {b}");
            }
        }
    }

    #[test]
    fn failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("taken");
        std::fs::create_dir(&target).expect("a folder in the way");
        let picture =
            Picture { width: 1, height: 1, channels: 1, is_deep: false, values: vec![0.5] };
        let error = picture.write(&target).expect_err("a folder is in the way");
        assert!(format!("{error:#}").contains("taken"), "{error:#}");
        assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 1);
    }
}
