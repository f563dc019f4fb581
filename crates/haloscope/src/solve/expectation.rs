//! Expectation maximisation for counts: MLEM, which is the method of Richardson and Lucy, and its ordered subsets, OSEM.

use super::algorithm::{Algorithm, Setting};
use super::ingredients::Ingredients;
use super::keys::SUBSETS;
use super::method::{DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::ordered_subsets::{self, column_sums};
use super::problem::Problem;
use super::state::State;
use crate::distribute::Residual;
use crate::error::Result;
use crate::image::Image;

/// `x ← x · Aᵀ(z / v) / Aᵀ1`, where `v` are the expected and `z` the measured counts: each step keeps the image positive and makes
/// the measured counts more likely.
///
/// What is below 0 in the initial image is raised to 0, where it stays. With subsets, an iteration takes such a step with every
/// n-th operator, then with the next ones; `Aᵀ1` is that of all operators divided by the number of subsets.
#[derive(Debug)]
pub struct ExpectationMaximisation {
    subsets: usize,
    range: Option<(f32, f32)>,
    columns: Image,
    name: &'static str,
}

const NO_COUNTS: Taken = Taken::Not("it is for counts");

static MLEM: Traits = Traits {
    name: "mlem",
    aliases: &["richardson-lucy"],
    summary: "expectation maximisation (Richardson-Lucy)",
    keys: &[],
    priors: Priors::None,
    clamps: true,
    fidelities: &[("l2", NO_COUNTS), ("l1", NO_COUNTS), ("poisson", Taken::AsItIs)],
    data_term: DataUse::Subsets { has_weights: false },
    knows_data_term: false,
    // The image, the one without negative values and the sums of columns; then the next image.
    holds: Held::images(3, 0, 4),
    variants: &[],
    check: any_keys,
    make: |from| {
        Ok(Box::new(ExpectationMaximisation::from_keys(from, ExpectationMaximisation::METHOD)?))
    },
};

static OSEM: Traits = Traits {
    name: "osem",
    aliases: &[],
    summary: "the same with ordered subsets",
    keys: &[SUBSETS],
    // With subsets also the image between two of them.
    holds: Held::images(4, 0, 5),
    make: |from| {
        Ok(Box::new(ExpectationMaximisation::from_keys(
            from,
            ExpectationMaximisation::SUBSETS_METHOD,
        )?))
    },
    ..MLEM
};

impl ExpectationMaximisation {
    /// MLEM: what it takes and holds.
    pub const METHOD: Method = Method::new(&MLEM);
    /// OSEM.
    pub const SUBSETS_METHOD: Method = Method::new(&OSEM);

    /// MLEM, or OSEM with several subsets, of a problem with so many operators at least and a fidelity of counts. All ranks
    /// call it: the sums take a back-projection.
    pub fn new(problem: &Problem, subsets: usize, range: Option<(f32, f32)>) -> Result<Self> {
        let name = if subsets > 1 { OSEM.name } else { MLEM.name };
        Self::named(problem, subsets, range, name)
    }

    fn from_keys(from: &Ingredients<'_>, method: Method) -> Result<Self> {
        let subsets = method.subsets(from.keys.count("subsets"), from.problem.operators());
        Self::named(from.problem, subsets, from.prior.range, method.name)
    }

    fn named(
        problem: &Problem,
        subsets: usize,
        range: Option<(f32, f32)>,
        name: &'static str,
    ) -> Result<Self> {
        ordered_subsets::check(problem, subsets)?;
        let mut columns = column_sums(problem)?;
        columns.scale(subsets as f32);
        Ok(Self { subsets, range, columns, name })
    }
}

impl Algorithm for ExpectationMaximisation {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let mut start = state.image.clone();
        start.map(|value| value.max(0.0));
        ordered_subsets::pass(setting, &start, self.subsets, |image, subset| {
            let mut next = setting.problem().back_project(image, subset, Residual::Ratio)?;
            next.update_from_two((image, &self.columns), |next, image, column| {
                *next = image * column * next.max(0.0);
            })?;
            next.clamp(self.range);
            Ok(next)
        })
    }
}
