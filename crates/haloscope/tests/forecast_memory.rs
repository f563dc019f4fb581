//! Forecasts of memory are held against the peak of real processes, for every method, with and without a clamp.
//!
//! Each job runs in a process of its own. What the program itself takes is known from small jobs and subtracted, so that
//! arrays are compared and nothing else. Whole jobs, with scans in files, are in the tests of `haloscope-job`.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

use haloscope::denoise::{Axes, NetworkDenoiser, TotalVariation, Wavelets};
use haloscope::distribute::{DistributedTotalVariation, distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L1, L2, Poisson};
use haloscope::forecast::{self, Denoising};
use haloscope::memory::peak_resident_bytes;
use haloscope::physics::{LinearPhysics, Physics};
use haloscope::solve::{
    Admm, Algorithm, Backtracking, ConjugateGradient, DouglasRachford, ExpectationMaximisation,
    Fista, HalfQuadratic, Landweber, METHODS, Method, Plug, PrimalDual, Prior, PriorKind, Problem,
    ProxPrimalDual, ProximalGradient, Range, RedFixedPoint, RedGradient, Schedule, Sirt, State,
    Stopping, TotalVariationPrior, WaveletPrimalDual, WaveletPrior, WaveletProxPrimalDual, solve,
};
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope::{Array, Image, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Dncnn};

/// The sides of an image that takes little, and of one whose memory is compared.
const SMALL: usize = 128;
const LARGE: usize = 640;

/// The residual of a prox is computed anew after 32 iterations, which takes the most memory.
const INNER: usize = 33;

/// Every pixel with a weight of its own: cheap, without arrays of its own, and hard for conjugate gradients.
#[derive(Debug)]
struct Gains {
    shape: [usize; 3],
    offset: usize,
}

impl Gains {
    fn gain(&self, index: usize) -> f32 {
        0.1 + ((index + self.offset) * 7919 % 1009) as f32 / 1009.0
    }
}

