//! Forecasts a reconstruction for any cut of its image and any number of ranks.
//!
//! Of a job the forecast is that of [`Job::check`](crate::Job::check), which also counts what is held around the iterations.

use std::sync::Arc;

use haloscope::Result;
use haloscope::denoise::{Axes, TotalVariation};
use haloscope::forecast::{Denoising, Method, PriorWork, Workload};
use haloscope::solve::PrimalDual;
use haloscope::tiling::{Shards, Strategy, Tiling};

use super::arrangement::Arrangement;
use super::describe::TOTAL_VARIATION;
use super::outline::Outline;
use super::room::Room;
use crate::forecast::JobForecast;
use crate::machine::Machine;
use crate::memory::Expected;

/// A reconstruction, and all that its forecasts need.
pub(super) struct Planner<'a> {
    pub what: Outline<'a>,
    pub method: Method,
    pub threads: usize,
    pub room: Room,
    /// The job that it is, unless it is only described.
    job: Option<&'a JobForecast<'a>>,
}

impl<'a> Planner<'a> {
    pub(super) fn new(what: Outline<'a>) -> Self {
        let usual = if what.denoiser.is_some() { Method::default() } else { PrimalDual::METHOD };
        let method = what.method.unwrap_or(usual);
        let threads = threads_of(what.threads, what.ranks);
        let room = Room::new(what.memory_budget);
        Self { what, method, threads, room, job: None }
    }

    pub(super) fn of_job(
        job: &'a JobForecast<'a>,
        ranks: usize,
        threads: usize,
        memory_budget: Option<usize>,
    ) -> Self {
        let what = Outline {
            image: job.image().to_vec(),
            // The forecast knows them itself; how many there are is what is said of them.
            measurements: vec![Vec::new(); job.operators()],
            denoiser: job.network().map(Arc::as_ref),
            method: Some(job.method()),
            inner_iterations: 0,
            tiling: job.tiling().unwrap_or_default(),
            ranks,
            threads: Some(threads),
            memory_budget,
        };
        Self { job: Some(job), ..Self::new(what) }
    }

    /// It with images that are cut like this, whole on each of so many ranks.
    pub(super) fn cut(&self, tiling: &Tiling, ranks: usize) -> Result<Arrangement> {
        if let Some(job) = self.job {
            return Ok(self.of_expected(tiling, &job.expect_replicated(ranks, tiling)?));
        }
        let forecast = Workload {
            image: self.what.image.clone(),
            measurements: self.what.measurements.clone(),
            ranks,
            method: self.method,
            inner_iterations: self.what.inner_iterations,
            subsets: self.method.subsets(None, self.what.measurements.len()),
            prior: self.prior(tiling),
        }
        .forecast()?;
        Ok(Arrangement::of(tiling, &forecast, self.what.denoiser.is_some(), self.room))
    }

    /// It as it is on so many ranks, in the grid that it gives or in the one that suits them.
    pub(super) fn own(&self, ranks: usize, keeps_grid: bool) -> Result<Arrangement> {
        let tiling = &self.what.tiling;
        match self.job {
            Some(job) => Ok(self.of_expected(tiling, &job.expect(ranks, keeps_grid)?)),
            None if keeps_grid => self.cut(tiling, ranks),
            None => self.cut(&without_grid(tiling), ranks),
        }
    }

    /// Whether a job says that its image is in shards, which leaves no choice of tiles.
    pub(super) fn must_be_sharded(&self) -> bool {
        self.job.is_some_and(JobForecast::is_sharded)
    }

    /// The prior in a few words.
    pub(super) fn prior_name(&self) -> &'static str {
        let has_total_variation = match self.job {
            Some(job) => job.has_total_variation(),
            None => !self.method.takes_no_prior(),
        };
        match (self.what.denoiser, has_total_variation) {
            (Some(_), _) => "a network",
            (None, true) => TOTAL_VARIATION,
            (None, false) => "no prior",
        }
    }

    /// The network on images that are cut like this, or what its method uses without one.
    fn prior(&self, tiling: &Tiling) -> PriorWork<'_> {
        let tiling = tiling.clone();
        match (self.what.denoiser, self.method) {
            // The jobs of all templates clamp or scale images around their network.
            (Some(denoiser), _) => PriorWork::Network(Denoising {
                denoiser,
                tiling,
                has_range: true,
                axes: Axes::Axial,
            }),
            (None, method) if method.takes_no_prior() => PriorWork::None,
            (None, _) => {
                PriorWork::TotalVariation { denoiser: TotalVariation::default(), has_range: true }
            }
        }
    }

    fn of_expected(&self, tiling: &Tiling, expected: &Expected) -> Arrangement {
        let has_network = self.what.denoiser.is_some();
        Arrangement::of(tiling, &expected.forecast, has_network, self.room)
            .of_job(expected, self.room)
    }
}

/// The same cut for any number of ranks. A grid that is given means that the network is exact.
fn without_grid(tiling: &Tiling) -> Tiling {
    let strategy = match (&tiling.shards, tiling.strategy) {
        (Shards::Grid(_), Strategy::Standard) => Strategy::Exact,
        (_, strategy) => strategy,
    };
    Tiling { strategy, shards: Shards::Auto, ..tiling.clone() }
}

/// Those that are given, or a share of this machine's.
pub(super) fn threads_of(given: Option<usize>, ranks: usize) -> usize {
    given.unwrap_or_else(|| Machine::detect().threads_per_rank(ranks))
}
