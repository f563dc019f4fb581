//! `haloscope bench batch`.

use anyhow::Result;
use haloscope_nn::models::ModelName;
use haloscope_study::plan::BatchStudy;
use haloscope_study::row::Study;
use haloscope_study::trial::Settings;

use super::run::{self, RunArguments};
use crate::exit::{Code, Preparation};
use crate::onnx::DeviceArguments;
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench batch`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    run: RunArguments,

    /// Networks; sizes are given as in drunet:32-64-128-256:2. By default drunet, or drunet, unet and dncnn with --full
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    model: Vec<ModelName>,

    /// Side of the image; by default 512, or 2048 with --full
    #[arg(long, value_name = "N")]
    size: Option<usize>,

    /// Sides of patches; by default 64, 128 and 256, or 128, 256 and 512 with --full
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    patches: Vec<usize>,

    /// Numbers of patches that are processed at once
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,2,4,8,16")]
    batches: Vec<usize>,

    /// Overlap: pixels that a patch sees beyond its own
    #[arg(long, value_name = "N", default_value = "0")]
    overlap: usize,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    #[command(flatten)]
    device: DeviceArguments,
}

/// Runs the study.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let full = arguments.run.full;
    let patches = match &arguments.patches {
        list if list.is_empty() && full => vec![128, 256, 512],
        list if list.is_empty() => vec![64, 128, 256],
        list => list.clone(),
    };
    let names: &[&str] = if full { &["drunet", "unet", "dncnn"] } else { &["drunet"] };
    let models = match &arguments.model {
        list if list.is_empty() => {
            names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?
        }
        list => list.clone(),
    };
    let settings = Settings { seed: arguments.run.seed, ..Settings::default() };
    let study = BatchStudy {
        models,
        size: arguments.size.unwrap_or(if full { 2048 } else { 512 }),
        patches,
        batches: arguments.batches.clone(),
        overlap: arguments.overlap,
        device: arguments.device.device.unwrap_or_default(),
        threads: threads::or_all_cores(arguments.threads),
        repetitions: arguments.run.repetitions,
        settings: settings.clone(),
    };
    let trials = study.trials().or_misuse()?;
    let launcher = run::launcher("")?;
    let results = run::open(&arguments.run, Study::Batch, &settings)?;
    run::carry_out(&arguments.run, &launcher, &trials, results, |results| {
        run::conclude(&arguments.run, results, Study::Batch)
    })
}
