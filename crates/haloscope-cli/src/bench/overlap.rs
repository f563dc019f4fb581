//! `haloscope bench overlap`.

use anyhow::Result;
use haloscope_nn::models::ModelName;
use haloscope_study::plan::OverlapStudy;
use haloscope_study::row::Study;
use haloscope_study::trial::Settings;

use super::run::{self, RunArguments};
use crate::exit::{Code, Preparation};
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench overlap`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    run: RunArguments,

    /// Networks; those with random weights say little, because their results have no meaning
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "builtin:color")]
    model: Vec<ModelName>,

    /// Side of the image; by default 512, or 2048 with --full
    #[arg(long, value_name = "N")]
    size: Option<usize>,

    /// Sides of patches
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "128")]
    patches: Vec<usize>,

    /// Overlaps: pixels that a patch sees beyond its own
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0,8,16,32,64")]
    overlaps: Vec<usize>,

    /// Standard deviations of the noise, where white is 1; the network is given the same
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "0.02,0.05,0.1,0.2")]
    levels: Vec<f64>,

    /// Number of threads; by default all cores
    #[arg(long, value_name = "N", value_parser = parse_threads)]
    threads: Option<usize>,
}

/// Runs the study.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let settings = Settings { seed: arguments.run.seed, ..Settings::default() };
    let study = OverlapStudy {
        models: arguments.model.clone(),
        size: arguments.size.unwrap_or(if arguments.run.full { 2048 } else { 512 }),
        patches: arguments.patches.clone(),
        overlaps: arguments.overlaps.clone(),
        levels: arguments.levels.clone(),
        threads: threads::or_all_cores(arguments.threads),
        repetitions: arguments.run.repetitions,
        settings: settings.clone(),
    };
    let trials = study.trials().or_misuse()?;
    let launcher = run::launcher("")?;
    let results = run::open(&arguments.run, Study::Overlap, &settings)?;
    run::carry_out(&arguments.run, &launcher, &trials, results, |results| {
        run::conclude(&arguments.run, results, Study::Overlap)
    })
}
