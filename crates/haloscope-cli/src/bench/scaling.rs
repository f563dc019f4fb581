//! `haloscope bench scaling`.

use std::path::PathBuf;

use anyhow::Result;
use haloscope_job::Distribution;
use haloscope_nn::models::ModelName;
use haloscope_study::counts::Counts;
use haloscope_study::plan::{ScalingStudy, suiting};
use haloscope_study::problem::{PROBLEMS, Problem, Size};
use haloscope_study::results::Results;
use haloscope_study::row::{Backend, Layout, Mode, Study};
use haloscope_study::runner::Launcher;
use haloscope_study::tables;
use haloscope_study::trial::Settings;
use haloscope_study::volume::Volume;
use log::Level;

use super::problem::{StudiedProblem, chosen};
use super::run::{self, RunArguments};
use crate::exit::{Code, Misuse, Preparation};
use crate::log::message;
use crate::onnx::DeviceArguments;
use crate::submit::Until;
use crate::threads::{self, parse_threads};

/// The options of `haloscope bench scaling`.
#[derive(clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    run: RunArguments,

    #[command(flatten)]
    reconstruction: ReconstructionArguments,

    /// Scan this volume (NIfTI or another format) instead of the phantom; for tomography-3d, which becomes the default
    /// problem
    #[arg(long, value_name = "FILE")]
    volume: Option<PathBuf>,

    /// Numbers of ranks; by default 1, 2, 4, … up to the number of cores, or to 64 with --count-only
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    ranks: Vec<usize>,

    /// What grows with the ranks: strong (nothing), weak (the image), contention (the number of problems: each rank has
    /// one of its own, to see how much cores slow each other down)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "strong")]
    mode: Vec<Mode>,

    /// How ranks run: threads, mpi (needs a build with --features mpi)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "threads")]
    backend: Vec<Backend>,

    /// What ranks share: both, physics (operators only) or denoiser (tiles only); the rest is whole on every rank
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "both", value_parser = parse_distribution)]
    distribute: Vec<Distribution>,

    /// Where the image is: replicated (on every rank) or sharded (a part on each)
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "replicated")]
    layout: Vec<Layout>,

    /// Count messages and compare them with the plan, and time nothing: two iterations of a small network, on more ranks
    /// than cores if you like
    #[arg(long, conflicts_with_all = ["slurm", "untiled"])]
    count_only: bool,

    /// Also measure an image in tiles in one piece on one rank
    #[arg(long)]
    untiled: bool,

    /// Command that starts MPI ranks; the number of ranks is appended
    #[arg(long, value_name = "COMMAND", default_value = "mpirun -n")]
    launcher: String,

    /// Measure in Slurm jobs, one for each allocation in this file; srun starts the ranks
    #[arg(long, value_name = "FILE.toml", conflicts_with_all = ["ranks", "backend", "launcher"])]
    slurm: Option<PathBuf>,

    /// With --slurm, print the scripts and submit nothing
    #[arg(long, requires = "slurm")]
    dry_run: bool,

    /// Side of a tile without its overlap. Without --patch, --overlap and --batch, the image is cut as by a job that gives
    /// none: exactly, up to a size of images
    #[arg(long, value_name = "N")]
    patch: Option<usize>,

    /// Overlap: pixels that a tile sees beyond its own; by default that of a job which does not give it
    #[arg(long, value_name = "N")]
    overlap: Option<usize>,

    /// Number of tiles that are denoised at once; by default as many as memory allows, at most 8
    #[arg(long, value_name = "N")]
    batch: Option<usize>,

    /// Number of threads of each rank
    #[arg(long, value_name = "N", default_value = "1", value_parser = parse_threads)]
    threads: usize,

    #[command(flatten)]
    device: DeviceArguments,
}

/// What to reconstruct, and for how many iterations.
#[derive(clap::Args)]
pub(super) struct ReconstructionArguments {
    /// Problems: deblur, tomography-2d, tomography-3d, super-resolution; by default all
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    problem: Vec<StudiedProblem>,

    /// Sizes N of images N² and volumes N³, or sides as in 2048x1366; the default takes minutes
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub sizes: Vec<Size>,

    /// Denoiser: builtin:color, builtin:gray, builtin:volume, a file with weights, or drunet, unet or dncnn with random weights and sizes as
    /// in drunet:32-64-128-256:2
    #[arg(long, value_name = "NAME")]
    pub model: Option<ModelName>,

    /// Number of operators that measure the image
    #[arg(long, value_name = "N", default_value = "8")]
    pub operators: usize,

    /// Number of measured iterations
    #[arg(long, value_name = "N", default_value = "10")]
    iterations: usize,

    /// Number of iterations before the measured ones
    #[arg(long, value_name = "N", default_value = "1")]
    warm_up: usize,

    /// Standard deviation of the measurements' noise; by default that of the problem
    #[arg(long, value_name = "NUMBER")]
    noise: Option<f64>,

    /// Noise level given to the denoiser
    #[arg(long, value_name = "NUMBER", default_value = "0.05")]
    sigma: f64,

    /// Print the job files of all configurations for `haloscope reconstruct`, and measure nothing
    #[arg(long)]
    pub show_jobs: bool,
}

impl ReconstructionArguments {
    pub(super) fn problems(&self) -> Vec<Problem> {
        if self.problem.is_empty() { PROBLEMS.to_vec() } else { chosen(&self.problem) }
    }

