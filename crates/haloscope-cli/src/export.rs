//! `haloscope export`: a network with its weights as an ONNX file, for other runtimes.

use std::path::PathBuf;

use anyhow::{Context, Result};
use haloscope::io::write_atomically;
use haloscope_nn::models::{ModelName, Sigma};
use haloscope_onnx::{Size, encode};

use crate::exit::Preparation;
use crate::plan::{Sides, parse_sides};

/// The options of `haloscope export`.
#[derive(clap::Args)]
#[command(group(clap::ArgGroup::new("images").required(true).args(["size", "dynamic"])))]
pub(crate) struct Arguments {
    /// Network: builtin:color, builtin:gray, builtin:volume, or weights as .safetensors or as .pth/.pt from torch.save
    model: ModelName,

    /// File for the network
    #[arg(long, short)]
    out: PathBuf,

    /// Size of the images: a file for one size suits runtimes that compile for it
    #[arg(long, value_name = "[Dx]HxW", value_parser = parse_sides)]
    size: Option<Sides>,

    /// Allow images of any size, and any number of them at a time
    #[arg(long)]
    dynamic: bool,

    /// Images at a time, with --size
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "dynamic")]
    batch: usize,

    /// Channels of the images, for a network without trained weights (drunet, dncnn, fdncnn, unet)
    #[arg(long, value_name = "N", default_value_t = 3)]
    channels: usize,
}

/// Opens the network and writes it.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let size = match &arguments.size {
        Some(Sides(sides)) => Size::Fixed { batch: arguments.batch, sides: sides.clone() },
        None => Size::Dynamic,
    };
    let axes = arguments.size.as_ref().map_or(2, |Sides(sides)| sides.len());
    let model = arguments.model.open(arguments.channels, axes).or_misuse()?;
    let file = encode(&model, &size).or_misuse()?;
    let path = arguments.out.display();
    write_atomically(&arguments.out, |to| to.write_all(&file))
        .with_context(|| format!("cannot write {path}"))?;
    let network = model.network();
    let inputs = match model.sigma() {
        Sigma::Map => "image and sigma (the noise level; white is 1)",
        Sigma::Ignored => "image",
    };
    crate::print(&format!(
        "{path}: {} with {} weights, {:.1} MB\ninputs: {inputs}; output: denoised\n",
        network.name(),
        network.parameters(),
        file.len() as f64 / 1e6
    ))
}
