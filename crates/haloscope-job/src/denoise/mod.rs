//! Denoising of files: an image, a stack or a volume through one network.
//!
//! Values are brought to 0…1, where networks are trained, and written back in the units of the input; [`Scale`](crate::scale::Scale)
//! has the rules. A network for pictures takes a volume slice by slice, or the slices along all three axes. An image that is too large for memory is read, denoised and
//! written by bands of rows, with the same result.

mod denoised;
mod picture;
mod pieces;
mod plan;
mod scratch;
mod stream;
mod target;

use std::ops::Range;
use std::path::PathBuf;

use haloscope::denoise::Axes as Slices;
use haloscope::io::Axes;
use haloscope::{Array, Error, Result, noise};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Builtin, Model, ModelName, Sigma};

use crate::machine::Machine;
use crate::models::{ModelOptions, OpenedModel};
use crate::observer::Observer;
use crate::sections::files::check_name;
pub use denoised::DenoisedFile;
use picture::Picture;
use pieces::Fit;
pub use plan::DenoisingPlan;
use scratch::OpenScratch;
use stream::Stream;

/// A file to denoise, as `haloscope denoise` does.
///
/// [`check`](Self::check) finds what is wrong with it and plans the network, and [`DenoisingPlan::run`] runs it; [`run`](Self::run)
/// does both.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use haloscope::{Array, io};
/// use haloscope_job::{Deviation, FileDenoising};
///
/// # let folder = tempfile::tempdir()?;
/// # let (noisy, clean) = (folder.path().join("noisy.npy"), folder.path().join("clean.npy"));
/// io::write(&noisy, &Array::from_elem(vec![1, 1, 16, 24], 0.5), &Default::default())?;
/// let denoising = FileDenoising {
///     model: Some("dncnn:4:3".parse()?), // a network with random weights; by default a built-in one
///     ..FileDenoising::new(&noisy, &clean, Deviation::OfWhite(0.1))
/// };
/// let done = denoising.run(&mut ())?;
/// assert_eq!((done.shape, done.white), (vec![1, 1, 16, 24], 1.0));
/// assert!(clean.exists());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct FileDenoising {
    /// The noisy image, stack or volume.
    pub input: PathBuf,
    /// The file for the result, whose ending selects the format.
    pub output: PathBuf,
    /// How much noise there is.
    pub deviation: Deviation,
    /// The network; by default the built-in one for gray or colour.
    pub model: Option<ModelName>,
    /// What is said of the network besides its name.
    pub model_options: ModelOptions,
    /// The value that is 1 to the network.
    pub white: WhitePoint,
    /// The name of the array in a file that has several.
    pub entry: Option<String>,
    /// The meaning of the axes of formats that do not say it. Without it, arrays that may be colour pictures or volumes are refused.
    pub axes: Option<Axes>,
    /// The slices of a volume that a network of pictures sees.
    pub slices: Slices,
    /// Threads, accuracy, and the bytes that weights and values may take; by default what is free.
    pub engine: EngineOptions,
    /// A folder for the rows that skip connections read much later, where the network runs in waves: these are most of what waves
    /// of a wide image hold.
    pub scratch: Option<PathBuf>,
}

/// The standard deviation of noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Deviation {
    /// On a scale where white is 1.
    OfWhite(f32),
    /// In the units of the data: counts, Hounsfield units.
    InUnits(f64),
    /// As it is estimated from the rows in the middle of the image, up to 16 million values.
    Estimated,
}

/// Values that noise is estimated from, at most: the same of an image in memory and of one that is read by bands.
const SAMPLE: usize = 1 << 24;

/// The rows of an image (batch, channel, row, …) from which noise is estimated.
fn rows_for_noise(shape: &[usize]) -> Range<usize> {
    let row = shape.iter().product::<usize>() / shape[2].max(1);
    let count = (SAMPLE / row.max(1)).clamp(1, shape[2].max(1));
    let start = (shape[2] - count.min(shape[2])) / 2;
    start..(start + count).min(shape[2])
}

/// What a network may take of a budget beside a scratch folder: the rest is for pages of its files.
fn for_network(budget: usize) -> usize {
    budget / 4 * 3
}

/// Which value is 1 to a network.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum WhitePoint {
    /// White of pictures, the full scale of integers with a usual number of bits, 1 for floats from 0 to 1, else the value that
    /// 99.9 % are below.
    #[default]
    Automatic,
    /// This value, in the units of the data.
    Given(f64),
    /// Nearly all values (99.8 %) are from 0 to 1.
    Normalised,
}

impl FileDenoising {
    /// With the built-in network, and all else chosen by what the file holds.
    pub fn new(
        input: impl Into<PathBuf>,
        output: impl Into<PathBuf>,
        deviation: Deviation,
    ) -> Self {
        Self {
            input: input.into(),
            output: output.into(),
            deviation,
            model: None,
            model_options: ModelOptions::default(),
            white: WhitePoint::default(),
            entry: None,
            axes: None,
            slices: Slices::default(),
            engine: EngineOptions::default(),
            scratch: None,
        }
    }

    /// Reads what is needed to plan, and plans. Nothing is written; errors are all of what is asked for.
    pub fn check(&self) -> Result<DenoisingPlan> {
        self.check_output()?;
        self.check_numbers()?;
        let Some(folder) = &self.scratch else { return self.plan() };
        let scratch = OpenScratch::new(folder, self.budget(0))?;
        let memory_budget = self.engine.memory_budget.map(for_network);
        let engine = EngineOptions { memory_budget, skips_apart: true, ..self.engine.clone() };
        let plan = Self { engine, ..self.clone() }.plan().map_err(|error| self.of_budget(error))?;
        scratch.keep(plan)
    }

