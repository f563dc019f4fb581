//! `haloscope plan`: what a reconstruction will take on each rank, and how its image is best cut. Nothing is run.
//!
//! The reconstruction is that of a job file, or is described by options.

mod advice;
mod describe;
mod of_job;
mod room;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use haloscope::denoise::{NetworkDenoiser, TotalVariation};
use haloscope::forecast::{Denoising, Forecast, Memory, Method, PriorWork, Share, Workload};
use haloscope::solve::PrimalDual;
use haloscope::tiling::{Overlap, Patch, Shards, Strategy, TilePlan, Tiling};
use haloscope_nn::Footprint;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::ModelName;
use serde::Serialize;

use crate::denoise::parse_bytes;
use crate::exit::Preparation;
use of_job::OfJob;
use room::Room;

/// The options of `haloscope plan`.
#[derive(clap::Args, Clone)]
pub(crate) struct Arguments {
    /// Job file to plan for; without one, --size and other options describe the image, operators, network, tiles and
    /// method
    #[arg(conflicts_with_all = [
        "channels", "operators", "measurement", "model", "solver", "inner_iterations", "patch", "overlap", "strategy",
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

    /// Denoiser: a file with weights, or a network by name: drunet, dncnn, fdncnn or unet. Without one, the prior is total
    /// variation
    #[arg(long, short)]
    model: Option<String>,

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
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    memory_budget: Option<usize>,

    /// Print the plan as JSON
    #[arg(long)]
    json: bool,
}

/// What is printed, one way or the other.
#[derive(Serialize)]
struct Report {
    /// The job file, if there is one.
    job: Option<String>,
    /// In the order of job files: the depth, if there is one, then height and width.
    sides: Vec<usize>,
    channels: usize,
    operators: usize,
    solver: &'static str,
    /// Messages are an upper bound.
    has_inner_iterations: bool,
    /// In a few words.
    prior: &'static str,
    network: Option<Network>,
    threads_per_rank: usize,
    memory_budget_bytes: Option<usize>,
    /// What is free on this machine, unless there is a budget.
    available_bytes: Option<u64>,
    /// What the plans must fit in.
    #[serde(skip)]
    room: Room,
    plan: Plan,
    /// The same job with other tiles, the best of those that fit first.
    alternatives: Vec<Plan>,
    /// The same job on other numbers of ranks.
    other_ranks: Vec<Plan>,
    /// What to do, in words.
    recommendation: String,
}

#[derive(Serialize)]
struct Network {
    name: String,
    parameters: usize,
    /// How far away a pixel can matter to another.
    receptive_radius: usize,
    alignment: usize,
}

/// One way to do it.
#[derive(Clone, Serialize)]
struct Plan {
    /// As it is given to `--patch`.
    patch: String,
    /// The largest along any side; 0 without a network.
    overlap: usize,
    /// `exact`, or how tiles are joined.
    strategy: &'static str,
    /// Why it is exact or has tiles.
    reason: Option<String>,
    tiles: usize,
    grid: Vec<usize>,
    window: Vec<usize>,
    tiles_at_once: usize,
    /// Pixels that are computed for each pixel of the image.
    work_multiplier: f64,
    teraflop_per_iteration: f64,
    /// The operators of the rank with the most of them.
    most_operators: usize,
    /// The tiles of the rank with the most of them.
    most_tiles: usize,
    /// The pixels that the network computes on the rank with the most of them, in fair shares of the image's; 0 without
    /// a network.
    largest_load: f64,
    largest_memory_bytes: usize,
    /// Of all ranks, if they are threads of one process.
    together_bytes: usize,
    bytes_sent_per_iteration: u64,
    /// The rounds of exchanges of an exact network in an iteration, and the bytes that they send, of the rank with the most.
    halo_rounds: usize,
    halo_bytes: u64,
    fits: bool,
    ranks: Vec<Rank>,
    /// Whether a job file, and not an option, says how long tiles are.
    #[serde(skip)]
    is_of_job: bool,
}

impl Plan {
    fn is_exact(&self) -> bool {
        self.strategy == describe::strategy(Strategy::Exact)
    }

    /// What cuts the image like this.
    fn option(&self) -> String {
        match (self.is_exact(), self.is_of_job) {
            (true, true) => "`strategy = \"exact\"` in [prior]".into(),
            (true, false) => "--strategy exact".into(),
            (false, true) => format!("`patch = {}` in [prior]", of_job::patch_value(&self.patch)),
            (false, false) => format!("--patch {}", self.patch),
        }
    }
}

