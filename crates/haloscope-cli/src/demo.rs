//! `haloscope demo`: measurements that are made here, and the image that is found from them again.
//!
//! The demo is a job like any other, from the template that `haloscope init` writes; only its size, iterations, prior
//! and output come from the command line. Every number of ranks gives the same bits, which the report shows as a
//! digest.

use std::path::{Path, PathBuf};

use anyhow::Result;
use haloscope_job::{Choices, Job, Resuming};

use crate::exit::Code;
use crate::problem::ProblemArgument;
use crate::reconstruct::RunArguments;

/// The options of `haloscope demo`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Problem to simulate and reconstruct
    #[arg(long, value_enum, default_value = "deblur")]
    problem: ProblemArgument,

    /// Number of pixels along each side; the default takes seconds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(16..=16_384))]
    size: Option<u32>,

    /// Number of iterations; the default depends on the prior
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    iterations: Option<u32>,

    /// Prior: `tv` for total variation, or `builtin:color`, `builtin:gray`, `builtin:volume` or a file with weights for a denoising network;
    /// the default depends on the problem
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,

    /// Folder for the pictures and report.html
    #[arg(long, value_name = "DIR", default_value = "haloscope-demo")]
    out: PathBuf,

    #[command(flatten)]
    run: RunArguments,
}

/// Makes the measurements, reconstructs, and reports on rank 0.
pub(crate) fn run(arguments: &Arguments) -> Result<Code> {
    let ProblemArgument(problem) = arguments.problem;
    let choices = Choices {
        name: problem.name().to_owned(),
        sides: problem.sides(arguments.size.map_or(problem.default_size(), |size| size as usize)),
        operators: None,
        model: problem.model(arguments.model.as_deref()),
        iterations: arguments.iterations.map(|iterations| iterations as usize),
    };
    let (text, out) = (problem.job(&choices), arguments.out.clone());
    arguments.run.run(move |_| {
        let job = Job::parse(&choices.name, &text, Path::new(""))?;
        Ok(job.with_pictures_in(&out).resuming(Resuming::Off))
    })
}
