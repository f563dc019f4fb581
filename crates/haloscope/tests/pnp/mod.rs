//! A small plug-and-play job: three blurs of a colour picture, and a network of random weights in tiles.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::sync::Arc;

use haloscope::Result;
use haloscope::denoise::{NetworkDenoiser, TotalVariation};
use haloscope::distribute::{DistributedTotalVariation, distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2, Poisson};
use haloscope::noise::Noise;
use haloscope::phantom::landscape;
use haloscope::physics::{Blur, Padding, Physics, kernels};
use haloscope::solve::{
    Admm, Algorithm, ConjugateGradient, DouglasRachford, ExpectationMaximisation, Fista,
    HalfQuadratic, Landweber, Method, Outcome, Plug, PrimalDual, Prior, Problem, ProximalGradient,
    Range, RedFixedPoint, RedGradient, Schedule, Sirt, Start, State, Stopping, TotalVariationPrior,
    solve,
};
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope_comm::Context;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Dncnn};

/// The size of the job.
#[derive(Clone, Debug)]
pub(crate) struct Small {
    pub(crate) side: usize,
    pub(crate) operators: usize,
    pub(crate) depth: usize,
    pub(crate) channels: usize,
    pub(crate) tiling: Tiling,
    /// What the network may take on a rank.
    pub(crate) memory_budget: Option<usize>,
    pub(crate) method: Method,
    /// The prior of methods that take any: the network, or total variation.
    pub(crate) has_network: bool,
    /// The iterations of a prox of the data term.
    pub(crate) inner_iterations: usize,
    /// The range that images are brought back to.
    pub(crate) clamp: Option<(f32, f32)>,
}

impl Default for Small {
    fn default() -> Self {
        let tiling = Tiling {
            patch: 24.into(),
            overlap: 4.into(),
            batch: Batch::AtMost(2),
            ..Tiling::new(Strategy::Blend)
        };
        Self {
            side: 64,
            operators: 3,
            depth: 3,
            channels: 8,
            tiling,
            memory_budget: None,
            method: Method::default(),
            has_network: true,
            inner_iterations: 4,
            clamp: None,
        }
    }
}

impl Small {
    pub(crate) fn denoiser(&self) -> Result<NetworkDenoiser> {
        let model = Dncnn { depth: self.depth, channels: self.channels, ..Dncnn::default() };
        let memory_budget = self.memory_budget;
        let options = EngineOptions { memory_budget, ..EngineOptions::default() };
        NetworkDenoiser::new(model.random(1)?, options)
    }

    /// Runs it, with a count of the messages of the iterations alone.
    pub(crate) fn run(&self, ctx: &Context, iterations: usize) -> Result<Outcome> {
        let blur = |index: usize| -> Result<Arc<dyn Physics>> {
            let kernel = kernels::gaussian(&[1.0, 0.5], 60.0 * index as f64)?;
            Ok(Arc::new(Blur::new(&[3, self.side, self.side], &kernel, Padding::Circular)?))
        };
        let operators = (0..self.operators).map(blur).collect::<Result<Vec<_>>>()?;
        let physics = distribute(operators, ctx)?;
        let truth = landscape(self.side, self.side)?;
        // Counts are not negative.
        let counts = matches!(self.method.name, "mlem" | "osem");
        let noise = [Noise::gaussian(if counts { 0.0 } else { 0.03 })?];
        let data = physics.measure_terms(&truth, &noise, 1)?.into_local()?;
        drop(truth);
        let fidelity = if counts {
            Fidelities::from(Poisson::new(1.0, 0.1)?)
        } else {
            Fidelities::from(L2::default())
        };
        let fidelity = distribute(fidelity, ctx)?;
        let problem = Problem::new(physics, data, fidelity)?.with_inner(0.0, self.inner_iterations);
        let method = self.algorithm(ctx, &problem)?;
        let start = State::new(problem.start(&Start::Adjoint)?);
        let stopping = Stopping { iterations, ..Stopping::default() };
        ctx.comm().reset_statistics();
        solve(&problem, &*method, start, &stopping, None)
    }

    fn algorithm(&self, ctx: &Context, problem: &Problem) -> Result<Box<dyn Algorithm>> {
        let step = 0.1;
        let range = self.clamp.map_or(Range::AsIs, |(low, high)| Range::Clamp(low, high));
        let plug = || -> Result<Plug> {
            if !self.has_network {
                let denoiser = DistributedTotalVariation::new(TotalVariation::default(), ctx)?;
                return Ok(Plug::new(Arc::new(denoiser), 0.05).range(range));
            }
            let denoiser = distribute_with(self.denoiser()?, ctx, self.tiling.clone())?;
            Ok(Plug::new(Arc::new(denoiser), 0.05).range(range))
        };
        let prior = || -> Result<Arc<dyn Prior>> {
            if self.has_network {
                return Ok(Arc::new(plug()?));
            }
            let denoiser = DistributedTotalVariation::new(TotalVariation::default(), ctx)?;
            Ok(Arc::new(TotalVariationPrior { weight: 0.05, denoiser }))
        };
        Ok(match self.method.name {
            "pgd" => Box::new(ProximalGradient { step, prior: prior()?, relaxation: None }),
            "fista" => Box::new(Fista { step, prior: prior()? }),
            "hqs" => {
                let schedule = Schedule::falling(0.2, 0.05, 4, 0.03, 0.23)?;
                Box::new(HalfQuadratic { prior: plug()?, schedule })
            }
            "admm" => Box::new(Admm { step, prior: prior()? }),
            "drs" => Box::new(DouglasRachford { step, prior: prior()?, relaxation: 1.0 }),
            "red" => Box::new(RedGradient { step, weight: 0.1, prior: Arc::new(plug()?) }),
            "red-fixed-point" => Box::new(RedFixedPoint { weight: 0.1, prior: plug()? }),
            "primal-dual" => {
                Box::new(PrimalDual { lipschitz: 3.0, weight: 0.05, range: self.clamp })
            }
            "cg" => Box::new(ConjugateGradient),
            "landweber" => Box::new(Landweber { step, range: self.clamp }),
            "sirt" | "os-sart" => {
                let subsets = self.method.subsets(None, self.operators);
                Box::new(Sirt::new(problem, 1.0, subsets, self.clamp)?)
            }
            "mlem" | "osem" => {
                let subsets = self.method.subsets(None, self.operators);
                Box::new(ExpectationMaximisation::new(problem, subsets, self.clamp)?)
            }
            name => return Err(haloscope::Error::argument("method", name)),
        })
    }
}