#[derive(Clone, Serialize)]
struct Rank {
    operators: usize,
    tiles: usize,
    load: f64,
    memory_bytes: usize,
    memory: Parts,
    bytes_sent_per_iteration: u64,
}

#[derive(Clone, Serialize)]
struct Parts {
    images: usize,
    measurements: usize,
    tiles: usize,
    weights: usize,
    activations: usize,
}

/// Prints the plan; it is a failure if nothing fits.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let report = Report::new(arguments).or_misuse()?;
    let text = if arguments.json {
        serde_json::to_string_pretty(&report)? + "\n"
    } else {
        describe::text(&report)?
    };
    crate::print(&text)?;
    if !std::iter::once(&report.plan).chain(&report.alternatives).any(|plan| plan.fits) {
        anyhow::bail!("nothing fits in {}", report.room);
    }
    Ok(())
}

impl Report {
    fn new(arguments: &Arguments) -> Result<Self> {
        match &arguments.job {
            None => Self::of(&Setup::new(arguments)?),
            Some(path) => of_job::setup(arguments, path, Self::of),
        }
    }

    fn of(setup: &Setup<'_>) -> Result<Self> {
        let arguments = setup.arguments;
        let plan = setup.plan(&setup.tiling, arguments.ranks)?;
        let alternatives = advice::alternatives(setup, &plan)?;
        let other_ranks = advice::other_ranks(setup)?;
        let room = setup.room;
        Ok(Self {
            job: arguments.job.as_ref().map(|path| path.display().to_string()),
            sides: arguments.size.0.clone(),
            channels: arguments.channels,
            operators: arguments.operators,
            solver: setup.method.name(),
            has_inner_iterations: setup.method.has_prox(),
            prior: setup.prior_name(),
            network: setup.denoiser.as_deref().map(describe_network).transpose()?,
            threads_per_rank: setup.threads,
            memory_budget_bytes: arguments.memory_budget,
            available_bytes: room.available_bytes(),
            room,
            recommendation: advice::recommend(&plan, &alternatives, &other_ranks, room),
            plan,
            alternatives,
            other_ranks,
        })
    }
}

/// The job.
struct Setup<'a> {
    arguments: &'a Arguments,
    denoiser: Option<Arc<NetworkDenoiser>>,
    method: Method,
    /// How the image is cut.
    tiling: Tiling,
    threads: usize,
    room: Room,
    /// Where it comes from, unless it is from options.
    job: Option<OfJob<'a>>,
}

impl<'a> Setup<'a> {
    fn new(arguments: &'a Arguments) -> Result<Self> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = arguments.threads.unwrap_or((cores / arguments.ranks).max(1));
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let open = |name: &String| -> Result<Arc<NetworkDenoiser>> {
            let model =
                name.parse::<ModelName>()?.open(arguments.channels, arguments.size.0.len())?;
            Ok(Arc::new(NetworkDenoiser::new(model, options)?))
        };
        let denoiser = arguments.model.as_ref().map(open).transpose()?;
        let usual = if denoiser.is_some() { Method::default() } else { PrimalDual::METHOD };
        let method = arguments.solver.unwrap_or(usual);
        if denoiser.is_some() && !method.takes_network() {
            anyhow::bail!(
                "{method} takes no network: leave --model out, or choose another --solver"
            );
        }
        let room = Room::new(arguments.memory_budget);
        let tiling = Tiling {
            patch: arguments.patch.clone(),
            overlap: arguments.overlap.map_or(Overlap::Standard, Overlap::from),
            shards: arguments
                .shards
                .as_ref()
                .map_or(Shards::Auto, |grid| Shards::Grid(grid.0.clone())),
            ..Tiling::new(arguments.strategy)
        };
        Ok(Self { arguments, denoiser, method, tiling, threads, room, job: None })
    }

