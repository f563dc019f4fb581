//! An image that is read, denoised and written by bands of rows, where all of it would not fit into memory.
//!
//! The network runs in waves, which have the bits of the whole image. The file is read twice: once for its range, once for
//! the network.

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::path::Path;
use std::time::{Duration, Instant};

use haloscope::array::extremes;
use haloscope::io::{self, Access, Format, Reader, Writer};
use haloscope::{Array, Error, Result};
use haloscope_nn::engine::EnginePlan;
use ndarray::IxDyn;

use super::picture::{Picture, read_options};
use super::pieces::{Fit, mean_of_repeats};
use super::target::Target;
use super::{FileDenoising, WhitePoint};
use crate::machine::Machine;
use crate::memory::gigabytes;
use crate::observer::{Event, Observer};
use crate::scale::{Scale, refuse_infinite};

/// Values that are looked at at a time for the range of a file.
const BAND: usize = 1 << 24;

/// A file that can be read by bands and whose result can be written so.
pub(super) struct Stream {
    reader: Reader,
    height: usize,
    width: usize,
}

impl Stream {
    /// The input, if it is one image, and both files can be read and written by bands.
    pub(super) fn open(denoising: &FileDenoising) -> Option<Self> {
        let format = Format::of_name(&denoising.output.display().to_string())?;
        let reader = Reader::open(&denoising.input, &read_options(denoising)).ok()?;
        let &[1, _, height, width] = reader.shape() else { return None };
        let is_possible = reader.access() != Access::Stream && io::is_written_by_region(format);
        is_possible.then_some(Self { reader, height, width })
    }

    /// (batch, channel, height, width).
    pub(super) fn shape(&self) -> &[usize] {
        self.reader.shape()
    }

    /// What the file says, and the scale of its values.
    pub(super) fn picture(&self, denoising: &FileDenoising) -> Result<Picture> {
        let path = &denoising.input;
        let mut image = self.reader.image(Array::zeros(vec![0]));
        let (mut range, mut infinite, mut all) = ((f32::INFINITY, f32::NEG_INFINITY), 0, 0);
        let rows = (BAND / (self.shape()[1] * self.width)).max(1);
        for start in (0..self.height).step_by(rows) {
            let band = self.read(start..(start + rows).min(self.height))?;
            infinite += band.iter().filter(|value| !value.is_finite()).count();
            all += band.len();
            let (low, high) = extremes(&band);
            range = (range.0.min(low), range.1.max(high));
        }
        refuse_infinite(path, infinite, all)?;
        let by_range = match denoising.white {
            WhitePoint::Given(white) => Some(Scale::with_white(white)),
            WhitePoint::Normalised => None,
            WhitePoint::Automatic => Scale::by_range(&image, range),
        };
        let scale = if let Some(scale) = by_range {
            scale
        } else {
            // Shares of the values are found with all of them in memory, twice, which the network does not use yet.
            let needed = 8 * all as u64;
            if let Some(free) =
                Machine::detect().memory_available_bytes.filter(|free| needed > *free)
            {
                return Err(Error::Limit {
                    file: path.display().to_string(),
                    reason: format!(
                        "white is found from all values, which take {}, and {} are free; give it with `white`",
                        gigabytes(needed),
                        gigabytes(free)
                    ),
                });
            }
            image.array = self.read(0..self.height)?;
            if denoising.white == WhitePoint::Normalised {
                Scale::normalising(&image.array)
            } else {
                Scale::automatic(&image)
            }
        };
        image.array = Array::zeros(vec![0]);
        Ok(Picture { image, scale })
    }

    /// Runs a plan on all bands, and writes the file. What is written so far lies beside the result, and goes if `observer` asks
    /// for an end.
    pub(super) fn denoise(
        &self,
        plan: &dyn EnginePlan,
        fit: &Fit,
        (scale, sigma): (&Scale, f32),
        target: &mut Target,
        output: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Duration> {
        let mut writer = Writer::create(output, self.shape(), &target.options)?;
        let begin = Instant::now();
        let (observer, is_stopped) = (RefCell::new(observer), Cell::new(false));
        let mut read = |rows: Range<usize>, band: &mut [f32]| {
            is_stopped.set(observer.borrow_mut().stop().is_some());
            if is_stopped.get() {
                return Err(Error::Interrupted.to_string());
            }
            let values = self.read(rows).map_err(|error| error.to_string())?;
            let values = scale.apply(values);
            let values = values.as_standard_layout();
            let values = values.as_slice().unwrap_or_default();
            let pixels = values.len() / self.shape()[1];
            let stored = (fit.channels + usize::from(fit.has_map)) * pixels;
            let member = fit.channels * pixels / fit.repeats;
            for (to, from) in band.chunks_exact_mut(stored).zip(values.chunks_exact(member)) {
                for channels in to[..fit.channels * pixels].chunks_exact_mut(member) {
                    channels.copy_from_slice(from);
                }
                to[fit.channels * pixels..].fill(sigma);
            }
            Ok(())
        };
        let mut write = |rows: Range<usize>, band: &[f32]| {
            let mut values = Array::zeros(IxDyn(&[1, self.shape()[1], rows.len(), self.width]));
            mean_of_repeats(fit.repeats, band, values.view_mut());
            let region = [rows, 0..self.width];
            writer.write_region(&region, &target.convert(values)).map_err(|error| error.to_string())
        };
        let ran = plan.run_bands(&mut read, &mut write, &mut plan.scratch(), &mut |step, _| {
            observer.borrow_mut().event(Event::Worked { flops: step.flops() });
        });
        if is_stopped.get() {
            return Err(Error::Interrupted);
        }
        ran?;
        let seconds = begin.elapsed();
        writer.finish()?;
        Ok(seconds)
    }

    pub(super) fn read(&self, rows: Range<usize>) -> Result<Array> {
        let region = [rows.clone(), 0..self.width];
        self.reader.read_region(&region).map_err(|error| Error::File {
            file: format!("rows {} to {}", rows.start, rows.end),
            reason: error.to_string(),
        })
    }
}
