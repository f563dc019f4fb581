//! `haloscope bench memory`.

use anyhow::Result;
use haloscope_nn::models::ModelName;
use haloscope_study::plan::{Budget, MemoryStudy};
use haloscope_study::row::Study;
use haloscope_study::trial::Settings;

use super::run::{self, RunArguments};
use crate::exit::{Code, Preparation};
use crate::onnx::DeviceArguments;
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench memory`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    run: RunArguments,

    /// Networks; sizes are given as in drunet:32-64-128-256:2
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "drunet,unet,dncnn")]
    model: Vec<ModelName>,

    /// Height of the image; by default 512, or 2048 with --full
    #[arg(long, value_name = "N")]
    height: Option<usize>,

    /// Widths of the image; by default from half the height to the height, in steps of 64 and of 68
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    widths: Vec<usize>,

    /// What a network may take: whole (the fastest plan), waves, or sizes as in 256MB
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "whole")]
    budgets: Vec<Budget>,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,

    #[command(flatten)]
    device: DeviceArguments,
}

/// Runs the study.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let height = arguments.height.unwrap_or(if arguments.run.full { 2048 } else { 512 });
    let widths = match &arguments.widths {
        list if list.is_empty() => MemoryStudy::widths(height),
        list => list.clone(),
    };
    let settings = Settings { seed: arguments.run.seed, ..Settings::default() };
    let study = MemoryStudy {
        models: arguments.model.clone(),
        height,
        widths,
        budgets: arguments.budgets.clone(),
        device: arguments.device.device.unwrap_or_default(),
        threads: threads::or_all_cores(arguments.threads),
        repetitions: arguments.run.repetitions,
        settings: settings.clone(),
    };
    let trials = study.trials().or_misuse()?;
    let launcher = run::launcher("")?;
    let results = run::open(&arguments.run, Study::Memory, &settings)?;
    run::carry_out(&arguments.run, &launcher, &trials, results, |results| {
        run::conclude(&arguments.run, results, Study::Memory)
    })
}