impl Physics for Gains {
    fn name(&self) -> &'static str {
        "gains"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn apply_forward(&self, _: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        let pairs = measurement.iter_mut().zip(image).enumerate();
        pairs.for_each(|(index, (to, from))| *to = self.gain(index) * from);
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Gains {
    fn apply_adjoint(&self, batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        self.apply_forward(batch, measurement, image)
    }
}

/// What a process does.
#[derive(Clone, Debug)]
struct Case {
    method: Method,
    prior: PriorKind,
    clamp: bool,
    operators: usize,
    ranks: usize,
}

impl Case {
    /// As a child is told of it, with an image of this side.
    fn words(&self, side: usize) -> String {
        let place = all_methods().iter().position(|method| *method == self.method);
        let Self { prior, clamp, operators, ranks, .. } = self;
        let place = place.expect("one of them");
        format!("{side} {place} {} {} {operators} {ranks}", *prior as usize, usize::from(*clamp))
    }

    fn parse(words: &str) -> Option<(usize, Self)> {
        let numbers: Vec<usize> =
            words.split(' ').map(|word| word.parse().ok()).collect::<Option<_>>()?;
        let [side, method, prior, clamp, operators, ranks] = numbers[..] else { return None };
        let kinds =
            [PriorKind::None, PriorKind::TotalVariation, PriorKind::Wavelets, PriorKind::Network];
        let prior = kinds[prior];
        let method = all_methods()[method];
        Some((side, Self { method, prior, clamp: clamp == 1, operators, ranks }))
    }

    fn tiling() -> Tiling {
        Tiling {
            patch: 128.into(),
            overlap: 8.into(),
            batch: Batch::AtMost(1),
            ..Tiling::new(Strategy::Overlap)
        }
    }

    fn network() -> Result<NetworkDenoiser> {
        let model = Dncnn { depth: 3, channels: 8, ..Dncnn::default() };
        NetworkDenoiser::new(model.random(1)?, EngineOptions::default())
    }

    fn variation() -> TotalVariation {
        TotalVariation { iterations: 3, tolerance: 0.0 }
    }

    /// In four bases, for a prox of a few iterations.
    fn wavelets(&self) -> Wavelets {
        let bases = "dirac, db1, db2, db8".parse().expect("bases");
        let range = self.clamp.then_some((0.0, 1.0));
        Wavelets { bases, range, iterations: 3, tolerance: 0.0, ..Wavelets::sara() }
    }

    /// The bytes of all ranks together.
    fn foretold(&self, side: usize) -> usize {
        let network = Self::network().expect("a network");
        let job = forecast::Workload {
            image: vec![1, 3, side, side],
            measurements: vec![vec![3, side, side]; self.operators],
            ranks: self.ranks,
            method: self.method,
            inner_iterations: INNER,
            subsets: self.method.subsets(None, self.operators),
            prior: match self.prior {
                PriorKind::None => forecast::PriorWork::None,
                PriorKind::TotalVariation => forecast::PriorWork::TotalVariation {
                    denoiser: Self::variation(),
                    has_range: self.clamp,
                },
                PriorKind::Wavelets => forecast::PriorWork::Wavelets { denoiser: self.wavelets() },
                PriorKind::Network => forecast::PriorWork::Network(Denoising {
                    denoiser: &network,
                    tiling: Self::tiling(),
                    has_range: self.clamp,
                    axes: Axes::Axial,
                }),
            },
        };
        job.forecast().expect("a forecast").process_memory(0..self.ranks)
    }

    fn run(&self, ctx: &Context, side: usize) -> Result<()> {
        let operator =
            |offset| Arc::new(Gains { shape: [3, side, side], offset }) as Arc<dyn Physics>;
        let physics = distribute((0..self.operators).map(operator).collect::<Vec<_>>(), ctx)?;
        let start = Array::from_shape_fn(vec![1, 3, side, side], |at| {
            0.2 + (at[2] * at[3] % 7) as f32 / 14.0
        });
        let data = physics.forward_terms(&start)?.into_local()?;
        let fidelities = match self.method {
            method if method == ProxPrimalDual::METHOD => Fidelities::from(L1),
            method if matches!(method.name, "mlem" | "osem") => {
                Fidelities::from(Poisson::new(0.1, 1.0)?)
            }
            method if backtracking().contains(&method) => Fidelities::from(Poisson::new(0.1, 1.0)?),
            _ => Fidelities::from(L2::default()),
        };
        let problem =
            Problem::new(physics, data, distribute(fidelities, ctx)?)?.with_inner(0.0, INNER);
        let algorithm = self.algorithm(ctx, &problem)?;
        // Momentum begins after a few iterations of backtracking.
        let iterations = if backtracking().contains(&self.method) { 12 } else { 2 };
        let stopping = Stopping { iterations, ..Stopping::default() };
        solve(&problem, &*algorithm, State::new(start), &stopping, None)?;
        Ok(())
    }

    fn algorithm(&self, ctx: &Context, problem: &Problem) -> Result<Box<dyn Algorithm>> {
        let clamp = self.clamp.then_some((0.0, 1.0));
        let range = clamp.map_or(Range::AsIs, |(low, high)| Range::Clamp(low, high));
        let (step, weight) = (0.01, 0.05);
        let variation = || DistributedTotalVariation::new(Self::variation(), ctx);
        let plug = || -> Result<Plug> {
            Ok(match self.prior {
                PriorKind::Network => {
                    let network = distribute_with(Self::network()?, ctx, Self::tiling())?;
                    Plug::new(Arc::new(network), 0.05)
                }
                _ => Plug::new(Arc::new(variation()?), 0.05),
            }
            .range(range))
        };
        let prior = || -> Result<Arc<dyn Prior>> {
            Ok(match self.prior {
                PriorKind::Network => Arc::new(plug()?),
                PriorKind::TotalVariation => {
                    Arc::new(TotalVariationPrior { weight, denoiser: variation()? })
                }
                PriorKind::Wavelets => Arc::new(WaveletPrior { weight, denoiser: self.wavelets() }),
                PriorKind::None => Arc::new(Nothing),
            })
        };
        let method = self.method;
        if backtracking().contains(&method) {
            return Ok(Box::new(Backtracking {
                first_step: step,
                prior: prior()?,
                relaxation: (method == Backtracking::RELAXED_METHOD).then_some(1.0),
                accelerated: method == Backtracking::FISTA_METHOD,
                range: clamp,
                name: method.name,
            }));
        }
        if method == ProxPrimalDual::METHOD {
            let method = ProxPrimalDual { squared_norm: 3.0, weight, step, range: clamp };
            return Ok(match self.prior {
                PriorKind::Wavelets => {
                    Box::new(WaveletProxPrimalDual { method, wavelets: self.wavelets() })
                }
                _ => Box::new(method),
            });
        }
        let relaxation = (method == ProximalGradient::RELAXED_METHOD).then_some(1.0);
        Ok(match method.name {
            "pgd" => Box::new(ProximalGradient { step, prior: prior()?, relaxation }),
            "fista" => Box::new(Fista { step, prior: prior()? }),
            "hqs" => {
                let schedule = Schedule::falling(0.2, 0.05, 4, 0.03, 0.23)?;
                Box::new(HalfQuadratic { prior: plug()?, schedule })
            }
            "admm" => Box::new(Admm { step: 100.0, prior: prior()? }),
            "drs" => Box::new(DouglasRachford { step: 100.0, prior: prior()?, relaxation: 1.0 }),
            "red" => Box::new(RedGradient { step, weight, prior: Arc::new(plug()?) }),
            "red-fixed-point" => Box::new(RedFixedPoint { weight: 0.01, prior: plug()? }),
            "primal-dual" => {
                let method = PrimalDual { lipschitz: 3.0, weight, range: clamp };
                match self.prior {
                    PriorKind::Wavelets => {
                        Box::new(WaveletPrimalDual { method, wavelets: self.wavelets() })
                    }
                    _ => Box::new(method),
                }
            }
            "cg" => Box::new(ConjugateGradient),
            "landweber" => Box::new(Landweber { step, range: clamp }),
            "sirt" | "os-sart" => {
                let subsets = method.subsets(None, self.operators);
                Box::new(Sirt::new(problem, 1.0, subsets, clamp)?)
            }
            "mlem" | "osem" => {
                let subsets = method.subsets(None, self.operators);
                Box::new(ExpectationMaximisation::new(problem, subsets, clamp)?)
            }
            name => return Err(haloscope::Error::argument("method", name)),
        })
    }
}

/// A prior that leaves images as they are.
#[derive(Debug)]
struct Nothing;

impl Prior for Nothing {
    fn prox(&self, image: Image, _step: f64) -> Result<Image> {
        Ok(image)
    }
}

fn backtracking() -> [Method; 4] {
    [
        Backtracking::PGD_METHOD,
        Backtracking::RELAXED_METHOD,
        Backtracking::FISTA_METHOD,
        Backtracking::LANDWEBER_METHOD,
    ]
}

/// Those of the table that have iterations, and those that take their place for some fidelities.
fn all_methods() -> Vec<Method> {
    let others = [ProximalGradient::RELAXED_METHOD, ProxPrimalDual::METHOD];
    let table = METHODS.iter().copied().filter(|method| !method.is_direct());
    table.chain(others).chain(backtracking()).collect()
}

/// The variable that makes the test below a child.
const CHILD: &str = "HALOSCOPE_FORECAST_CHILD";
const CHILD_TEST: &str = "memory_is_foretold_within_10_percent_for_every_method";

/// The bytes that a job takes in a process of its own, in which no other test has used memory.
fn measure(job: &str) -> f64 {
    let child = Command::new(std::env::current_exe().expect("a program"))
        .args(["--exact", CHILD_TEST, "--nocapture", "--test-threads", "1"])
        .env(CHILD, job)
        // What is larger than 32 MB is given back to the system when it is freed. The arrays of these jobs are smaller;
        // they are treated like those of a large one.
        .env("MALLOC_MMAP_THRESHOLD_", "65536")
        .output()
        .expect("the child runs");
    let text = String::from_utf8_lossy(&child.stdout).into_owned();
    let (_, rest) = text.split_once("peak ").unwrap_or_else(|| {
        panic!("{job}: {text}\n{}", String::from_utf8_lossy(&child.stderr));
    });
    rest.split_whitespace().next().expect("a number").parse().expect("bytes")
}

#[test]
fn memory_is_foretold_within_10_percent_for_every_method() {
    if let Some((side, case)) = std::env::var(CHILD).ok().and_then(|text| Case::parse(&text)) {
        let ranks = case.ranks;
        Context::threads(ranks, move |ctx| case.run(ctx, side)).expect("no rank fails");
        println!("peak {}", peak_resident_bytes().expect("on Linux"));
        return;
    }
    let mut cases = Vec::new();
    for method in all_methods() {
        let kinds = [PriorKind::None, PriorKind::TotalVariation, PriorKind::Network];
        // Without a prior the moments of the data term are the same as with one.
        let takes = |prior: &PriorKind| {
            method.check_prior(*prior).is_ok()
                && (*prior != PriorKind::None || method.takes_no_prior())
        };
        let priors: Vec<PriorKind> = kinds.into_iter().filter(takes).collect();
        for prior in &priors {
            // With several priors one of them is clamped: the network, which nothing but a range keeps where Poisson's
            // fidelity is defined.
            let clamps: &[bool] = match (method.clamps, &priors[..]) {
                (true, [_]) => &[false, true],
                (true, _) if *prior == PriorKind::Network => &[true],
                _ => &[false],
            };
            for clamp in clamps {
                let (prior, clamp) = (*prior, *clamp);
                cases.push(Case { method, prior, clamp, operators: 2, ranks: 1 });
            }
        }
    }
    let with = |name: &str, prior, operators, ranks| {
        let method = name.parse().expect("a method");
        Case { method, prior, clamp: true, operators, ranks }
    };
    cases.extend([
        with("pgd", PriorKind::Network, 1, 1),
        with("pgd", PriorKind::Network, 5, 2),
        with("hqs", PriorKind::Network, 4, 2),
        with("fista", PriorKind::TotalVariation, 2, 2),
        with("primal-dual", PriorKind::TotalVariation, 2, 2),
        with("fista", PriorKind::Wavelets, 2, 1),
        with("primal-dual", PriorKind::Wavelets, 2, 1),
        with("primal-dual", PriorKind::Wavelets, 3, 2),
        Case { method: ProxPrimalDual::METHOD, ..with("primal-dual", PriorKind::Wavelets, 2, 1) },
    ]);
    // What the program itself takes, on so many ranks with such a prior.
    let mut programs: BTreeMap<(usize, usize), f64> = BTreeMap::new();
    let mut wrong = Vec::new();
    for case in cases {
        let program = *programs
            .entry((case.prior as usize, case.ranks))
            .or_insert_with(|| measure(&case.words(SMALL)) - case.foretold(SMALL) as f64);
        let foretold = case.foretold(LARGE) as f64;
        let measured = measure(&case.words(LARGE)) - program;
        let images = |bytes: f64| bytes / (12 * LARGE * LARGE) as f64;
        let words = format!(
            "{case:?}: {:.0} MB foretold, {:.0} MB measured; {:.2} and {:.2} images",
            foretold / 1e6,
            measured / 1e6,
            images(foretold),
            images(measured)
        );
        println!("{words}");
        // Thread ranks share a process, and need not reach their peaks at the same moment: what is foretold is the most.
        let least = if case.ranks == 1 { 0.9 } else { 0.7 };
        if !(least * foretold..=1.1 * foretold).contains(&measured) {
            wrong.push(words);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