    /// Says of a network that does not keep its part of a budget which part that is.
    fn of_budget(&self, error: Error) -> Error {
        match (&error, self.engine.memory_budget) {
            (
                Error::Network(haloscope_nn::Error::Argument { what: "memory budget", reason }),
                Some(budget),
            ) => Error::argument(
                "memory budget",
                format!(
                    "{reason}; the network gets three quarters of the {budget} bytes that are given, because the rest is for pages of \
                     the scratch files"
                ),
            ),
            _ => error,
        }
    }

    fn plan(&self) -> Result<DenoisingPlan> {
        match self.needs_stream()? {
            Some((stream, whole_bytes)) => DenoisingPlan::by_bands(self, stream, whole_bytes),
            None => DenoisingPlan::in_memory(self),
        }
    }

    /// Checks, denoises and writes; `observer` is told of notes, warnings and work done.
    pub fn run(&self, observer: &mut dyn Observer) -> crate::Result<DenoisedFile> {
        let plan = self.check().map_err(crate::Error::Refused)?;
        plan.run(observer).map_err(crate::Error::Failed)
    }

    /// Refuses numbers that are none, or that no data have.
    fn check_numbers(&self) -> Result<()> {
        let (name, value, is_right, accepted) = match (self.white, self.deviation) {
            (WhitePoint::Given(white), _) if !(white.is_finite() && white > 0.0) => {
                ("white", white, false, "a number above 0")
            }
            (_, Deviation::Estimated) => return Ok(()),
            (_, Deviation::OfWhite(sigma)) => {
                let is_right = (0.0..=1.0).contains(&sigma);
                ("sigma", f64::from(sigma), is_right, "a number from 0 to 1")
            }
            (_, Deviation::InUnits(noise)) => {
                ("noise", noise, noise.is_finite() && noise >= 0.0, "a number of at least 0")
            }
        };
        let reason = || format!("{value} is given; {accepted} is needed");
        if is_right { Ok(()) } else { Err(Error::argument(name, reason())) }
    }

    /// Refuses names for the result that cannot be written, or that are the input's.
    fn check_output(&self) -> Result<()> {
        let output = &self.output;
        check_name(output).map_err(|reason| Error::argument("output", reason))?;
        match (self.input.canonicalize(), output.canonicalize()) {
            (Ok(one), Ok(other)) if one == other => Err(Error::Content {
                file: output.display().to_string(),
                reason:
                    "the result would be written over the input; choose another name for `output`"
                        .into(),
            }),
            _ => Ok(()),
        }
    }

    /// The files, if they can be read and written by bands and the whole image is too large for memory; and what it would take.
    fn needs_stream(&self) -> Result<Option<(Stream, usize)>> {
        if self.slices != Slices::Axial {
            return Ok(None);
        }
        let Some(stream) = Stream::open(self) else { return Ok(None) };
        let shape = stream.shape();
        let OpenedModel { model, engine, .. } = self.open_model(shape[1])?;
        if engine.name() != "cpu" {
            // Other engines know no waves.
            return Ok(None);
        }
        let input = Fit::new(shape, &model)?.input_shape(&shape[2..])?;
        let whole = engine.bytes(model.network(), &input, &self.engine)?;
        // The image, its result and a copy of each.
        let arrays = 4 * size_of::<f32>() * shape.iter().product::<usize>();
        let is_too_large = self.budget(arrays).is_some_and(|budget| whole > budget);
        Ok(is_too_large.then_some((stream, whole)))
    }

    /// What the network may take: what is asked for, or else nine tenths of what is free beside so many bytes.
    fn budget(&self, others: usize) -> Option<usize> {
        self.engine.memory_budget.or_else(|| {
            let free = usize::try_from(Machine::detect().memory_available_bytes?).ok()?;
            let budget = (free / 10 * 9).saturating_sub(others);
            Some(if self.engine.skips_apart { for_network(budget) } else { budget })
        })
    }

    fn open_model(&self, channels: usize) -> Result<OpenedModel> {
        let built_in = || ModelName::Builtin(Builtin::for_image(channels, 2));
        let name = self.model.clone().unwrap_or_else(built_in);
        OpenedModel::open(&name, 1, 2, &self.model_options)
    }

    /// The standard deviation of the noise from 0 to 1, of an image of this shape of which `rows` gives some. A network that
    /// takes no level has none to refuse.
    fn sigma(
        &self,
        picture: &Picture,
        shape: &[usize],
        model: &Model,
        rows: impl FnOnce(Range<usize>) -> Result<Array>,
    ) -> Result<f32> {
        match self.deviation {
            Deviation::Estimated => {
                let found = noise::level(&rows(rows_for_noise(shape))?)?;
                let sigma = (found / picture.scale.range()) as f32;
                if sigma > 0.0 && sigma <= 1.0 || model.sigma() == Sigma::Ignored {
                    return Ok(sigma);
                }
                let reason = format!(
                    "{found} was estimated, which is no noise that a network removes; give `sigma` or `noise`"
                );
                Err(Error::argument("noise", reason))
            }
            Deviation::OfWhite(sigma) => Ok(sigma),
            Deviation::InUnits(noise) => {
                let range = picture.scale.range();
                if noise > range {
                    let reason = format!(
                        "{noise} is more than the {range} between black and white of the data; `white` changes them"
                    );
                    return Err(Error::argument("noise", reason));
                }
                Ok((noise / range) as f32)
            }
        }
    }
}
