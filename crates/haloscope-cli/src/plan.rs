//! `haloscope plan`: what a reconstruction will take on each rank, and how its image is best cut. Nothing is run.
//!
//! The reconstruction is that of a job file, or is described by options.

use std::path::PathBuf;

use anyhow::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope::forecast::Method;
use haloscope::tiling::{Overlap, Patch, Shards, Strategy, Tiling};
use haloscope_job::{Advice, Job, Machine, OpenedModel, Outline};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;

use crate::denoise::parse_budget;
use crate::exit::Preparation;
use crate::onnx::OnnxArguments;

/// The options of `haloscope plan`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Job file to plan for; without one, --size and other options describe the image, operators, network, tiles and
    /// method
    #[arg(conflicts_with_all = [
        "channels", "operators", "measurement", "model", "onnx", "device", "solver", "inner_iterations", "patch", "overlap", "strategy",
        "shards"
    ])]
    job: Option<PathBuf>,

    /// Sides of the image or volume, in the order of job files: 1024x1024, or 400x512x512 with the depth first
    #[arg(
        long,
        value_name = "[Dx]HxW",
        value_parser = parse_sides,
        required = false,
        required_unless_present = "job",
        conflicts_with = "job",
        default_value_if("job", clap::builder::ArgPredicate::IsPresent, "1x1"),
        hide_default_value = true
    )]
    size: Sides,

    /// Number of channels of the image
    #[arg(long, value_name = "N", default_value = "3", value_parser = parse_count)]
    channels: usize,

    /// Number of operators, each with its own measurements
    #[arg(long, value_name = "K", default_value = "1", value_parser = parse_count)]
    operators: usize,

    /// Sides of each operator's measurements, in the same order; by default those of the image
    #[arg(long, value_name = "[Dx]HxW", value_parser = parse_sides)]
    measurement: Option<Sides>,

    /// Denoiser: a file with weights, an ONNX file, or a network by name: drunet, dncnn, fdncnn or unet. Without one, the
    /// prior is total variation
    #[arg(long, short)]
    model: Option<String>,

    #[command(flatten)]
    onnx: OnnxArguments,

    /// Method, as in job files; by default pgd with a network, else primal-dual
    #[arg(long, value_parser = parse::<Method>)]
    solver: Option<Method>,

    /// Maximum number of iterations for a prox of the data term, for hqs, admm, drs and red-fixed-point
    #[arg(long, value_name = "N", default_value = "50", value_parser = parse_count)]
    inner_iterations: usize,

    /// Side of a tile without its overlap, or `standard` (the default of job files: up to 256, or 64 in volumes), or `auto`
    /// (the least work for the busiest rank; the bits of the result then depend on the number of ranks)
    #[arg(long, value_name = "N", default_value = "standard", value_parser = parse_patch)]
    patch: Patch,

    /// Overlap: pixels that a tile sees beyond its own on either side; by default 32, or 16 in volumes
    #[arg(long, value_name = "N")]
    overlap: Option<usize>,

    /// How the image is cut: exact (no tiles, but a part of the image for each rank), or how tiles are joined: overlap, blend
    /// or basic. standard is exact for networks and images up to a size, unless tiles are described, and else overlap
    #[arg(long, default_value = "standard", value_parser = parse::<Strategy>)]
    strategy: Strategy,

    /// Number of parts along each side for an exact network, e.g. 2x2, as many in all as ranks; by default those that share
    /// the work best
    #[arg(long, value_name = "[Dx]HxW", value_parser = parse_sides, conflicts_with_all = ["patch", "overlap"])]
    shards: Option<Sides>,

    /// Number of ranks
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_count)]
    ranks: usize,

    /// Number of threads of each rank; by default the ranks share the cores of this machine
    #[arg(long, value_name = "N", value_parser = parse_count)]
    threads: Option<usize>,

    /// Memory limit of each rank, e.g. 16GB; without it, all ranks together must fit on this machine
    #[arg(long, value_name = "BYTES", value_parser = parse_budget)]
    memory_budget: Option<usize>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// Prints the plan; it is a failure if nothing fits.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let advice = arguments.advice().or_misuse()?;
    crate::print(&if arguments.json {
        serde_json::to_string_pretty(&advice)? + "\n"
    } else {
        advice.to_string()
    })?;
    match advice.shortage() {
        Some(shortage) => Err(anyhow::anyhow!(shortage)),
        None => Ok(()),
    }
}

