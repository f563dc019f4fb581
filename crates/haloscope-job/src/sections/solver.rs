//! The method of a job, what it needs of fidelity and prior, and when it stops.

use std::time::Duration;

use haloscope::fidelity::{Ball, Fidelities, L1, L2, Poisson};
use haloscope::image::Layout;
use haloscope::solve::{
    Algorithm, DataUse, Ingredients, Key, KeyKind, KeyValue, Keys, METHODS, Method, PriorForms,
    Problem, Stopping, estimate_noise,
};
use haloscope::{Array, Error, Result};
use toml::de::DeValue;

use super::files::{self, StartPlan};
use super::operators::Entry;
use super::prior::{Level, PriorPlan};
use crate::document::{Place, Section, Value};

/// The values of a measurement in shards that are brought together to estimate their noise: 64 MB.
const MOST_GATHERED: usize = 1 << 24;

type ReadFidelity = fn(&Section) -> Result<Fidelities>;

/// What reads a fidelity, by what its `kind` says.
pub(crate) const FIDELITIES: [(&str, ReadFidelity); 4] = [
    ("l2", |section| {
        Ok(match section.positive("sigma")? {
            Some(sigma) => L2::new(sigma)?.into(),
            None => L2::default().into(),
        })
    }),
    ("l1", |_| Ok(L1.into())),
    ("poisson", |section| {
        let gain = section.positive("gain")?.unwrap_or(1.0);
        let background = section.not_negative("background")?.unwrap_or(0.0);
        Ok(Poisson::new(gain, background)?.into())
    }),
    ("ball", |section| {
        let radius = section.not_negative("radius")?.ok_or_else(|| {
            section
                .place()
                .refuse("`radius` is missing: how far from its data each measurement may be")
        })?;
        Ok(Ball::new(radius)?.into())
    }),
];

/// `[fidelity]`.
#[derive(Clone, Debug)]
pub(crate) struct FidelityPlan {
    pub fidelities: Fidelities,
    pub name: &'static str,
}

impl Default for FidelityPlan {
    fn default() -> Self {
        Self { fidelities: L2::default().into(), name: "l2" }
    }
}

impl FidelityPlan {
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let named = FIDELITIES.map(|(name, read)| (name, (name, read)));
        let (name, read) = section.require_choice("kind", &named)?;
        Ok(Self { fidelities: read(section)?, name })
    }
}

/// `[solver]`.
#[derive(Clone, Debug)]
pub(crate) struct SolverPlan {
    place: Place,
    /// The method, as the job calls it.
    pub name: &'static str,
    pub method: Method,
    /// The algorithm that the method is for the job's fidelity and keys.
    pub algorithm: Method,
    keys: Keys,
    /// Whether measurements are views, which differ more than neighbours in one.
    is_scan: bool,
}

/// A number above 0, or `auto`.
struct OrAuto(Option<f64>);

