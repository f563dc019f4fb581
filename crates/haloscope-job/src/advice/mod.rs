//! What a reconstruction will take on each rank, how else its image could be cut, and which of that to do. Nothing is run.
//!
//! The reconstruction is a job, or is described by its shapes ([`Outline`]). A [`Planner`] forecasts it for any cut and any number
//! of ranks, each as an [`Arrangement`]; `alternatives` compares these, and `recommend` says what to do.

mod alternatives;
mod arrangement;
mod describe;
mod outline;
mod planner;
mod recommend;
mod room;

use haloscope::Result;
use haloscope::denoise::NetworkDenoiser;
use haloscope_nn::Footprint;
use serde::Serialize;

use crate::Job;
use arrangement::Arrangement;
pub use outline::Outline;
use planner::Planner;
use room::Room;

/// What a reconstruction will take, and what to change, as `haloscope plan` prints it: as text by its `Display`, and for programs
/// by its `Serialize`.
///
/// ```
/// use haloscope_job::Job;
///
/// let job = Job::builder()
///     .measurements(|it| it.set("phantom", "landscape").set("size", vec![48, 48]))
///     .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5))
///     .prior("total-variation", |it| it.set("weight", 0.01))
///     .solver("fista", |it| it)
///     .build()?;
/// let advice = job.advise(2, Some(1), Some(100_000_000))?;
/// assert_eq!(advice.shortage(), None);
/// assert!(advice.to_string().contains("on 2 ranks of 1 thread"));
///
/// let advice = job.advise(2, Some(1), Some(1000))?;
/// assert_eq!(advice.shortage().as_deref(), Some("nothing fits in 1000 B on each rank"));
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Debug, Serialize)]
pub struct Advice {
    /// The job, if there is one.
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
    network: Option<NetworkFacts>,
    threads_per_rank: usize,
    memory_budget_bytes: Option<usize>,
    /// What is free on this machine, unless there is a budget.
    available_bytes: Option<u64>,
    /// What all of it must fit in.
    #[serde(skip)]
    room: Room,
    plan: Arrangement,
    /// The same with other tiles, the best of those that fit first.
    alternatives: Vec<Arrangement>,
    /// The same on other numbers of ranks.
    other_ranks: Vec<Arrangement>,
    /// What to do, in words.
    recommendation: String,
}

#[derive(Debug, Serialize)]
struct NetworkFacts {
    name: String,
    parameters: usize,
    /// How far away a pixel can matter to another. Unknown for networks of ONNX files.
    receptive_radius: Option<usize>,
    alignment: usize,
    /// Where it runs.
    device: String,
}

impl Job {
    /// Plans the job on so many ranks. Each has so many threads, by default a share of the cores of this machine, and may take so
    /// many bytes; without them, all ranks together must fit on this machine.
    pub fn advise(
        &self,
        ranks: usize,
        threads: Option<usize>,
        memory_budget: Option<usize>,
    ) -> Result<Advice> {
        let threads = planner::threads_of(threads, ranks);
        // What one rank of it needs must fit here, even if it is to run elsewhere: the data are read.
        let forecast = self.forecast(threads)?;
        let planner = Planner::of_job(&forecast, ranks, threads, memory_budget);
        Ok(Advice { job: Some(self.name().to_owned()), ..Advice::of(&planner)? })
    }
}

impl Advice {
    /// What is missing if nothing fits: neither the reconstruction as it is nor one with other tiles.
    #[must_use]
    pub fn shortage(&self) -> Option<String> {
        let fits = std::iter::once(&self.plan).chain(&self.alternatives).any(|plan| plan.fits);
        (!fits).then(|| format!("nothing fits in {}", self.room))
    }

    fn of(planner: &Planner<'_>) -> Result<Self> {
        let (what, room) = (&planner.what, planner.room);
        let plan = planner.own(what.ranks, true)?;
        let alternatives = alternatives::other_cuts(planner, &plan)?;
        let other_ranks = alternatives::other_ranks(planner)?;
        Ok(Self {
            job: None,
            sides: what.image[2..].to_vec(),
            channels: what.image[1],
            operators: what.measurements.len(),
            solver: planner.method.name(),
            has_inner_iterations: planner.method.has_prox(),
            prior: planner.prior_name(),
            network: what.denoiser.map(NetworkFacts::of).transpose()?,
            threads_per_rank: planner.threads,
            memory_budget_bytes: what.memory_budget,
            available_bytes: room.available_bytes(),
            room,
            recommendation: recommend::recommend(&plan, &alternatives, &other_ranks, room),
            plan,
            alternatives,
            other_ranks,
        })
    }
}

impl NetworkFacts {
    fn of(denoiser: &NetworkDenoiser) -> Result<Self> {
        let network = denoiser.model().network();
        let footprint = Footprint::of(network)?;
        let largest = |lengths: &[usize]| lengths.iter().copied().max().unwrap_or(0);
        Ok(Self {
            name: network.name().to_owned(),
            parameters: network.parameters(),
            receptive_radius: network.foreign().is_none().then(|| largest(&footprint.radius)),
            alignment: largest(&footprint.alignment),
            device: denoiser.device(),
        })
    }
}
