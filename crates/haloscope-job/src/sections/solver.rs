//! The method of a job, what it needs of fidelity and prior, and when it stops.

use std::time::Duration;

use haloscope::Result;
use haloscope::array::extremes;
use haloscope::fidelity::{Fidelities, L1, L2, Poisson};
use haloscope::least_squares::NormOptions;
use haloscope::noise::estimate_deviation;
use haloscope::physics::tomography::Window;
use haloscope::solve::{
    Admm, Algorithm, Backtracking, ConjugateGradient, DouglasRachford, FilteredBackProjection,
    Fista, HalfQuadratic, Landweber, Method as Kind, PrimalDual, Problem, ProxPrimalDual,
    ProximalGradient, RedFixedPoint, RedGradient, Schedule, Start, Stopping,
};
use haloscope_comm::{Collectives, Reduction};
use toml::de::DeValue;

use super::files::{self, StartPlan};
use super::operators::Entry;
use super::prior::{Level, PriorKind, PriorPlan, RankedPrior};
use crate::document::{Place, Section, Value};

/// `[fidelity]`.
#[derive(Clone, Debug)]
pub struct FidelityPlan {
    pub fidelities: Fidelities,
    pub name: &'static str,
}

impl Default for FidelityPlan {
    fn default() -> Self {
        Self { fidelities: L2::default().into(), name: "l2" }
    }
}

impl FidelityPlan {
    pub fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<Fidelities>;
        let kinds: [(&str, (&'static str, Read)); 3] = [
            (
                "l2",
                ("l2", |section| {
                    Ok(match section.positive("sigma")? {
                        Some(sigma) => L2::new(sigma)?.into(),
                        None => L2::default().into(),
                    })
                }),
            ),
            ("l1", ("l1", |_| Ok(L1.into()))),
            (
                "poisson",
                ("poisson", |section| {
                    let gain = section.positive("gain")?.unwrap_or(1.0);
                    let background = section.not_negative("background")?.unwrap_or(0.0);
                    Ok(Poisson::new(gain, background)?.into())
                }),
            ),
        ];
        let (name, read) = section.require_choice("kind", &kinds)?;
        Ok(Self { fidelities: read(section)?, name })
    }
}

/// `[solver]`.
#[derive(Clone, Debug)]
pub struct SolverPlan {
    place: Place,
    pub method: Method,
    /// The step size, if it is not to be found.
    step: Option<f64>,
    /// Whether the fidelity is so curved where few counts are expected that every step must be tested.
    backtracks: bool,
    /// Whether the fidelity has a prox instead of a Lipschitz constant.
    is_proximal: bool,
    /// Whether measurements are views, which differ more than neighbours in one.
    is_scan: bool,
    /// How carefully proxes of the data term are computed.
    inner: (f64, usize),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    Pgd {
        relaxation: Option<f64>,
    },
    Fista,
    /// The first and last level, the noise of the measurements if it is not to be found, the weight, and iterations if
    /// given.
    Hqs {
        levels: (f64, f64),
        noise: Option<f64>,
        weight: f64,
        iterations: Option<usize>,
    },
    Admm,
    Drs {
        relaxation: f64,
    },
    Red {
        weight: f64,
    },
    RedFixedPoint {
        weight: f64,
    },
    PrimalDual,
    Cg,
    Landweber,
    /// Filtered back-projection, by the name that the job calls it.
    BackProjection {
        name: &'static str,
        window: Window,
    },
}

/// A step size or a standard deviation, or `auto`.
struct Step(Option<f64>);

impl<'a> Value<'a> for Step {
    fn expected() -> String {
        "a number above 0, or \"auto\"".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        match value.as_str() {
            Some("auto") => Some(Self(None)),
            Some(_) => None,
            None => f64::of(value).filter(|step| *step > 0.0).map(|step| Self(Some(step))),
        }
    }
}

impl SolverPlan {
    pub fn read(section: &Section) -> Result<Self> {
        type Read = fn(&Section) -> Result<Method>;
        let methods: [(&str, Read); 12] = [
            ("pgd", |section| Ok(Method::Pgd { relaxation: section.positive("relaxation")? })),
            ("fista", |_| Ok(Method::Fista)),
            ("hqs", read_schedule),
            ("admm", |_| Ok(Method::Admm)),
            ("drs", |section| {
                let relaxation = section.positive("relaxation")?.unwrap_or(1.0);
                Ok(Method::Drs { relaxation })
            }),
            ("red", |section| Ok(Method::Red { weight: weight(section)? })),
            ("red-fixed-point", |section| Ok(Method::RedFixedPoint { weight: weight(section)? })),
            ("primal-dual", |_| Ok(Method::PrimalDual)),
            ("cg", |_| Ok(Method::Cg)),
            ("landweber", |_| Ok(Method::Landweber)),
            ("fbp", |section| {
                Ok(Method::BackProjection { name: "fbp", window: files::window(section)? })
            }),
            ("fdk", |section| {
                Ok(Method::BackProjection { name: "fdk", window: files::window(section)? })
            }),
        ];
        let method = section.require_choice("method", &methods)?(section)?;
        let step = if method.has_step() { section.get("step")? } else { None };
        let step = step.and_then(|Step(step)| step);
        let mut inner = (1e-6, 50);
        if method.needs_prox() {
            inner.0 = section.not_negative("inner-tolerance")?.unwrap_or(inner.0);
            inner.1 = section.count("inner-iterations")?.unwrap_or(inner.1);
        }
        Ok(Self {
            place: section.place(),
            method,
            step,
            backtracks: false,
            is_proximal: false,
            is_scan: false,
            inner,
        })
    }

