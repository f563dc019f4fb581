//! The configurations of each study: quick ones that take minutes on two cores, and the full grids.

mod compare;
mod networks;
mod scaling;

use crate::error::{Error, Result};
use crate::problem::{Problem, Size};
use crate::row::{Backend, Configuration, Study};
use crate::tiles;
use crate::trial::{Settings, Trial};
use haloscope_nn::models::{Builtin, ModelName};

pub use compare::{CompareStudy, Cutting};
pub use networks::{BatchStudy, Budget, MemoryStudy, OverlapStudy};
pub use scaling::ScalingStudy;

/// What is chosen for a problem unless the caller does.
#[derive(Clone, Debug)]
struct Preset {
    sizes: &'static [usize],
    model: &'static str,
}

impl Preset {
    fn of(problem: Problem, full: bool) -> Self {
        let model = match problem {
            Problem::Tomography3d => "drunet:32-64-128-256:2",
            _ => "drunet",
        };
        // The quick ones are in eight blocks and in four tiles of the usual lengths.
        let sizes: &[usize] = match (problem, full) {
            (Problem::Tomography3d, false) => &[80],
            (Problem::Tomography3d, true) => &[128, 256],
            (_, false) => &[384],
            (Problem::Deblur, true) => &[1024, 2048, 4096],
            (_, true) => &[1024, 2048],
        };
        Self { sizes, model }
    }

    /// The sizes that are given, if there are any.
    fn sizes_or(&self, given: &[Size]) -> Vec<Size> {
        if given.is_empty() {
            return self.sizes.iter().map(|size| Size::from(*size)).collect();
        }
        given.to_vec()
    }

    /// The network that is given, if there is one, as it suits the problem.
    fn model_or(&self, given: Option<&ModelName>, problem: Problem) -> Result<ModelName> {
        given.map_or_else(|| Ok(self.model.parse()?), |model| Ok(suiting(model, problem)))
    }
}

/// The network that a problem gets where this one is asked for: in the place of the built-in one for colour, that for its image.
#[must_use]
pub fn suiting(model: &ModelName, problem: Problem) -> ModelName {
    match model {
        ModelName::Builtin(Builtin::Color) => ModelName::Builtin(problem.network()),
        model => model.clone(),
    }
}

/// A configuration on one rank, of which the image is still to be said.
fn alone(study: Study, model: &ModelName, threads: usize) -> Configuration {
    Configuration {
        study,
        system: "haloscope".into(),
        problem: None,
        mode: None,
        backend: Backend::Solo,
        model: model.to_string(),
        height: 0,
        width: 0,
        depth: None,
        patch: None,
        overlap: None,
        batch: None,
        budget: None,
        level: None,
        operators: None,
        distribute: None,
        layout: None,
        device: None,
        ranks: 1,
        threads,
    }
}

/// A configuration for the reconstruction of an image. What cannot be made is better known before the first hour than
/// after it.
fn reconstruction(
    base: Configuration,
    problem: Problem,
    sides: &[usize],
    operators: usize,
    settings: &Settings,
) -> Result<Configuration> {
    let (problem, operators) = (Some(problem), Some(operators));
    let configuration = Configuration { problem, operators, ..base.with_sides(sides) };
    configuration.job(settings, None)?.build()?.operators()?;
    tiles::plan(&configuration)?;
    Ok(configuration)
}

fn trial(configuration: Configuration, settings: &Settings, repetitions: usize) -> Trial {
    let repetitions = (0..repetitions).collect();
    Trial { configuration, settings: settings.clone(), repetitions, truth: None }
}

fn check_list(what: &'static str, list: &[usize]) -> Result<()> {
    if list.is_empty() || list.contains(&0) {
        let reason = format!("{list:?} were given; at least one is needed, all of at least 1");
        return Err(Error::argument(what, reason));
    }
    Ok(())
}

/// Refuses a study in which nothing would happen.
fn check_trials(trials: Vec<Trial>) -> Result<Vec<Trial>> {
    let Some(trial) = trials.first() else {
        return Err(Error::argument("study", "no configuration is left; give longer lists"));
    };
    let settings = &trial.settings;
    let counts = [trial.repetitions.len(), trial.configuration.threads, settings.iterations];
    if counts.contains(&0) {
        let [repetitions, threads, iterations] = counts;
        return Err(Error::argument(
            "study",
            format!(
                "{repetitions} repetitions of {iterations} iterations on {threads} threads; each is at least 1"
            ),
        ));
    }
    let is_flat = |trial: &&Trial| trial.configuration.problem != Some(Problem::Tomography3d);
    if let Some(trial) = trials.iter().find(is_flat).filter(|_| settings.volume.is_some()) {
        let problem = trial.configuration.problem.map_or("none", Problem::name);
        return Err(Error::argument(
            "volume",
            format!(
                "it is for tomography-3d, and {problem} is asked for; use `--problem tomography-3d`"
            ),
        ));
    }
    if settings.noise.is_some_and(|noise| !(noise.is_finite() && noise >= 0.0)) {
        return Err(Error::argument("noise", "it is a number of at least 0"));
    }
    Ok(trials)
}

#[cfg(test)]
mod tests;
