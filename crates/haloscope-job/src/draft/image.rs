//! Jobs for measured images: their shape, the value of white, and the level of their noise.

use std::path::Path;

use haloscope::array::extremes;
use haloscope::io::{self, Format, ReadOptions, Sample};
use haloscope::noise;
use haloscope::physics::gaussian_width;
use haloscope::{Array, Error, Result};
use haloscope_nn::models::Builtin;
use ndarray::Axis;

use super::{Data, quantile};
use crate::template::{DPIR, Draft, Range, Tuning, short};
use crate::words::count;

/// Frames as the job reads them.
struct Frames {
    /// `[measurements]`.
    section: String,
    /// The first of them.
    first: Array,
    noise: f64,
    range: Range,
    format: Format,
    /// How the first is stored.
    sample: Sample,
}

/// The weight of a network against the data, and that of total variation in parts of the noise: what suits the templates.
const BALANCE: f64 = 0.1;
const WEIGHT: f64 = 0.5;

/// A noise level that a network can be told; less is as good as none.
const LEAST_NOISE: f64 = 0.002;

/// A compression with loss moves values by about this.
const LOSS: f32 = 0.06;

/// More than this the networks of this build are not trained for.
const MOST_NOISE: f64 = 0.25;

pub(super) fn denoise(data: &mut Data) -> Result<Draft> {
    data.single()?;
    let frames = Frames::of(data)?;
    let operators = "# How the image was measured: directly, with noise only.\n[[operators]]\nkind = \"identity\"\n";
    let tuning = Tuning { balance: DPIR, ..frames.tuning(2.0, 0.5 * frames.noise) };
    Ok(frames.draft("A noisy image.", operators.into(), tuning))
}

pub(super) fn inpainting(data: &mut Data) -> Result<Draft> {
    data.single()?;
    let mut frames = Frames::of(data)?;
    let is_lossy = frames.format == Format::Jpeg;
    let (mask, value) = if let Some(mask) = data.present.take() {
        (mask, "no numbers".to_owned())
    } else {
        let (mask, value) = missing(&frames.first, if is_lossy { LOSS } else { 0.0 })?;
        (mask, if is_lossy { format!("about {value}") } else { value.to_string() })
    };
    let part = 1.0 - f64::from(mask.mean().unwrap_or(1.0));
    let file = data.write_beside("mask.png", &mask)?;
    data.note(
        "mask",
        format!("{:.1} % of the pixels are {value}, and count as missing: {file}", 100.0 * part),
    );
    if is_lossy {
        data.note(
            "warning",
            "JPEG smears missing pixels into their neighbours; use PNG, or a mask of your own",
        );
    }
    // Where pixels are missing there is no noise, and beside them there is more than noise.
    frames.noise = noise_of_pairs(&frames.first, &mask).max(LEAST_NOISE);
    data.correct("noise", noise_in_words(frames.noise));
    let operators = format!(
        "# How the image was measured: some pixels are missing. The mask (0 where a pixel is missing, 1 elsewhere) is a guess:\n\
         # it marks the pixels that are {value} as missing. Replace it if you know better.\n\
         [[operators]]\nkind = \"inpainting\"\nmask = '{file}'\n"
    );
    let tuning = frames.tuning(10.0, frames.noise);
    Ok(frames.draft("An image with missing pixels.", operators, tuning))
}