    /// With what the fidelity and the operators need of the method.
    #[must_use]
    pub fn suiting(mut self, fidelity: &FidelityPlan, operators: &[Entry]) -> Self {
        self.is_scan = operators.iter().any(Entry::is_scan);
        let takes_steps =
            matches!(self.method, Method::Pgd { .. } | Method::Fista | Method::Landweber);
        self.backtracks = fidelity.name == "poisson" && takes_steps;
        self.is_proximal =
            fidelity.name != "l2" && self.method == Method::PrimalDual && self.step.is_none();
        self
    }

    /// The start whose image is the result, for methods without iterations.
    pub fn direct_start(&self) -> Option<StartPlan> {
        match self.method {
            Method::BackProjection { window, .. } => {
                Some(StartPlan::BackProjection(self.place.clone(), window))
            }
            _ => None,
        }
    }

    /// The algorithm that the fidelity leads to, without its numbers.
    pub fn kind(&self) -> Kind {
        match self.method {
            _ if self.is_proximal => ProxPrimalDual::METHOD,
            Method::Pgd { .. } if self.backtracks => Backtracking::PGD_METHOD,
            Method::Fista if self.backtracks => Backtracking::FISTA_METHOD,
            Method::Landweber if self.backtracks => Backtracking::LANDWEBER_METHOD,
            _ => self.method.kind(),
        }
    }

    /// About how often an iteration applies the operators forward and back, at most.
    pub fn applications(&self) -> f64 {
        match self.method {
            Method::BackProjection { .. } => 0.0,
            _ if self.method.needs_prox() => self.inner.1 as f64 + 1.0,
            _ if self.backtracks => 2.0,
            _ => 1.0,
        }
    }

    /// Whether the norm of the operators is computed first.
    pub fn needs_norm(&self) -> bool {
        self.method.has_step() && self.step.is_none()
    }

