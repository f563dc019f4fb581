//! Models by name, wherever one is named: built in, from a file, or with random weights of a fixed seed.
//!
//! `builtin:color`, `builtin:gray` and `builtin:volume` ship with the build; the path of a file stands for its weights, which tell the
//! architecture. `drunet`, `unet`, `dncnn` and `fdncnn` are networks of the published sizes with random weights, for
//! measuring work, which does not depend on the weights: `drunet:32-64-128-256` has other channels,
//! `drunet:32-64-128-256:2` other blocks too, `dncnn:64:20` channels and depth. Job files write `random:drunet`, so that
//! nobody takes such a network for a trained one.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::{Architecture, Builtin, Dncnn, Drunet, Fdncnn, Model, Unet};
use crate::Footprint;
use crate::error::{Error, Result};
use crate::weights::{Limits, StateDict};

/// The seed of random weights.
const SEED: u64 = 20;

/// How the name of a network without trained weights begins in a job file.
const PREFIX: &str = "random:";

/// A model by name.
///
/// ```
/// use haloscope_nn::models::ModelName;
///
/// let name: ModelName = "drunet:8-16-32-64:1".parse()?;
/// let model = name.open(3, 2)?;
/// assert!(name.has_random_weights() && model.image_channels() == 3);
/// # Ok::<(), haloscope_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    /// A denoiser that ships with the build.
    Builtin(Builtin),
    /// A DRUNet with these channels per scale and blocks per scale.
    Drunet {
        /// Channels at each scale.
        channels: [usize; 4],
        /// Residual blocks at each scale.
        blocks: usize,
    },
    /// A U-Net with these channels per scale.
    Unet(Vec<usize>),
    /// A DnCNN.
    Dncnn {
        /// Channels between convolutions.
        channels: usize,
        /// The number of convolutions.
        depth: usize,
    },
    /// An FDnCNN.
    Fdncnn {
        /// Channels between convolutions.
        channels: usize,
        /// The number of convolutions.
        depth: usize,
    },
    /// Weights from a file, which say what network they are of.
    File(PathBuf),
}

impl ModelName {
    /// The model, for images with so many channels and spatial axes; trained ones have their own.
    pub fn open(&self, channels: usize, axes: usize) -> Result<Model> {
        let model = match self {
            Self::Builtin(builtin) => builtin.model()?,
            Self::Drunet { channels: scales, blocks } => Drunet {
                rank: axes,
                image_channels: channels,
                output_channels: channels,
                channels: *scales,
                blocks: *blocks,
                ..Drunet::default()
            }
            .random(SEED)?,
            Self::Unet(scales) => Unet {
                rank: axes,
                image_channels: channels,
                output_channels: channels,
                channels: scales.clone(),
                ..Unet::default()
            }
            .random(SEED)?,
            Self::Dncnn { channels: width, depth } => Dncnn {
                rank: axes,
                image_channels: channels,
                channels: *width,
                depth: *depth,
                ..Dncnn::default()
            }
            .random(SEED)?,
            Self::Fdncnn { channels: width, depth } => Fdncnn {
                rank: axes,
                image_channels: channels,
                channels: *width,
                depth: *depth,
                ..Fdncnn::default()
            }
            .random(SEED)?,
            Self::File(path) if self.is_onnx() => {
                return Err(Error::Unsupported {
                    file: path.display().to_string(),
                    reason: "ONNX files run on ONNX Runtime, for jobs, denoise, evaluate and plan; weights are expected here".into(),
                });
            }
            Self::File(path) => {
                let state = StateDict::open(path, &Limits::default())?;
                Model::recognize(&state).map_err(|error| Error::Content {
                    file: path.display().to_string(),
                    reason: error.to_string(),
                })?
            }
        };
        Ok(model)
    }

    /// Whether its weights are random, so that the images it makes say nothing of its quality.
    #[must_use]
    pub fn has_random_weights(&self) -> bool {
        !matches!(self, Self::File(_) | Self::Builtin(_))
    }

