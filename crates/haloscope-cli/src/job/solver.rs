//! The method of a job, what it needs of fidelity and prior, and when it stops.

use std::time::Duration;

use haloscope::Result;
use haloscope::fidelity::{Fidelities, L1, L2, Poisson};
use haloscope::forecast::Method as Kind;
use haloscope::solve::{
    Admm, Algorithm, ConjugateGradient, DouglasRachford, Fista, HalfQuadratic, Landweber,
    PrimalDual, Problem, ProximalGradient, RedFixedPoint, RedGradient, Schedule, Stopping,
};
use toml::de::DeValue;

use super::document::{Place, Section, Value};
use super::prior::{Level, PriorKind, PriorPlan, RankedPrior};

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
    /// How carefully proxes of the data term are computed.
    inner: (f64, usize),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Method {
    Pgd {
        relaxation: Option<f64>,
    },
    Fista,
    /// The first and last level, the noise of the measurements, the weight, and iterations if given.
    Hqs {
        levels: (f64, f64),
        noise: f64,
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
}

/// A step size, or `auto`.
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
        let methods: [(&str, Read); 10] = [
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
        ];
        let method = section.require_choice("method", &methods)?(section)?;
        let step = if method.has_step() { section.get("step")? } else { None };
        let step = step.and_then(|Step(step)| step);
        let mut inner = (1e-6, 50);
        if method.needs_prox() {
            inner.0 = section.not_negative("inner-tolerance")?.unwrap_or(inner.0);
            inner.1 = section.count("inner-iterations")?.unwrap_or(inner.1);
        }
        Ok(Self { place: section.place(), method, step, inner })
    }

    /// Refuses a prior or a fidelity that the method cannot use.
    pub fn check(&self, prior: &PriorPlan, fidelity: &FidelityPlan) -> Result<()> {
        let name = self.method.name();
        let has_prior = !matches!(prior.kind, PriorKind::None);
        let refuse = |reason: String| Err(self.place.refuse(reason));
        match self.method {
            Method::Cg | Method::Landweber if has_prior => {
                return refuse(format!("{name} takes no prior; pgd and fista take any"));
            }
            Method::Cg if prior.clamp.is_some() => {
                return refuse(format!("{name} keeps to no range; landweber takes `clamp`"));
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
        if !is_quadratic && self.method.has_step() && self.step.is_none() {
            return refuse(format!(
                "`step` is missing: the fidelity {} has none of its own, so a number above 0 is expected",
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
        Ok(match &self.method {
            Method::Pgd { relaxation } => Box::new(ProximalGradient {
                step: step()?,
                prior: prior.prox(),
                relaxation: *relaxation,
            }),
            Method::Fista => Box::new(Fista { step: step()?, prior: prior.prox() }),
            Method::Hqs { levels: (first, last), noise, weight, iterations: own } => {
                let iterations = own.unwrap_or(iterations);
                let schedule = Schedule::falling(*first, *last, iterations, *noise, *weight)?;
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
            Method::Cg => Box::new(ConjugateGradient),
            Method::Landweber => Box::new(Landweber { step: step()?, range: prior.range() }),
        })
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
            Self::Pgd { .. } => Kind::ProximalGradient,
            Self::Fista => Kind::Fista,
            Self::Hqs { .. } => Kind::HalfQuadratic,
            Self::Admm => Kind::Admm,
            Self::Drs { .. } => Kind::DouglasRachford,
            Self::Red { .. } => Kind::Red,
            Self::RedFixedPoint { .. } => Kind::RedFixedPoint,
            Self::PrimalDual => Kind::PrimalDual,
            Self::Cg => Kind::ConjugateGradient,
            Self::Landweber => Kind::Landweber,
        }
    }

    pub fn name(&self) -> &'static str {
        self.kind().name()
    }

    /// Whether its steps have a size.
    fn has_step(&self) -> bool {
        !matches!(self, Self::Hqs { .. } | Self::RedFixedPoint { .. } | Self::Cg)
    }

    /// Whether it solves for the data term in every step.
    fn needs_prox(&self) -> bool {
        self.kind().has_prox()
    }

    /// Whether it knows the data term of every iteration.
    fn knows_data_term(&self) -> bool {
        !self.needs_prox()
    }
}

fn read_schedule(section: &Section) -> Result<Method> {
    let levels = section.require::<Vec<f64>>("levels")?;
    let &[first, last] = &levels[..] else {
        let reason = format!("{levels:?} is given; the first and the last level are expected");
        return Err(section.place_of("levels").refuse(reason));
    };
    section.require::<f64>("noise")?;
    let noise = section.positive("noise")?.unwrap_or_default();
    let weight = section.positive("weight")?.unwrap_or(0.23);
    let iterations = section.count("schedule-iterations")?;
    // What would not make a schedule is refused here, with its line.
    Schedule::falling(first, last, iterations.unwrap_or(1), noise, weight)
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
        if target.is_some() && !solver.method.knows_data_term() {
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