    /// Refuses a prior, a fidelity or operators that the method cannot use.
    pub fn check(
        &self,
        prior: &PriorPlan,
        fidelity: &FidelityPlan,
        operators: &[Entry],
    ) -> Result<()> {
        let name = self.method.name();
        let has_prior = !matches!(prior.kind, PriorKind::None);
        let refuse = |reason: String| Err(self.place.refuse(reason));
        match self.method {
            Method::Cg | Method::Landweber | Method::BackProjection { .. } if has_prior => {
                return refuse(format!("{name} takes no prior; pgd and fista take any"));
            }
            Method::BackProjection { .. } if !operators.iter().all(Entry::is_scan) => {
                return refuse(format!("{name} needs a scan as the only operator"));
            }
            Method::Hqs { noise: None, .. } if operators.iter().any(Entry::has_gaps) => {
                return refuse(
                    "`noise` is missing: it cannot be found where pixels are left out, so its standard deviation is \
                     expected"
                        .into(),
                );
            }
            Method::Cg if prior.clamp.is_some() => {
                return refuse(format!("{name} does not support `clamp`; landweber does"));
            }
            Method::PrimalDual if !matches!(prior.kind, PriorKind::TotalVariation { .. }) => {
                return refuse(format!(
                    "{name} takes total variation as its prior, and [prior] has {}; pgd and fista take any",
                    prior.describe()
                ));
            }
            Method::Hqs { .. } | Method::Red { .. } | Method::RedFixedPoint { .. }
                if !has_prior =>
            {
                return refuse(format!("{name} needs a prior that denoises; [prior] has none"));
            }
            _ => (),
        }
        let is_quadratic = fidelity.name == "l2";
        if !is_quadratic && (self.method.needs_prox() || self.method == Method::Cg) {
            return refuse(format!(
                "{name} needs the fidelity l2, and it is {}; pgd, fista, red, primal-dual and landweber \
                 take any",
                fidelity.name
            ));
        }
        let has_own = is_quadratic || self.backtracks || self.is_proximal;
        if !has_own && self.method.has_step() && self.step.is_none() {
            return refuse(format!(
                "`step` is missing: {name} finds none for the fidelity {}, so a number above 0 is expected; \
                 primal-dual needs none",
                fidelity.name
            ));
        }
        Ok(())
    }

    /// The first and the last of the noise levels that the method tells a denoiser, if it has its own.
    pub fn levels(&self) -> Vec<Level> {
        let Method::Hqs { levels: (first, last), .. } = self.method else { return Vec::new() };
        let level = |sigma: f64| Level { place: self.place.clone(), sigma: sigma as f32 };
        vec![level(first), level(last)]
    }

    /// The most iterations for a prox of the data term.
    pub fn inner_iterations(&self) -> usize {
        self.inner.1
    }

    /// The problem, with what the method needs of it.
    pub fn adapt(&self, problem: Problem) -> Problem {
        problem.with_inner(self.inner.0, self.inner.1)
    }

    /// The method, with the step size that it was given or that suits the problem.
    pub fn algorithm(
        &self,
        problem: &Problem,
        prior: &RankedPrior,
        iterations: usize,
    ) -> Result<Box<dyn Algorithm>> {
        let step = || self.step.map_or_else(|| problem.step_size(), Ok);
        if self.backtracks {
            let relaxation = match self.method {
                Method::Pgd { relaxation } => relaxation,
                _ => None,
            };
            return Ok(Box::new(Backtracking {
                first_step: self.step.map_or_else(|| problem.first_step(), Ok)?,
                prior: prior.prox(),
                relaxation,
                accelerated: self.method == Method::Fista,
                range: prior.range(),
                name: self.method.name(),
            }));
        }
        if self.is_proximal {
            return proximal(problem, prior);
        }
        Ok(match &self.method {
            Method::Pgd { relaxation } => Box::new(ProximalGradient {
                step: step()?,
                prior: prior.prox(),
                relaxation: *relaxation,
            }),
            Method::Fista => Box::new(Fista { step: step()?, prior: prior.prox() }),
            Method::Hqs { levels: (first, last), noise, weight, iterations: own } => {
                let iterations = own.unwrap_or(iterations);
                let noise = noise.map_or_else(|| self.noise_of(problem), Ok)?;
                let schedule = Schedule::falling(*first, *last, iterations, noise, *weight)?;
                Box::new(HalfQuadratic { prior: prior.plug()?, schedule })
            }
            Method::Admm => Box::new(Admm { step: step()?, prior: prior.prox() }),
            Method::Drs { relaxation } => Box::new(DouglasRachford {
                step: step()?,
                prior: prior.prox(),
                relaxation: *relaxation,
            }),
            Method::Red { weight } => {
                // The prior adds its weight to the Lipschitz constant.
                let step = match self.step {
                    Some(step) => step,
                    None => 0.99 / (0.99 / problem.step_size()? + weight),
                };
                Box::new(RedGradient {
                    step,
                    weight: *weight,
                    prior: std::sync::Arc::new(prior.plug()?),
                })
            }
            Method::RedFixedPoint { weight } => {
                Box::new(RedFixedPoint { weight: *weight, prior: prior.plug()? })
            }
            Method::PrimalDual => Box::new(PrimalDual {
                lipschitz: 0.99 / step()?,
                weight: prior.weight().unwrap_or_default(),
                range: prior.range(),
            }),
            // Back-projections are never iterated.
            Method::Cg | Method::BackProjection { .. } => Box::new(ConjugateGradient),
            Method::Landweber => Box::new(Landweber { step: step()?, range: prior.range() }),
        })
    }