    /// Whether it is an ONNX file, which holds a whole network for ONNX Runtime.
    #[must_use]
    pub fn is_onnx(&self) -> bool {
        let Self::File(path) = self else { return false };
        path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("onnx"))
    }

    /// The name as job files have it, in which random weights are said to be random.
    #[must_use]
    pub fn in_jobs(&self) -> String {
        let prefix = if self.has_random_weights() { PREFIX } else { "" };
        format!("{prefix}{self}")
    }

    /// The model that a job file names: networks without trained weights are asked for as such.
    pub fn in_job(name: &str) -> Result<Self> {
        let parsed: Self = name.parse()?;
        if parsed.has_random_weights() && !name.starts_with(PREFIX) {
            return Err(Error::Argument {
                what: "model",
                reason: format!(
                    "`{name}` names a network without trained weights; a file with weights, builtin:color, \
                     builtin:gray or builtin:volume is expected, or {PREFIX}{name} for a measurement"
                ),
            });
        }
        Ok(parsed)
    }

    /// What the sides of its input are multiples of. Only a file has to be read for it.
    pub fn alignment(&self) -> Result<usize> {
        Ok(match self {
            Self::Drunet { .. } => 8,
            Self::Unet(channels) => 1 << (channels.len() - 1).min(16),
            Self::Dncnn { .. } | Self::Fdncnn { .. } => 1,
            Self::File(_) | Self::Builtin(_) => {
                // A trained one says its channels and axes itself.
                let footprint = Footprint::of(self.open(1, 2)?.network())?;
                footprint.alignment.into_iter().max().unwrap_or(1)
            }
        })
    }
}

impl FromStr for ModelName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(builtin) = Builtin::named(name) {
            return builtin.map(Self::Builtin);
        }
        let path = Path::new(name);
        if path.extension().is_some() || path.is_file() {
            return Ok(Self::File(name.into()));
        }
        let bad = || Error::Argument {
            what: "model",
            reason: format!(
                "there is no file `{name}`, and no network of that name; there are files with weights, builtin:color, \
                 builtin:gray, builtin:volume, and, with random weights for measurements, drunet, unet, dncnn and fdncnn with channels \
                 as in drunet:32-64-128-256, blocks as in drunet:32-64-128-256:2, depth as in dncnn:64:20"
            ),
        };
        let mut parts = name.strip_prefix(PREFIX).unwrap_or(name).split(':');
        let kind = parts.next().unwrap_or_default();
        let mut numbers = || -> Result<Option<Vec<usize>>> {
            let Some(part) = parts.next() else { return Ok(None) };
            let list: Option<Vec<usize>> = part
                .split('-')
                .map(|number| number.parse().ok().filter(|number| *number > 0))
                .collect();
            list.map(Some).ok_or_else(bad)
        };
        let one = |list: Option<Vec<usize>>, default: usize| match list.as_deref() {
            None => Ok(default),
            Some([number]) => Ok(*number),
            Some(_) => Err(bad()),
        };
        let found = match kind {
            "drunet" => {
                let default = Drunet::default();
                let channels = match numbers()? {
                    None => default.channels,
                    Some(list) => list.try_into().map_err(|_| bad())?,
                };
                Self::Drunet { channels, blocks: one(numbers()?, default.blocks)? }
            }
            "unet" => Self::Unet(numbers()?.unwrap_or_else(|| Unet::default().channels)),
            "dncnn" => {
                let default = Dncnn::default();
                let channels = one(numbers()?, default.channels)?;
                Self::Dncnn { channels, depth: one(numbers()?, default.depth)? }
            }
            "fdncnn" => {
                let default = Fdncnn::default();
                let channels = one(numbers()?, default.channels)?;
                Self::Fdncnn { channels, depth: one(numbers()?, default.depth)? }
            }
            _ => return Err(bad()),
        };
        if parts.next().is_some() { Err(bad()) } else { Ok(found) }
    }
}