impl Arguments {
    fn advice(&self) -> Result<Advice> {
        if let Some(path) = &self.job {
            return Ok(Job::from_file(path)?.advise(
                self.ranks,
                self.threads,
                self.memory_budget,
            )?);
        }
        let denoiser = self.denoiser()?;
        Ok(self.outline(denoiser.as_ref()).advise()?)
    }

    /// The network that is named.
    fn denoiser(&self) -> Result<Option<NetworkDenoiser>> {
        let Some(name) = &self.model else { return Ok(None) };
        if let Some(method) = self.solver.filter(|method| !method.takes_network()) {
            anyhow::bail!("{method} takes no network: leave --model out, or choose another solver");
        }
        let name = name.parse::<ModelName>()?;
        let (axes, file) = (self.size.0.len(), self.onnx.options()?);
        let opened = OpenedModel::open(&name, self.channels, axes, &file)?;
        crate::onnx::tell_device(opened.note.as_deref());
        let shared = || Machine::detect().threads_per_rank(self.ranks);
        let threads = self.threads.unwrap_or_else(shared);
        let options = EngineOptions { threads, ..EngineOptions::default() };
        Ok(Some(opened.into_denoiser(options)?))
    }

    fn outline<'a>(&self, denoiser: Option<&'a NetworkDenoiser>) -> Outline<'a> {
        let measurement = self.measurement.as_ref().unwrap_or(&self.size);
        let shape = |sides: &Sides| [&[self.channels], &sides.0[..]].concat();
        Outline {
            image: [&[1], &shape(&self.size)[..]].concat(),
            measurements: vec![shape(measurement); self.operators],
            denoiser,
            method: self.solver,
            inner_iterations: self.inner_iterations,
            tiling: Tiling {
                patch: self.patch.clone(),
                overlap: self.overlap.map_or(Overlap::Standard, Overlap::from),
                shards: match &self.shards {
                    Some(grid) => Shards::Grid(grid.0.clone()),
                    None => Shards::Auto,
                },
                ..Tiling::new(self.strategy)
            },
            ranks: self.ranks,
            threads: self.threads,
            memory_budget: self.memory_budget,
        }
    }
}

/// Two or three sides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sides(pub(crate) Vec<usize>);

pub(crate) fn parse_sides(text: &str) -> std::result::Result<Sides, String> {
    let sides: Option<Vec<usize>> = text.split(['x', '×']).map(|side| side.parse().ok()).collect();
    // The products of sides must not overflow, nor be more than any machine has.
    let is_possible = |sides: &Vec<usize>| {
        let pixels = sides.iter().map(|side| *side as f64).product::<f64>();
        matches!(sides.len(), 2 | 3) && (1.0..1e13).contains(&pixels)
    };
    let sides = sides.filter(is_possible);
    sides.map(Sides).ok_or_else(|| {
        "two or three sides are needed: height and width as in 1024x1024, or depth, height and width".into()
    })
}

fn parse_patch(text: &str) -> std::result::Result<Patch, String> {
    match text.parse() {
        _ if text == "standard" => Ok(Patch::Standard),
        _ if text == "auto" => Ok(Patch::Auto),
        Ok(length @ 1..=1_000_000_usize) => Ok(Patch::from(length)),
        _ => Err("a number of pixels, `standard` or `auto` is needed".into()),
    }
}

fn parse_count(text: &str) -> std::result::Result<usize, String> {
    match text.parse() {
        Ok(count @ 1..=65_536) => Ok(count),
        _ => Err("a number from 1 to 65536 is needed".into()),
    }
}

fn parse<T: std::str::FromStr<Err = haloscope::Error>>(
    text: &str,
) -> std::result::Result<T, String> {
    text.parse().map_err(|error: haloscope::Error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_two_or_three_sides() {
        assert_eq!(parse_sides("640x480"), Ok(Sides(vec![640, 480])));
        assert_eq!(parse_sides("10x20x30"), Ok(Sides(vec![10, 20, 30])));
        for bad in ["", "640", "0x10", "axb", "1x2x3x4", "999999999x999999999"] {
            assert!(parse_sides(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn patches_are_numbers_standard_or_automatic() {
        assert_eq!(parse_patch("standard"), Ok(Patch::Standard));
        assert_eq!(parse_patch("auto"), Ok(Patch::Auto));
        assert_eq!(parse_patch("128"), Ok(128.into()));
        assert!(parse_patch("0").is_err() && parse_patch("big").is_err());
    }
}