    /// The noise of the measurements, if the method finds it in them; all ranks call it.
    pub fn found_noise(&self, problem: &Problem) -> Result<Option<f64>> {
        match self.method {
            Method::Hqs { noise: None, .. } => self.noise_of(problem).map(Some),
            _ => Ok(None),
        }
    }

    /// The noise of the measurements, of all operators on average: the same on any number of ranks.
    fn noise_of(&self, problem: &Problem) -> Result<f64> {
        let physics = problem.physics();
        let mut squares = vec![0.0; physics.len()];
        let mut typical = vec![0.0; physics.len()];
        for (index, part) in problem.data().iter() {
            let axes = if self.is_scan && part.ndim() == 4 { 1 } else { 2 };
            squares[index] = estimate_deviation(part, axes).powi(2);
            let sum: f64 = part.iter().map(|value| f64::from(*value).powi(2)).sum();
            typical[index] = sum / part.len().max(1) as f64;
        }
        // Each number has one rank, so that the sums are exact.
        let comm = physics.context().comm();
        comm.all_reduce(Reduction::Sum, &mut squares)?;
        comm.all_reduce(Reduction::Sum, &mut typical)?;
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len().max(1) as f64;
        // Data without noise are as exact as anything is.
        let least = (1e-3 * mean(&typical).sqrt()).max(f64::MIN_POSITIVE.sqrt());
        Ok(mean(&squares).sqrt().max(least))
    }

    /// What of it decides the result and is not in the section itself.
    pub fn fingerprint(&self, iterations: usize) -> String {
        match self.method {
            Method::Hqs { iterations: None, .. } => format!("schedule of {iterations}"),
            _ => String::new(),
        }
    }
}

impl Method {
    /// The method without its numbers.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Pgd { relaxation: None } => ProximalGradient::METHOD,
            Self::Pgd { relaxation: Some(_) } => ProximalGradient::RELAXED_METHOD,
            Self::Fista => Fista::METHOD,
            Self::Hqs { .. } => HalfQuadratic::METHOD,
            Self::Admm => Admm::METHOD,
            Self::Drs { .. } => DouglasRachford::METHOD,
            Self::Red { .. } => RedGradient::METHOD,
            Self::RedFixedPoint { .. } => RedFixedPoint::METHOD,
            Self::PrimalDual => PrimalDual::METHOD,
            Self::Cg => ConjugateGradient::METHOD,
            Self::Landweber => Landweber::METHOD,
            Self::BackProjection { .. } => FilteredBackProjection::METHOD,
        }
    }

    pub fn name(&self) -> &'static str {
        match self {
            Self::BackProjection { name, .. } => name,
            _ => self.kind().name(),
        }
    }

    /// Whether its result comes without iterations.
    pub fn is_direct(&self) -> bool {
        matches!(self, Self::BackProjection { .. })
    }

    /// Whether its steps have a size.
    fn has_step(&self) -> bool {
        !matches!(self, Self::Hqs { .. } | Self::RedFixedPoint { .. } | Self::Cg)
            && !self.is_direct()
    }

    /// Whether it solves for the data term in every step.
    fn needs_prox(&self) -> bool {
        self.kind().has_prox()
    }

    /// Whether it knows the data term of every iteration.
    fn knows_data_term(&self) -> bool {
        !self.needs_prox() && !self.is_direct()
    }
}