impl<'a> Value<'a> for OrAuto {
    fn expected() -> String {
        KeyKind::PositiveOrAuto.expected().into()
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
    /// Reads the keys that the method lists.
    pub(crate) fn read(section: &Section) -> Result<Self> {
        let names = |method: &Method| {
            let method = *method;
            let names = std::iter::once(method.name()).chain(method.aliases.iter().copied());
            names.map(move |name| (name, (name, method)))
        };
        let choices: Vec<_> = METHODS.iter().flat_map(names).collect();
        let (name, method) = section.require_choice("method", &choices)?;
        let mut keys = Keys::new(method);
        for key in method.keys {
            if let Some(value) = read_key(section, key)? {
                keys = keys
                    .with(key.name, value)
                    .map_err(|error| section.place_of(key.name).refuse(reason_of(error)))?;
            }
        }
        keys.check().map_err(|(key, reason)| section.place_of(key).refuse(reason))?;
        let place = section.place();
        Ok(Self { place, name, method, algorithm: method, keys, is_scan: false })
    }

    /// With what the fidelity and the operators need of the method.
    #[must_use]
    pub(crate) fn suiting(mut self, fidelity: &FidelityPlan, operators: &[Entry]) -> Self {
        self.is_scan = operators.iter().any(Entry::is_scan);
        // A fidelity that it does not take is refused when all sections are read.
        self.algorithm = self.method.resolve(fidelity.name, &self.keys).unwrap_or(self.method);
        self
    }

    /// The start whose image is the result, for methods without iterations.
    pub(crate) fn direct_start(&self) -> Option<StartPlan> {
        let window = self.keys.window("window").filter(|_| self.method.is_direct())?;
        Some(StartPlan::BackProjection(self.place.clone(), window))
    }

    /// About how often an iteration applies the operators forward and back, at most.
    pub(crate) fn applications(&self) -> f64 {
        match self.algorithm.data_term {
            DataUse::Nothing => 0.0,
            DataUse::Prox => self.inner_iterations() as f64 + 1.0,
            DataUse::Gradient { values } if values > 0 => 2.0,
            DataUse::Gradient { .. }
            | DataUse::Normal
            | DataUse::Dual
            | DataUse::Subsets { .. } => 1.0,
        }
    }

    /// Whether the norm of the operators is computed first.
    pub(crate) fn needs_norm(&self) -> bool {
        self.keys.is_auto("step")
    }

    /// Refuses a prior, a fidelity or operators that the method cannot use.
    pub(crate) fn check(
        &self,
        prior: &PriorPlan,
        fidelity: &FidelityPlan,
        operators: &[Entry],
    ) -> Result<()> {
        let refuse = |error: Error| self.place.refuse(reason_of(error));
        self.method.check_prior(prior.form()).map_err(refuse)?;
        if self.method.is_direct() && !operators.iter().all(Entry::is_scan) {
            let reason = format!("{} needs a scan as the only operator", self.name);
            return Err(self.place.refuse(reason));
        }
        if self.finds_noise() && operators.iter().any(Entry::has_gaps) {
            return Err(self.place.refuse(
                "`noise` is missing: it cannot be found where pixels are left out, so its standard deviation is expected",
            ));
        }
        if prior.clamp.is_some() {
            self.method.check_clamp().map_err(refuse)?;
        }
        self.method.resolve(fidelity.name, &self.keys).map(drop).map_err(refuse)
    }

    /// The first and the last of the noise levels that the method tells a denoiser, if it has its own.
    pub(crate) fn levels(&self) -> Vec<Level> {
        let Some((first, last)) = self.keys.pair("levels") else { return Vec::new() };
        let level = |sigma: f64| Level { place: self.place.clone(), sigma: sigma as f32 };
        vec![level(first), level(last)]
    }

    /// The most iterations for a prox of the data term; 0 for methods without one.
    pub(crate) fn inner_iterations(&self) -> usize {
        self.keys.count("inner-iterations").unwrap_or(0)
    }

    /// The ordered subsets of so many operators; 1 for methods without any.
    pub(crate) fn subsets(&self, operators: usize) -> usize {
        self.algorithm.subsets(self.keys.count("subsets"), operators)
    }

    /// The problem, with what the method needs of it.
    pub(crate) fn adapt(&self, problem: Problem) -> Problem {
        match (self.keys.number("inner-tolerance"), self.keys.count("inner-iterations")) {
            (Some(tolerance), Some(iterations)) => problem.with_inner(tolerance, iterations),
            _ => problem,
        }
    }

    /// The method, with what is found out, and the noise of the measurements if that was found; all ranks call it.
    pub(crate) fn build(
        &self,
        problem: &Problem,
        prior: PriorForms,
        iterations: usize,
    ) -> Result<(Box<dyn Algorithm>, Option<f64>)> {
        let noise = if self.finds_noise() { Some(self.noise_of(problem)?) } else { None };
        let keys = match noise {
            Some(noise) => self.keys.clone().with("noise", KeyValue::Number(noise))?,
            None => self.keys.clone(),
        };
        let from = Ingredients { problem, prior, keys: &keys, iterations };
        Ok((self.algorithm.build(&from)?, noise))
    }

    /// Whether the noise of the measurements is to be found in them.
    fn finds_noise(&self) -> bool {
        self.keys.is_auto("noise")
    }

    /// Whether it estimates noise from measurements, the largest of which has so many values, and could not do so in shards.
    pub(crate) fn needs_whole_measurements(&self, largest: Option<usize>) -> bool {
        self.finds_noise() && largest.is_some_and(|values| values > MOST_GATHERED)
    }

    /// The noise of the measurements, of all operators on average: the same on any number of ranks.
    fn noise_of(&self, problem: &Problem) -> Result<f64> {
        let axes = |_, part: &Array| if self.is_scan && part.ndim() == 4 { 1 } else { 2 };
        estimate_noise(problem, axes, |index, part| self.whole_part(problem, index, part))
    }

    /// All of a measurement of which each rank has a part; `None` if the ranks have whole ones.
    fn whole_part(&self, problem: &Problem, index: usize, part: &Array) -> Result<Option<Array>> {
        let image = problem.part_image(index, part.clone())?;
        if image.layout() == &Layout::Replicated {
            return Ok(None);
        }
        let values: usize = image.shape().iter().product();
        if values > MOST_GATHERED {
            return Err(self.place.refuse(format!(
                "`noise` is missing: it is not estimated from {values} values in shards, of which {MOST_GATHERED} are the \
                 most, so its standard deviation is expected"
            )));
        }
        image.gather().map(Some)
    }

    /// What of it decides the result and is not in the section itself.
    pub(crate) fn fingerprint(&self, iterations: usize) -> String {
        let key = "schedule-iterations";
        if self.method.key(key).is_some() && !self.keys.is_given(key) {
            return format!("schedule of {iterations}");
        }
        String::new()
    }
}

/// What is written at a key, if it is there.
fn read_key(section: &Section, key: &Key) -> Result<Option<KeyValue>> {
    let name = key.name;
    if key.is_required {
        match key.kind {
            KeyKind::Pair => drop(section.require::<Vec<f64>>(name)?),
            _ => drop(section.require::<f64>(name)?),
        }
    }
    Ok(match key.kind {
        KeyKind::Positive => section.positive(name)?.map(KeyValue::Number),
        KeyKind::NotNegative => section.not_negative(name)?.map(KeyValue::Number),
        KeyKind::PositiveOrAuto => {
            section.get(name)?.map(|OrAuto(number)| number.map_or(KeyValue::Auto, KeyValue::Number))
        }
        KeyKind::Count => section.count(name)?.map(KeyValue::Count),
        KeyKind::Pair => match section.get::<Vec<f64>>(name)?.as_deref() {
            None => None,
            Some(&[first, last]) => Some(KeyValue::Pair(first, last)),
            Some(other) => {
                let expected = key.kind.expected();
                let reason = format!("{other:?} is given; {expected}, are expected");
                return Err(section.place_of(name).refuse(reason));
            }
        },
        KeyKind::Window => Some(KeyValue::Window(files::window(section)?)),
    })
}

/// What is wrong, without the word for what it is wrong with: the place in the job file says that.
fn reason_of(error: Error) -> String {
    match error {
        Error::Argument { reason, .. } => reason,
        other => other.to_string(),
    }
}

/// `[stop]`.
#[derive(Clone, Debug)]
pub(crate) struct StopPlan {
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
    pub(crate) fn read(
        section: &Section,
        solver: &SolverPlan,
        fidelity: &FidelityPlan,
    ) -> Result<Self> {
        let standard = Self::default();
        let data_term = section.not_negative("data-term")?.map(Target::DataTerm);
        let discrepancy = section.positive("discrepancy")?.map(Target::Discrepancy);
        let target = data_term.or(discrepancy);
        if target.is_some() && !solver.algorithm.knows_data_term {
            return Err(section.place().refuse(format!(
                "`data-term` and `discrepancy` are for methods that know the data term of every iteration: {}; this is \
                 {}{}",
                Method::those(|method| method.knows_data_term),
                solver.name,
                if solver.method.knows_data_term { " without a `step`, which does not know it" } else { "" }
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
    pub(crate) fn stopping(&self, values: usize, fidelity: &FidelityPlan) -> Stopping {
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