    /// The prior in a few words.
    fn prior_name(&self) -> &'static str {
        match &self.job {
            Some(job) => job.prior_name(),
            None => describe::prior(&self.prior(&self.tiling)),
        }
    }

    /// The network on images that are cut like this, or what its method uses without one.
    fn prior(&self, tiling: &Tiling) -> PriorWork<'_> {
        let tiling = tiling.clone();
        match (&self.denoiser, self.method) {
            // The jobs of all templates clamp or scale images around their network.
            (Some(denoiser), _) => {
                PriorWork::Network(Denoising { denoiser, tiling, has_range: true })
            }
            (None, method) if method.takes_no_prior() => PriorWork::None,
            (None, _) => {
                PriorWork::TotalVariation { denoiser: TotalVariation::default(), has_range: true }
            }
        }
    }

    /// The job with images that are cut like this on so many ranks.
    fn plan(&self, tiling: &Tiling, ranks: usize) -> Result<Plan> {
        if let Some(job) = &self.job {
            let expected = job.expect(tiling, ranks)?;
            let plan = self.summarise(tiling, &expected.forecast);
            return Ok(OfJob::complete(plan, &expected, self.room));
        }
        let Arguments { size, channels, .. } = self.arguments;
        let measurement = self.arguments.measurement.as_ref().unwrap_or(size);
        let shape = |sides: &Sides| [&[*channels], &sides.0[..]].concat();
        let forecast = Workload {
            image: [&[1], &shape(size)[..]].concat(),
            measurements: vec![shape(measurement); self.arguments.operators],
            ranks,
            method: self.method,
            inner_iterations: self.arguments.inner_iterations,
            prior: self.prior(tiling),
        }
        .forecast()?;
        Ok(self.summarise(tiling, &forecast))
    }

    fn summarise(&self, tiling: &Tiling, forecast: &Forecast) -> Plan {
        let choice = forecast.choice.as_ref();
        let exchanges = forecast.largest_exchanges();
        let (tiles, shards) = (forecast.tiles.as_ref(), forecast.shards.as_ref());
        let (grid, window) = match (tiles, shards) {
            (Some(tiles), _) => (tiles.grid(), tiles.window().to_vec()),
            (None, Some(shards)) => (shards.grid(), shards.longest()),
            (None, None) => (Vec::new(), Vec::new()),
        };
        let together = forecast.process_memory(0..forecast.ranks.len());
        let most = |of: fn(&Share) -> usize| forecast.ranks.iter().map(of).max().unwrap_or(0);
        let rank = |share: &Share| {
            let Memory { images, measurements, tiles, weights, activations } = share.memory;
            Rank {
                operators: share.operators,
                tiles: share.tiles,
                load: share.load,
                memory_bytes: share.memory.total(),
                memory: Parts { images, measurements, tiles, weights, activations },
                bytes_sent_per_iteration: share.bytes_sent,
            }
        };
        Plan {
            patch: match &tiling.patch {
                Patch::Standard => "standard".into(),
                Patch::Auto => "auto".into(),
                Patch::Given(extent) => describe::extent(extent),
            },
            overlap: tiles.map_or(0, |tiles| tiles.overlap().iter().copied().max().unwrap_or(0)),
            strategy: describe::strategy(
                choice.map_or(tiling.strategy, |choice| choice.tiling.strategy),
            ),
            reason: choice.map(|choice| choice.reason.clone()),
            tiles: forecast.ranks.iter().map(|share| share.tiles).sum(),
            grid,
            window,
            tiles_at_once: forecast.batch,
            work_multiplier: tiles.map_or(1.0, TilePlan::work_multiplier),
            teraflop_per_iteration: forecast.flops / 1e12,
            most_operators: most(|share| share.operators),
            most_tiles: most(|share| share.tiles),
            largest_load: forecast.largest_load(),
            largest_memory_bytes: forecast.largest_memory(),
            together_bytes: together,
            bytes_sent_per_iteration: forecast.bytes_sent(),
            halo_rounds: exchanges.rounds,
            halo_bytes: exchanges.bytes_sent,
            fits: self.room.holds(forecast.largest_memory(), together),
            ranks: forecast.ranks.iter().map(rank).collect(),
            is_of_job: false,
        }
    }
}

fn describe_network(denoiser: &NetworkDenoiser) -> Result<Network> {
    let network = denoiser.model().network();
    let footprint = Footprint::of(network)?;
    let largest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
    Ok(Network {
        name: network.name().to_owned(),
        parameters: network.parameters(),
        receptive_radius: largest(&footprint.radius),
        alignment: largest(&footprint.alignment),
    })
}

/// Two or three sides.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sides(Vec<usize>);

fn parse_sides(text: &str) -> std::result::Result<Sides, String> {
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