impl fmt::Display for ModelName {
    /// The shortest name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let join = |channels: &[usize]| {
            channels.iter().map(ToString::to_string).collect::<Vec<_>>().join("-")
        };
        match self {
            Self::Drunet { channels, blocks } => {
                let default = Drunet::default();
                f.write_str("drunet")?;
                if *blocks != default.blocks {
                    return write!(f, ":{}:{blocks}", join(channels));
                }
                if *channels == default.channels {
                    Ok(())
                } else {
                    write!(f, ":{}", join(channels))
                }
            }
            Self::Unet(channels) if *channels == Unet::default().channels => f.write_str("unet"),
            Self::Unet(channels) => write!(f, "unet:{}", join(channels)),
            Self::Dncnn { channels, depth } => {
                let default = Dncnn::default();
                chain(f, "dncnn", [*channels, *depth], [default.channels, default.depth])
            }
            Self::Fdncnn { channels, depth } => {
                let default = Fdncnn::default();
                chain(f, "fdncnn", [*channels, *depth], [default.channels, default.depth])
            }
            Self::Builtin(builtin) => write!(f, "builtin:{}", builtin.name()),
            Self::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// The name of a chain of convolutions, without what is as usual.
fn chain(
    f: &mut fmt::Formatter<'_>,
    kind: &str,
    [channels, depth]: [usize; 2],
    usual: [usize; 2],
) -> fmt::Result {
    match usual {
        [_, other] if other != depth => write!(f, "{kind}:{channels}:{depth}"),
        [other, _] if other != channels => write!(f, "{kind}:{channels}"),
        _ => f.write_str(kind),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for name in [
            "drunet",
            "drunet:32-64-128-256",
            "drunet:64-128-256-512:2",
            "unet",
            "unet:8-16",
            "dncnn",
            "dncnn:32",
            "dncnn:64:5",
            "fdncnn:64:5",
            "builtin:color",
            "builtin:volume",
            "weights/drunet.safetensors",
        ] {
            assert_eq!(name.parse::<ModelName>().expect("a network").to_string(), name);
        }
        assert_eq!(
            "drunet:64-128-256-512:4".parse::<ModelName>().expect("a network").to_string(),
            "drunet"
        );
    }

    #[test]
    fn only_files_have_weights_of_their_own() {
        let is_random =
            |name: &str| name.parse::<ModelName>().expect("a name").has_random_weights();
        assert!(is_random("drunet") && is_random("dncnn:64:5") && is_random("random:unet"));
        assert!(!is_random("drunet.pth") && !is_random("builtin:gray"));
    }

    #[test]
    fn job_files_say_that_weights_are_random() {
        let error = ModelName::in_job("drunet").expect_err("refused").to_string();
        assert!(error.contains("random:drunet"), "{error}");
        for name in ["random:drunet:8-8-8-8:1", "builtin:color", "a/b.pth"] {
            assert_eq!(ModelName::in_job(name).expect("a model").in_jobs(), name);
        }
    }

    #[test]
    fn other_names_are_refused_with_what_there_is() {
        for name in ["", "vgg", "drunet:1-2-3", "drunet:a", "dncnn:8-8", "dncnn:8:8:8", "unet:0-1"]
        {
            let error = name.parse::<ModelName>().expect_err("refused").to_string();
            assert!(error.contains("dncnn:64:20"), "{error}");
        }
    }

    #[test]
    fn a_name_gives_a_network_for_the_channels_and_axes_of_any_problem() {
        let name: ModelName = "drunet:2-2-2-2:1".parse().expect("a network");
        for (channels, axes) in [(3, 2), (1, 2), (1, 3)] {
            let model = name.open(channels, axes).expect("a model");
            assert_eq!((model.image_channels(), model.network().rank()), (channels, axes));
        }
    }

    #[test]
    fn alignments_are_those_of_the_networks() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures");
        let file = format!("{fixtures}/drunet_gray.safetensors");
        for (name, expected) in
            [("drunet:2-2-2-2:1", 8), ("unet:2-2-2", 4), ("dncnn:2:3", 1), (&file[..], 8)]
        {
            let name: ModelName = name.parse().expect("a network");
            let model = name.open(1, 2).expect("a model");
            let real = Footprint::of(model.network()).expect("a footprint").alignment;
            assert_eq!(name.alignment().expect("an alignment"), expected, "{name}");
            assert_eq!(real, [expected; 2], "{name}");
        }
    }
}