pub(super) fn deblur(data: &mut Data) -> Result<Draft> {
    let frames = Frames::of(data)?;
    let mut operators = String::from(
        "# How the image was measured. The kernels are guesses: Gaussians as wide as the sharpest edges. Measured kernels are\n\
         # better: kernel = \"file\" with the image of a point, or \"motion\", \"shake\", \"uniform\" (see the guide).\n",
    );
    for index in 0..data.paths.len() {
        let frame = data.loaded(&frames.section, index)?;
        if frame.shape() != frames.first.shape() {
            let reason = format!(
                "it has the shape {:?}, and {} has {:?}; frames of one size and kind are expected",
                &frame.shape()[1..],
                data.paths[0].display(),
                &frames.first.shape()[1..]
            );
            return Err(super::unsuitable(&data.paths[index], reason));
        }
        let sigma = gaussian_width(&frame).unwrap_or(1.5).clamp(0.5, 8.0);
        data.note(
            "blur",
            format!("{:.1} pixels in {}, estimated", sigma, data.paths[index].display()),
        );
        operators.extend([format!(
            "[[operators]]\nkind = \"blur\"\nkernel = \"gaussian\"\nsigma = {sigma:.1}                   # estimated, in pixels\n\
             padding = \"reflect\"           # the values beyond the edges; \"valid\" assumes none, and needs [image]\n\n"
        )]);
    }
    let tuning = frames.tuning(5.0, frames.noise);
    Ok(frames.draft(
        &format!("A sharp image from {}.", count(data.paths.len(), "blurred frame")),
        operators,
        tuning,
    ))
}

pub(super) fn super_resolution(data: &mut Data) -> Result<Draft> {
    let frames = Frames::of(data)?;
    let sides = frames.first.ndim() - 2;
    let number = data.paths.len();
    // As many frames as there are first pixels, for some factor.
    let factor = (2..=4_usize).find(|factor| factor.pow(sides as u32) == number);
    let phases = match factor {
        Some(_) => vec!["\"all\"                  # one frame for each first pixel, in the order of rows: a guess".into()],
        None => vec![format!("{:?}              # the first pixel that is kept: a guess", vec![0; sides]); number],
    };
    let size = factor.unwrap_or(2);
    frames.enlarge(data, size);
    let block = vec![size.to_string(); sides].join(" x ");
    let mut operators = format!(
        "# How the image was measured: each pixel of a frame is the mean over {block} pixels of the image. If a lens blurs\n\
         # more than that, use filter = \"gaussian\" with `sigma`, its standard deviation in pixels of the image.\n"
    );
    for phase in phases {
        operators.extend([format!(
            "[[operators]]\nkind = \"downsampling\"\nfactor = {size}                    # a guess\nfilter = \"box\"                # a guess\n\
             phase = {phase}\npadding = \"reflect\"\n\n"
        )]);
    }
    let tuning = frames.tuning(8.0, frames.noise);
    Ok(frames.draft(
        &format!("A large image from {}.", count(number, "small frame")),
        operators,
        tuning,
    ))
}

impl Frames {
    /// The frames of the data, with the axes and the white that suit the first.
    fn of(data: &mut Data) -> Result<Self> {
        let path = &data.paths[0].clone();
        let read = io::read(path, &data.options())?;
        let axes = axes_of(&read);
        let files = data.files()?;
        let section = |white: Option<f64>| {
            let axes = axes.map_or_else(String::new, |(axes, what)| {
                format!("axes = \"{axes}\"       # {what}: a guess from the shape\n")
            });
            let white = white.map_or_else(String::new, |white| {
                format!("white = {:<22}# the value that becomes 1, estimated\n", short(white))
            });
            format!("[measurements]\n{files}{axes}{white}")
        };
        let plain = data.loaded(&section(None), 0)?;
        let (_, high) = extremes(&plain);
        let mut frames = section(None);
        let mut first = plain;
        let mut white = None;
        // Noise takes floats a little above 1.
        let is_float = matches!(read.sample, Sample::F16 | Sample::F32 | Sample::F64);
        let most = if is_float { NOISY_WHITE } else { 1.0 };
        if !(0.2..=most).contains(&high) && high > 0.0 {
            // White is in the units of the file or in those that are read; only one of them brings the image to 0…1.
            let stored = io::read(path, &ReadOptions { raw: true, ..data.options() })?;
            let stored = white_of(stored.sample, &stored.array);
            let as_read = stored * read.scaling.slope + read.scaling.offset;
            for candidate in [as_read, stored, white_of(Sample::F32, &first)] {
                let text = section(Some(candidate));
                let array = data.loaded(&text, 0)?;
                if (0.05..=2.0).contains(&extremes(&array).1) {
                    (frames, first, white) = (text, array, Some(candidate));
                    break;
                }
            }
        }
        let (low, high) = extremes(&first);
        // A little below 0 is noise; much is another zero. Measurements that are no camera's have no white that nothing is
        // brighter than.
        let range = if low < -0.3 * high.max(0.0) || high <= 0.0 {
            Range::Any
        } else if white.is_some() && read.sample.is_float() {
            Range::Positive
        } else {
            Range::Unit
        };
        let level = noise::level(&first)?;
        let noise = match range {
            Range::Unit => level.max(LEAST_NOISE),
            _ => level.max(LEAST_NOISE * f64::from(high - low)),
        };
        let [_, channels, sides @ ..] = first.shape() else {
            return Err(super::unsuitable(path, "it holds no image"));
        };
        data.note("image", format!("{sides:?}, {}", count(*channels, "channel")));
        if let Some(white) = white {
            data.note("white", format!("{}, estimated", short(white)));
        }
        data.note("noise", noise_in_words(noise));
        Ok(Self { section: frames, first, noise, range, format: read.format, sample: read.sample })
    }