    /// Says where a problem gets another network than the one that is asked for.
    pub(super) fn announce_model(&self, problems: &[Problem]) {
        let Some(model) = &self.model else { return };
        for problem in problems {
            let suiting = suiting(model, *problem);
            if suiting != *model {
                let words = format!("{problem} has one channel and gets {suiting}, not {model}");
                message(Level::Info, &words);
            }
        }
    }

    pub(super) fn settings(&self, run: &RunArguments) -> Settings {
        Settings {
            iterations: self.iterations,
            warm_up: self.warm_up,
            noise: self.noise,
            sigma: self.sigma,
            seed: run.seed,
            volume: None,
        }
    }
}

impl Arguments {
    /// The volume that is scanned, if there is one.
    fn volume(&self) -> Result<Option<Volume>> {
        Ok(self.volume.as_deref().map(Volume::read).transpose()?)
    }

    fn study(&self, volume: Option<&Volume>) -> ScalingStudy {
        let reconstruction = &self.reconstruction;
        let problems = match volume {
            Some(_) if reconstruction.problem.is_empty() => vec![Problem::Tomography3d],
            _ => reconstruction.problems(),
        };
        let most = if self.count_only { MOST_COUNTED } else { threads::or_all_cores(None) };
        let ranks = match &self.ranks {
            list if list.is_empty() => std::iter::successors(Some(1), |ranks| Some(2 * ranks))
                .take_while(|ranks| *ranks <= most)
                .collect(),
            list => list.clone(),
        };
        let study = ScalingStudy {
            problems,
            sizes: reconstruction.sizes.clone(),
            ranks,
            modes: self.mode.clone(),
            backends: self.backend.clone(),
            distribute: self.distribute.clone(),
            layouts: self.layout.clone(),
            untiled: self.untiled,
            model: reconstruction.model.clone(),
            patch: self.patch,
            overlap: self.overlap,
            batch: self.batch,
            operators: reconstruction.operators,
            device: self.device.device.unwrap_or_default(),
            threads: self.threads,
            repetitions: self.run.repetitions,
            full: self.run.full,
            counts_only: false,
            settings: Settings {
                volume: volume.map(|volume| volume.digest().to_owned()),
                ..reconstruction.settings(&self.run)
            },
        };
        if self.count_only { study.counting() } else { study }
    }
}

/// The ranks that are counted by default.
const MOST_COUNTED: usize = 64;

fn parse_distribution(name: &str) -> Result<Distribution, String> {
    match name {
        "both" => Ok(Distribution::Both),
        "physics" => Ok(Distribution::Physics),
        "denoiser" => Ok(Distribution::Denoiser),
        _ => Err(format!("`{name}` is unknown; there are both, physics and denoiser")),
    }
}

/// Runs the study, here or in jobs of a cluster.
pub(super) fn run(arguments: &Arguments) -> Result<Code> {
    let volume = arguments.volume().or_misuse()?;
    let study = arguments.study(volume.as_ref());
    let mut trials = study.trials().or_misuse()?;
    arguments.reconstruction.announce_model(&study.problems);
    if arguments.reconstruction.show_jobs {
        if let Some(volume) = volume {
            volume.prepare(&arguments.run.out, &mut trials)?;
        }
        return run::show_jobs(&trials);
    }
    if let Some(grid) = &arguments.slurm {
        let until = if arguments.dry_run { Until::Written } else { Until::Collected };
        return super::slurm::run(grid, &arguments.run.out, until);
    }
    if study.backends.contains(&Backend::Mpi) && !cfg!(feature = "mpi") {
        return Err(Misuse::error(
            "backend: this build has no MPI; rebuild with `cargo build --release --features mpi`",
        ));
    }
    let launcher = run::launcher(&arguments.launcher)?;
    let kind = if study.counts_only { Study::Counts } else { Study::Scaling };
    let results = run::open(&arguments.run, kind, &study.settings)?;
    if let Some(volume) = volume {
        volume.prepare(&arguments.run.out, &mut trials)?;
    }
    run::carry_out(&arguments.run, &launcher, &trials, results, |results| {
        conclude(arguments, &launcher, &study, results)
    })
}

/// Measures messages, and prints what rows and messages say.
fn conclude(
    arguments: &Arguments,
    launcher: &Launcher,
    study: &ScalingStudy,
    results: &mut Results,
) -> Result<()> {
    if study.counts_only {
        run::conclude(&arguments.run, results, Study::Counts)?;
        let counts = Counts::of(results.rows());
        let wrong: Vec<&Counts> = counts.iter().filter(|one| !one.is_exact()).collect();
        if let Some(first) = wrong.first() {
            anyhow::bail!(
                "{} sent other bytes than the plan says, {} of {} configurations in all",
                first.configuration,
                wrong.len(),
                counts.len()
            );
        }
        return Ok(());
    }
    if study.ranks.iter().any(|ranks| *ranks > 1) {
        for backend in &study.backends {
            launcher.measure_link(*backend, results)?;
        }
    }
    run::conclude(&arguments.run, results, Study::Scaling)?;
    let validations = run::validate(results)?;
    if validations.is_empty() {
        return Ok(());
    }
    let table = tables::describe_validation(&validations);
    crate::print(&format!(
        "\nThe model of larger machines on what was measured, with costs of the fewest ranks\n\n{table}"
    ))
}
