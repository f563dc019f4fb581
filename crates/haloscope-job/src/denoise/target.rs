//! How results are written: in which values and which type, and how many of them the file cannot hold.

use std::path::Path;

use haloscope::Array;
use haloscope::io::{self, Format, Sample, WriteOptions};

use super::picture::Picture;
use crate::scale::{Clipped, Scale};

impl Picture {
    /// How values from 0 to 1 are written to a file of this name.
    pub(super) fn target(&self, path: &Path) -> Target {
        let format = Format::of_name(&path.display().to_string());
        let samples = format.map_or(&[][..], Format::samples);
        let standard = samples.first().copied().unwrap_or(Sample::F32);
        let is_shown = format.is_some_and(Format::is_picture);
        let sample = self.image.sample;
        let has_type = samples.contains(&sample);
        let restored = Values::Restored(self.scale.clone(), 1.0);
        let (values, sample, raw) = match (self.image.format.is_picture(), is_shown) {
            // The same picture, whatever its white was taken for.
            (true, true) if has_type => (restored, sample, true),
            // A picture in which the scale is black and white.
            (_, true) => {
                let is_deep = !sample.is_float() && sample.bytes() > 1;
                let deep = is_deep && samples.contains(&Sample::U16);
                (Values::Scaled, if deep { Sample::U16 } else { standard }, false)
            }
            // Deep pictures stay what they are in a format that has room for them.
            (true, false) if format == Some(Format::Tiff) && sample == Sample::U16 => {
                (restored, sample, false)
            }
            // Pictures are from 0 to 1 to those who read them.
            (true, false) => {
                let white = sample.white().unwrap_or(1.0);
                (Values::Restored(self.scale.clone(), white), Sample::F32, false)
            }
            (false, false) => {
                // Integers would lose what lies between few counts, or between those of a file with a slope.
                let is_fine = sample.is_float()
                    || self.scale.range() >= 255.0 && self.image.scaling == io::Scaling::NONE;
                (restored, if has_type && is_fine { sample } else { standard }, false)
            }
        };
        let options = WriteOptions { sample: Some(sample), raw, ..self.image.write_options(path) };
        let range = if is_shown && !raw { Some((0.0, 1.0)) } else { limits(sample) };
        Target { name: path.display().to_string(), format, values, options, range, counts: [0; 3] }
    }
}

/// What is written of values from 0 to 1.
enum Values {
    /// These values.
    Scaled,
    /// The values of the input, divided by a number.
    Restored(Scale, f64),
}

/// How results are written, and how many of their values the file cannot hold.
pub(super) struct Target {
    name: String,
    format: Option<Format>,
    values: Values,
    pub(super) options: WriteOptions,
    /// What the file holds, if it is not everything.
    range: Option<(f32, f32)>,
    /// The values that were below the range, above it, and all.
    counts: [u64; 3],
}

impl Target {
    /// What is written of some values from 0 to 1.
    pub(super) fn convert(&mut self, scaled: Array) -> Array {
        let array = match &self.values {
            Values::Scaled => scaled,
            Values::Restored(scale, 1.0) => scale.restore(scaled),
            Values::Restored(scale, white) => {
                scale.restore(scaled).mapv_into(|value| (f64::from(value) / white) as f32)
            }
        };
        if let Some(range) = self.range {
            let counts = Clipped::counts(&array, range);
            self.counts.iter_mut().zip(counts).for_each(|(all, these)| *all += these);
        }
        array
    }

    /// What to say of values that the file could not hold.
    pub(super) fn warning(&self) -> Option<String> {
        let advice = if self.format.is_some_and(Format::is_picture) {
            "a larger `white`, `normalise`, or another format keeps them"
        } else {
            "another format keeps them"
        };
        Clipped::shares(self.counts).warning(&self.name, self.range?, advice)
    }

    pub(super) fn describe(&self) -> String {
        let values = match (self.format.is_some_and(Format::is_picture), self.options.raw) {
            (true, false) => ", black is 0 and white is 1",
            _ => "",
        };
        let sample = self.options.sample.map_or_else(String::new, |sample| format!(", {sample}"));
        format!("{}{sample}{values}", self.format.map_or("", Format::name))
    }
}

/// What a type holds, if it is not everything.
fn limits(sample: Sample) -> Option<(f32, f32)> {
    Some(match sample {
        Sample::U8 => (0.0, u8::MAX.into()),
        Sample::I8 => (i8::MIN.into(), i8::MAX.into()),
        Sample::U16 => (0.0, u16::MAX.into()),
        Sample::I16 => (i16::MIN.into(), i16::MAX.into()),
        _ => return None,
    })
}
