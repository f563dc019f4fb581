//! ONNX files of others as denoisers.
//!
//! The header tells how the network is used; what it does not tell, such as the alignment of sides, is found by running the
//! network on small images. A file that is no denoiser is refused with the reason.

mod find;
mod header;
mod probe;
mod protobuf;

use std::path::{Path, PathBuf};

use haloscope_nn::models::{Model, Sigma};
use haloscope_nn::{Error, Foreign, ForeignNetwork, NetworkBuilder, Op, Result, Shape};

use crate::options::FileOptions;
use crate::runtime::{ENGINE, Interface, LevelInput, Library, Windows};
use find::Found;
use header::Header;

/// Protocol buffers have no more bytes than this.
const LARGEST: u64 = i32::MAX as u64;

/// A denoiser of an ONNX file, for [`OnnxRuntime`](crate::OnnxRuntime).
///
/// ```no_run
/// use haloscope_onnx::{FileOptions, open};
///
/// let model = open("scunet.onnx".as_ref(), &FileOptions::default())?;
/// println!("{} channels", model.image_channels());
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
///
/// # Errors
/// If the file cannot be read, is damaged, is no denoiser, or does not say how it is used; or if there is no library of
/// ONNX Runtime.
pub fn open(path: &Path, options: &FileOptions) -> Result<Model> {
    let file = || path.display().to_string();
    let read = |error: std::io::Error| Error::Read { file: file(), reason: error.to_string() };
    let length = std::fs::metadata(path).map_err(read)?.len();
    if length > LARGEST {
        let reason = format!("{length} bytes; ONNX files have at most {LARGEST}");
        return Err(Error::Limit { file: file(), reason });
    }
    let bytes = std::fs::read(path).map_err(read)?;
    let header = Header::read(&bytes).map_err(|reason| Error::Content { file: file(), reason })?;
    let refuse = |reason| Error::Unsupported { file: file(), reason };
    let options = &from_notes(options, &header).map_err(refuse)?;
    let found = find::find(&header, options).map_err(refuse)?;
    // Nothing below can be said of the file without the library.
    Library::load()?;
    let probed = probe::probe(path, &found, options.alignment).map_err(refuse)?;
    let value_bytes = probe::value_bytes(&bytes, &header, &found, &probed.sides);
    let levels = header.notes.iter().find(|(key, _)| key == "haloscope.levels");
    let levels = levels.and_then(|(_, text)| {
        let (low, high) = text.split_once(' ')?;
        Some(low.parse().ok()?..=high.parse().ok()?)
    });

    let name = path.file_stem().map_or_else(|| "network".into(), |stem| stem.display().to_string());
    let rank = found.rank;
    let sigma = if found.interface.level.has_channel() { Sigma::Map } else { Sigma::Ignored };
    let channels = found.interface.channels + usize::from(sigma == Sigma::Map);
    let network = OnnxFile {
        path: path.canonicalize().unwrap_or_else(|_| path.to_path_buf()),
        found,
        alignment: probed.alignment,
        parameters: header.parameters,
        value_bytes,
    };
    let mut builder = NetworkBuilder::new(name, rank)?;
    let input = builder.push("input", Op::Input { channels }, &[])?;
    let output = builder.push("file", Op::Foreign(Foreign::new(network)), &[input])?;
    let model = Model::new(builder.finish(output)?, sigma);
    Ok(match levels {
        Some(levels) => model.with_levels(levels),
        None => model,
    })
}

/// The options, with what notes in the file add to them.
fn from_notes(options: &FileOptions, header: &Header) -> std::result::Result<FileOptions, String> {
    let mut all = FileOptions::default();
    for key in FileOptions::KEYS {
        let note =
            header.notes.iter().find(|(name, _)| name.strip_prefix("haloscope.") == Some(key));
        if let Some((_, value)) = note {
            all.set(key, value)?;
        }
    }
    let given = options.clone();
    Ok(FileOptions {
        image: given.image.or(all.image),
        level: given.level.or(all.level),
        output: given.output.or(all.output),
        channels_last: given.channels_last.or(all.channels_last),
        level_kind: given.level_kind.or(all.level_kind),
        alignment: given.alignment.or(all.alignment),
        channels: given.channels.or(all.channels),
        white: given.white.or(all.white),
    })
}

/// The network of a file.
#[derive(Clone, Debug)]
pub(crate) struct OnnxFile {
    path: PathBuf,
    found: Found,
    alignment: usize,
    parameters: usize,
    /// Bytes of values at most for each pixel.
    value_bytes: f64,
}

impl OnnxFile {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn interface(&self) -> &Interface {
        &self.found.interface
    }

    /// The windows in which it takes images of these sides.
    pub(crate) fn windows(&self, sides: &[usize]) -> Windows {
        if let Some(fixed) = &self.found.fixed {
            return Windows::new(sides, fixed);
        }
        let aligned: Vec<usize> =
            sides.iter().map(|side| side.next_multiple_of(self.alignment)).collect();
        Windows::new(sides, &aligned)
    }

    /// The values of the sizes that the file knows by name, as far as each has one value.
    pub(crate) fn named_sizes(&self, batch: usize, sides: &[usize]) -> Vec<(String, usize)> {
        let value = |at: usize| if at == 0 { batch } else { sides[at - 1] };
        let names = &self.found.names;
        let is_one = |(name, at): &&(String, usize)| {
            names.iter().all(|(other, place)| other != name || value(*place) == value(*at))
        };
        let mut sizes: Vec<(String, usize)> =
            names.iter().filter(is_one).map(|(name, at)| (name.clone(), value(*at))).collect();
        sizes.dedup();
        sizes
    }
}

impl ForeignNetwork for OnnxFile {
    fn engine(&self) -> &'static str {
        ENGINE
    }

    fn input_channels(&self) -> usize {
        self.found.interface.channels + usize::from(self.found.interface.level != LevelInput::None)
    }

    fn output_channels(&self) -> usize {
        self.found.interface.channels
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn fixed_sides(&self) -> Option<&[usize]> {
        self.found.fixed.as_deref()
    }

    fn parameters(&self) -> usize {
        self.parameters
    }

    /// As if every weight were used once for each pixel.
    fn multiply_adds(&self, input: &Shape) -> u64 {
        let windows = self.windows(input.spatial());
        let pixels = (input.batch() * windows.count() * windows.pixels()) as u64;
        pixels.saturating_mul(self.parameters as u64)
    }

    fn value_bytes(&self, input: &Shape) -> u64 {
        let pixels = input.batch() * self.windows(input.spatial()).pixels();
        (self.value_bytes * pixels as f64) as u64
    }
}