    /// Says the size of an image that is so many times as large as its frames.
    fn enlarge(&self, data: &mut Data, factor: usize) {
        let [_, channels, sides @ ..] = self.first.shape() else { return };
        let large: Vec<usize> = sides.iter().map(|side| side * factor).collect();
        let channels = count(*channels, "channel");
        let finding =
            format!("{large:?}, {channels}: {factor} times the frames, which have {sides:?}");
        data.correct("image", finding);
    }

    /// A schedule from some times the noise down to `last`, for images from 0 to 1 or scaled to that.
    fn tuning(&self, times: f64, last: f64) -> Tuning {
        let (low, high) = extremes(&self.first);
        let unit = if self.range == Range::Unit {
            1.0
        } else {
            f64::from(high - low).max(f64::MIN_POSITIVE)
        };
        let noise = self.noise / unit;
        let last = (last / unit).clamp(LEAST_NOISE, MOST_NOISE);
        let first = (times * noise).clamp(0.05, MOST_NOISE).max(last);
        let weight = WEIGHT * self.noise;
        Tuning {
            levels: (first, last),
            noise: Some(self.noise),
            balance: BALANCE,
            weight,
            range: self.range,
        }
    }

    fn draft(self, title: &str, operators: String, tuning: Tuning) -> Draft {
        let (channels, sides) = (self.first.shape()[1], self.first.ndim() - 2);
        let is_picture = sides == 2 && matches!(channels, 1 | 3) && self.range == Range::Unit;
        // A picture has room for 8 bits.
        let is_coarse = self.sample == Sample::U8;
        Draft {
            title: title.into(),
            measurements: self.section,
            operators,
            tuning,
            network: Builtin::for_image(channels, sides),
            ending: match (sides, self.format) {
                (2, _) if is_picture && is_coarse => ".png",
                (_, Format::Fits) => ".fits",
                (2, Format::Tiff | Format::Png | Format::Jpeg) if matches!(channels, 1 | 3) => {
                    ".tif"
                }
                (_, Format::Nifti | Format::NiftiGz) => ".nii.gz",
                (2, _) => ".npy",
                _ => ".nii.gz",
            },
        }
    }
}

fn noise_in_words(noise: f64) -> String {
    format!("a standard deviation of {}, estimated", short(noise))
}

/// What the axes of a file are that does not say so, if they are not what is assumed.
fn axes_of(image: &io::Image) -> Option<(&'static str, &'static str)> {
    let says_nothing = matches!(
        image.format,
        Format::Npy | Format::Npz | Format::Fits | Format::Hdf5 | Format::Zarr
    );
    match image.array.shape() {
        // Three axes are taken for a volume.
        &[1, 1, first, second, last] if says_nothing => match (first, last) {
            (_, 3) if first > 8 && second > 8 => Some(("channel-last", "height, width, colour")),
            (3, _) if second > 8 && last > 8 => Some(("channel-first", "colour, height, width")),
            _ => None,
        },
        _ => None,
    }
}