/// Primal-dual steps with a dual variable for each operator's measurement. The step of the image follows from its values:
/// those of the first step from zeros.
fn proximal(problem: &Problem, prior: &RankedPrior) -> Result<Box<dyn Algorithm>> {
    let squared_norm = problem.physics().squared_norm(&NormOptions::default())?.estimate;
    let (low, high) = extremes(&problem.start(&Start::Adjoint)?);
    let largest = f64::from(high.max(-low));
    let spread = if largest > 0.0 && largest.is_finite() { largest } else { 1.0 };
    Ok(Box::new(ProxPrimalDual {
        squared_norm,
        weight: prior.weight().unwrap_or_default(),
        step: spread / squared_norm.max(f64::MIN_POSITIVE).sqrt(),
        range: prior.range(),
    }))
}

fn read_schedule(section: &Section) -> Result<Method> {
    let levels = section.require::<Vec<f64>>("levels")?;
    let &[first, last] = &levels[..] else {
        let reason = format!("{levels:?} is given; the first and the last level are expected");
        return Err(section.place_of("levels").refuse(reason));
    };
    let noise = section.get("noise")?.and_then(|Step(noise)| noise);
    let weight = section.positive("weight")?.unwrap_or(0.23);
    let iterations = section.count("schedule-iterations")?;
    // What would not make a schedule is refused here, with its line.
    Schedule::falling(first, last, iterations.unwrap_or(1), noise.unwrap_or(1.0), weight)
        .map_err(|error| section.place_of("levels").refuse(error))?;
    Ok(Method::Hqs { levels: (first, last), noise, weight, iterations })
}

fn weight(section: &Section) -> Result<f64> {
    section.require::<f64>("weight")?;
    Ok(section.positive("weight")?.unwrap_or_default())
}

/// `[stop]`.
#[derive(Clone, Debug)]
pub struct StopPlan {
    pub iterations: usize,
    relative_change: f64,
    target: Option<Target>,
    time_limit: Option<Duration>,
}

/// When the data are matched.
#[derive(Clone, Copy, Debug)]
enum Target {
    DataTerm(f64),
    /// When the residual is that of noise of this standard deviation.
    Discrepancy(f64),
}

impl Default for StopPlan {
    fn default() -> Self {
        Self { iterations: 100, relative_change: 0.0, target: None, time_limit: None }
    }
}

impl StopPlan {
    pub fn read(section: &Section, solver: &SolverPlan, fidelity: &FidelityPlan) -> Result<Self> {
        let standard = Self::default();
        let data_term = section.not_negative("data-term")?.map(Target::DataTerm);
        let discrepancy = section.positive("discrepancy")?.map(Target::Discrepancy);
        let target = data_term.or(discrepancy);
        let knows_data_term = solver.method.knows_data_term() && !solver.is_proximal;
        if target.is_some() && !knows_data_term {
            return Err(section.place().refuse(format!(
                "`data-term` and `discrepancy` are for methods that know the data term of every iteration: \
                 pgd, fista, red, primal-dual, cg and landweber, and not {}",
                solver.method.name()
            )));
        }
        if data_term.is_some() && discrepancy.is_some() {
            let reason = "`data-term` and `discrepancy` are given; one of them is expected";
            return Err(section.place().refuse(reason));
        }
        if discrepancy.is_some() && fidelity.name != "l2" {
            return Err(section.place_of("discrepancy").refuse(format!(
                "it is of Gaussian noise, and the fidelity is {}; `data-term` is for any",
                fidelity.name
            )));
        }
        let minutes = section.positive("minutes")?;
        let time_limit = minutes
            .map(|minutes| Duration::try_from_secs_f64(60.0 * minutes))
            .transpose()
            .map_err(|error| section.place_of("minutes").refuse(error))?;
        Ok(Self {
            iterations: section.count("iterations")?.unwrap_or(standard.iterations),
            relative_change: section.not_negative("relative-change")?.unwrap_or(0.0),
            target,
            time_limit,
        })
    }

    /// The rules for so many measured values, compared by `fidelity`.
    pub fn stopping(&self, values: usize, fidelity: &FidelityPlan) -> Stopping {
        let data_term = self.target.map(|target| match target {
            Target::DataTerm(value) => value,
            Target::Discrepancy(sigma) => {
                let weight = fidelity.fidelities.quadratic_weight().unwrap_or(1.0);
                0.5 * weight * sigma * sigma * values as f64
            }
        });
        Stopping {
            iterations: self.iterations,
            relative_change: self.relative_change,
            data_term,
            time_limit: self.time_limit,
        }
    }
}
