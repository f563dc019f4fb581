//! Networks by name, with random weights of a fixed seed, or from a file.
//!
//! A name is what the table of results holds: `drunet`, `unet` or `dncnn` for the published sizes,
//! `drunet:32-64-128-256` for other channels, `drunet:32-64-128-256:2` for other blocks too, `dncnn:64:20` for channels
//! and depth. What is measured is work, which does not depend on the weights; the quality of an image does.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use haloscope_nn::Footprint;
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model, Unet};
use haloscope_nn::weights::{Limits, StateDict};

use crate::error::{Error, Result};

/// The seed of random weights.
const SEED: u64 = 20;

/// A network by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkName {
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
    /// Weights from a file, which say what network they are of.
    File(PathBuf),
}

impl NetworkName {
    /// The network, for images with so many channels and spatial axes.
    pub fn build(&self, channels: usize, axes: usize) -> Result<Model> {
        let model = match self {
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
            Self::File(path) => Model::recognize(&StateDict::open(path, &Limits::default())?)?,
        };
        Ok(model)
    }

    /// Whether its weights are random, so that the images it makes say nothing of its quality: all but those of files.
    #[must_use]
    pub fn has_random_weights(&self) -> bool {
        !matches!(self, Self::File(_))
    }

    /// What the sides of its input are multiples of. Only a file has to be read for it.
    pub fn alignment(&self) -> Result<usize> {
        Ok(match self {
            Self::Drunet { .. } => 8,
            Self::Unet(channels) => 1 << (channels.len() - 1).min(16),
            Self::Dncnn { .. } => 1,
            Self::File(_) => {
                // A file says its channels and axes itself.
                let footprint = Footprint::of(self.build(1, 2)?.network())?;
                footprint.alignment.into_iter().max().unwrap_or(1)
            }
        })
    }
}

impl FromStr for NetworkName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if Path::new(name).extension().is_some() {
            return Ok(Self::File(name.into()));
        }
        let bad = || {
            Error::argument(
                "model",
                format!(
                    "`{name}` is unknown; there are drunet, unet and dncnn, with channels as in \
                     drunet:32-64-128-256, blocks as in drunet:32-64-128-256:2, depth as in dncnn:64:20, and files \
                     with weights"
                ),
            )
        };
        let mut parts = name.split(':');
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
            _ => return Err(bad()),
        };
        if parts.next().is_some() { Err(bad()) } else { Ok(found) }
    }
}

impl fmt::Display for NetworkName {
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
                f.write_str("dncnn")?;
                if *depth != default.depth {
                    return write!(f, ":{channels}:{depth}");
                }
                if *channels == default.channels { Ok(()) } else { write!(f, ":{channels}") }
            }
            Self::File(path) => write!(f, "{}", path.display()),
        }
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
            "weights/drunet.safetensors",
        ] {
            assert_eq!(name.parse::<NetworkName>().expect("a network").to_string(), name);
        }
        assert_eq!(
            "drunet:64-128-256-512:4".parse::<NetworkName>().expect("a network").to_string(),
            "drunet"
        );
    }

    #[test]
    fn only_files_have_weights_of_their_own() {
        let is_random =
            |name: &str| name.parse::<NetworkName>().expect("a name").has_random_weights();
        assert!(is_random("drunet") && is_random("dncnn:64:5") && !is_random("drunet.pth"));
    }

    #[test]
    fn other_names_are_refused_with_what_there_is() {
        for name in ["", "vgg", "drunet:1-2-3", "drunet:a", "dncnn:8-8", "dncnn:8:8:8", "unet:0-1"]
        {
            let error = name.parse::<NetworkName>().expect_err("refused").to_string();
            assert!(error.contains("dncnn:64:20"), "{error}");
        }
    }

    #[test]
    fn a_name_gives_a_network_for_the_channels_and_axes_of_any_problem() {
        let name: NetworkName = "drunet:2-2-2-2:1".parse().expect("a network");
        for (channels, axes) in [(3, 2), (1, 2), (1, 3)] {
            let model = name.build(channels, axes).expect("a model");
            assert_eq!((model.image_channels(), model.network().rank()), (channels, axes));
        }
    }

    #[test]
    fn alignments_are_those_of_the_networks() {
        let fixtures = concat!(env!("CARGO_MANIFEST_DIR"), "/../haloscope-nn/fixtures");
        let file = format!("{fixtures}/drunet_gray.safetensors");
        for (name, expected) in
            [("drunet:2-2-2-2:1", 8), ("unet:2-2-2", 4), ("dncnn:2:3", 1), (&file[..], 8)]
        {
            let name: NetworkName = name.parse().expect("a network");
            let model = name.build(1, 2).expect("a model");
            let real = Footprint::of(model.network()).expect("a footprint").alignment;
            assert_eq!(name.alignment().expect("an alignment"), expected, "{name}");
            assert_eq!(real, [expected; 2], "{name}");
        }
    }
}