/// Floats up to this are taken for an image from 0 to 1 with noise.
const NOISY_WHITE: f32 = 1.5;

/// The value that is white: what a camera of some bits gives at most, for integers; else the largest value.
fn white_of(sample: Sample, values: &Array) -> f64 {
    let (_, most) = extremes(values);
    // Nothing is brighter than white, so that nothing is cut off.
    if matches!(sample, Sample::F32 | Sample::F64) {
        return f64::from(most);
    }
    let cameras = [8, 10, 12, 14, 16].map(|bits| f64::from((1_u32 << bits) - 1));
    // A sensor that is nearly dark is one of less bits to us.
    cameras.into_iter().find(|white| *white >= f64::from(most)).unwrap_or(f64::from(most))
}

/// The data without values that are no numbers, and a mask of the pixels that had none; `None` if all are numbers.
pub(super) fn without_gaps(path: &Path) -> Result<Option<(Array, Array)>> {
    let image = io::read(path, &ReadOptions::default())?.array;
    if !image.iter().any(|value| value.is_nan()) {
        return Ok(None);
    }
    let there =
        image.map_axis(Axis(1), |pixel| f32::from(!pixel.iter().any(|value| value.is_nan())));
    let mask = there.insert_axis(Axis(1));
    if mask.sum() == 0.0 || mask.shape()[0] != 1 || image.ndim() != 4 {
        return Err(super::unsuitable(
            path,
            format!(
                "it has the shape {:?} with values that are no numbers; a single image with some values is expected",
                image.shape()
            ),
        ));
    }
    let mut filled = image;
    for (mut channel, there) in filled.axis_iter_mut(Axis(1)).zip(mask.axis_iter(Axis(1)).cycle()) {
        channel.zip_mut_with(&there, |value, there| {
            if *there == 0.0 {
                *value = 0.0;
            }
        });
    }
    Ok(Some((filled, mask)))
}

/// A mask of the pixels that are there, and the value of those that are not, up to a tolerance: the least or the greatest in
/// all channels, whichever more pixels have.
fn missing(image: &Array, tolerance: f32) -> Result<(Array, f32)> {
    let (low, high) = extremes(image);
    let mask_of = |value: f32| {
        let lost = image.map_axis(Axis(1), |pixel| {
            f32::from(pixel.iter().any(|channel| (channel - value).abs() > tolerance))
        });
        lost.insert_axis(Axis(1))
    };
    let (dark, bright) = (mask_of(low), mask_of(high));
    let (mask, value) = if dark.sum() <= bright.sum() { (dark, low) } else { (bright, high) };
    let part = 1.0 - mask.mean().unwrap_or(1.0);
    if !(0.001..1.0).contains(&part) || mask.shape()[0] != 1 || image.ndim() != 4 {
        return Err(Error::argument(
            "missing pixels",
            format!(
                "{:.2} % of the pixels are {value}, the most frequent of the extreme values; a single image in which \
                 missing pixels are black (or white) is expected, or write the job without --from and give `mask`",
                100.0 * part
            ),
        ));
    }
    Ok((mask, value))
}

/// The noise of pixels whose neighbours along a row are there as well, by second differences.
fn noise_of_pairs(image: &Array, mask: &Array) -> f64 {
    let &[_, channels, rows, columns] = image.shape() else { return 0.0 };
    let mut sizes = Vec::new();
    for row in 0..rows {
        for column in 2..columns {
            if (column - 2..=column).all(|column| mask[[0, 0, row, column]] > 0.0) {
                sizes.extend((0..channels).map(|channel| {
                    let at = |column: usize| image[[0, channel, row, column]];
                    (at(column) - 2.0 * at(column - 1) + at(column - 2)).abs()
                }));
            }
        }
    }
    // The second difference of white noise has √6 times its deviation; the median of a normal number is 0.6745 of that.
    // Edges would count in full, so the lower quartile (0.3186) takes the place of the median.
    quantile(sizes.into_iter(), 0.25) / (0.3186 * 6.0_f64.sqrt())
}
