//! SIRT and its ordered subsets, OS-SART: gradient steps that are scaled by the sums of rows and columns, so that no step size
//! is needed.

use super::algorithm::{Algorithm, Setting};
use super::ingredients::Ingredients;
use super::keys::{CORRECTION, SUBSETS};
use super::method::{DataUse, Held, Method, Priors, Taken, Traits, any_keys};
use super::ordered_subsets::{self, column_sums, row_sums};
use super::problem::Problem;
use super::state::State;
use crate::distribute::Residual;
use crate::error::Result;
use crate::image::Image;
use crate::measurements::Measurements;

/// `x ← x + λ C Aᵀ R (y − A x)`, clamped to a range if there is one, where `R` is one over the sums of the rows of `A` and `C`
/// one over those of its columns.
///
/// With subsets, an iteration takes such a step with every n-th operator, then with the next ones, until all have had their turn.
/// The sums of columns are those of all operators divided by the number of subsets, which is what subsets of evenly spread
/// views have.
#[derive(Debug)]
pub struct Sirt {
    relaxation: f64,
    subsets: usize,
    range: Option<(f32, f32)>,
    rows: Measurements,
    columns: Image,
    name: &'static str,
}

/// Of methods that are defined by squares.
const LINE_INTEGRALS: &[(&str, Taken)] =
    &[("l2", Taken::AsItIs), ("l1", NOT_WEIGHTED), ("poisson", NOT_WEIGHTED)];
const NOT_WEIGHTED: Taken = Taken::Not("it minimises weighted squares");

static SIRT: Traits = Traits {
    name: "sirt",
    aliases: &[],
    summary: "simultaneous iterative reconstruction",
    keys: &[CORRECTION],
    priors: Priors::None,
    clamps: true,
    fidelities: LINE_INTEGRALS,
    data_term: DataUse::Subsets { has_weights: true },
    knows_data_term: false,
    // The image and the sums of columns; then also what is projected back, which becomes the next image.
    holds: Held::images(2, 0, 3),
    variants: &[],
    check: any_keys,
    make: |from| Ok(Box::new(Sirt::from_keys(from, Sirt::METHOD)?)),
};

static OS_SART: Traits = Traits {
    name: "os-sart",
    summary: "the same with ordered subsets",
    keys: &[CORRECTION, SUBSETS],
    make: |from| Ok(Box::new(Sirt::from_keys(from, Sirt::SUBSETS_METHOD)?)),
    // With subsets also the image between two of them.
    holds: Held::images(3, 0, 4),
    ..SIRT
};

impl Sirt {
    /// SIRT: what it takes and holds.
    pub const METHOD: Method = Method::new(&SIRT);
    /// OS-SART.
    pub const SUBSETS_METHOD: Method = Method::new(&OS_SART);

    /// SIRT, or OS-SART with several subsets, of a problem with so many operators at least. All ranks call it: the sums take a
    /// projection and a back-projection.
    pub fn new(
        problem: &Problem,
        relaxation: f64,
        subsets: usize,
        range: Option<(f32, f32)>,
    ) -> Result<Self> {
        let name = if subsets > 1 { OS_SART.name } else { SIRT.name };
        Self::named(problem, relaxation, subsets, range, name)
    }

    fn from_keys(from: &Ingredients<'_>, method: Method) -> Result<Self> {
        let relaxation = from.keys.number("relaxation").unwrap_or(1.0);
        let subsets = method.subsets(from.keys.count("subsets"), from.problem.operators());
        Self::named(from.problem, relaxation, subsets, from.prior.range, method.name)
    }

    fn named(
        problem: &Problem,
        relaxation: f64,
        subsets: usize,
        range: Option<(f32, f32)>,
        name: &'static str,
    ) -> Result<Self> {
        ordered_subsets::check(problem, subsets)?;
        let mut columns = column_sums(problem)?;
        let rows = row_sums(problem)?;
        columns.scale(subsets as f32);
        Ok(Self { relaxation, subsets, range, rows, columns, name })
    }
}

impl Algorithm for Sirt {
    fn name(&self) -> &'static str {
        self.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        ordered_subsets::pass(setting, &state.image, self.subsets, |image, subset| {
            let residual = Residual::Weighted(&self.rows);
            let mut next = setting.problem().back_project(image, subset, residual)?;
            let relaxation = self.relaxation as f32;
            next.update_from_two((image, &self.columns), |next, image, column| {
                *next = image + relaxation * column * *next;
            })?;
            next.clamp(self.range);
            Ok(next)
        })
    }
}
