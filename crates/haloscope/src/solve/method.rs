//! What a method is called, what it takes and what it holds: each algorithm declares it beside its steps, and job files,
//! forecasts and documentation ask here.
//!
//! A new method is one file with an [`Algorithm`](super::Algorithm) and its [`Traits`], and one line in
//! [`METHODS`](super::METHODS).

use std::fmt;
use std::ops::Deref;
use std::str::FromStr;

use super::METHODS;
use super::algorithm::Algorithm;
use super::analysis::Analysis;
use super::ingredients::Ingredients;
use super::keys::{Key, Keys};
use crate::error::{Error, Result};

/// A method by its name, with what is known about it: see [`Traits`].
///
/// ```
/// use haloscope::solve::{Method, PriorKind, Priors};
///
/// let hqs: Method = "hqs".parse()?;
/// assert_eq!(hqs.priors, Priors::Denoiser);
/// let reason = hqs.check_prior(PriorKind::None).expect_err("it needs one").to_string();
/// assert_eq!(
///     reason,
///     "solver: hqs needs a prior that denoises (total variation, wavelets or a network), and there is none"
/// );
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Method(&'static Traits);

/// What others need to know about a method.
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    /// Its name in messages and job files: `pgd`.
    pub name: &'static str,
    /// Other names of it in job files.
    pub aliases: &'static [&'static str],
    /// A few words on it, for documentation.
    pub summary: &'static str,
    /// What a job file may say of it in `[solver]`, besides its name.
    pub keys: &'static [Key],
    /// Which priors it takes.
    pub priors: Priors,
    /// Whether it keeps images in a range if it is asked to.
    pub clamps: bool,
    /// The fidelities that it takes, and how.
    pub fidelities: &'static [(&'static str, Taken)],
    /// What its steps need of the data term.
    pub data_term: DataUse,
    /// Whether it knows the data term of every iteration, so that a run can stop by it.
    pub knows_data_term: bool,
    /// The arrays as large as the image that it holds.
    pub holds: Held,
    /// Keys which, if they are given, make it another: one that holds more.
    pub variants: &'static [(&'static str, Method)],
    /// Refuses values of keys that do not go together, with the name of the key.
    pub check: fn(&Keys) -> std::result::Result<(), (&'static str, String)>,
    /// Makes the algorithm.
    pub make: fn(&Ingredients<'_>) -> Result<Box<dyn Algorithm>>,
}

/// Of methods whose keys go together whatever they are.
#[expect(clippy::unnecessary_wraps, reason = "methods with keys that exclude each other fail")]
pub(super) fn any_keys(_: &Keys) -> std::result::Result<(), (&'static str, String)> {
    Ok(())
}

/// Of methods that solve linear systems for the data.
pub(super) const SQUARES: &[(&str, Taken)] =
    &[("l2", Taken::AsItIs), ("l1", NO_SYSTEM), ("poisson", NO_SYSTEM)];
const NO_SYSTEM: Taken = Taken::Not("it solves linear systems, which squares lead to");
/// Of methods that take gradients with a step that is given or follows from the fidelity.
pub(super) const GRADIENTS: &[(&str, Taken)] =
    &[("l2", Taken::AsItIs), ("l1", Taken::WithStep), ("poisson", Taken::WithStep)];

/// Which priors a method takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priors {
    /// Any, or none.
    Any,
    /// One that denoises: total variation, wavelets or a network.
    Denoiser,
    /// The norm of a linear map: total variation or wavelets.
    Analysis,
    /// None.
    None,
}

/// A prior, as far as it matters to a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PriorKind {
    /// There is none.
    None,
    /// Total variation.
    TotalVariation,
    /// Wavelets.
    Wavelets,
    /// A network.
    Network,
}

/// How a method takes a fidelity.
#[derive(Clone, Copy, Debug)]
pub enum Taken {
    /// As it is.
    AsItIs,
    /// If a step size is given, because none follows from the fidelity.
    WithStep,
    /// By another algorithm of the same name, which finds its steps itself.
    By(Method),
    /// By another algorithm of the same name, unless a step size is given.
    ByUnlessStep(Method),
    /// Not at all, for this reason.
    Not(&'static str),
}

/// What the steps of a method need of the data term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataUse {
    /// Nothing: there are no steps.
    Nothing,
    /// Its gradient, and so many values besides, at least.
    Gradient {
        /// The values.
        values: usize,
    },
    /// The normal operator `AᵀA`.
    Normal,
    /// Its prox, which has iterations inside.
    Prox,
    /// The prox of its conjugate, on the measurements: these have a dual each.
    Dual,
    /// What is projected back of the residuals, one subset of the operators after the other.
    Subsets {
        /// Whether each measurement has weights.
        has_weights: bool,
    },
}

/// The arrays as large as the image that a method holds itself: without those that the data term, the prior or a sum over
/// operators take for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Held {
    /// While the data term is computed.
    pub data: Arrays,
    /// While the prior is, with its input and without its output.
    pub prior: Arrays,
    /// At any other time.
    pub other: Arrays,
    /// What its [state](super::State) has after an iteration, and a checkpoint keeps, besides the duals of measurements.
    pub state: Arrays,
    /// Whether a prior that clamps or scales its input has to copy it, because the method needs it once more.
    pub prior_copies: bool,
}

/// A number of arrays as large as the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrays {
    /// As large as the image.
    pub images: usize,
    /// With an image for each spatial axis or basis: duals of total variation or of wavelets.
    pub duals: usize,
    /// As large as one channel.
    pub channels: usize,
}

impl Arrays {
    /// So many images.
    #[must_use]
    pub const fn images(images: usize) -> Self {
        Self { images, duals: 0, channels: 0 }
    }

    /// In images of a shape (batch, channel, spatial…).
    #[must_use]
    pub fn count(self, shape: &[usize]) -> f64 {
        self.count_with(&Analysis::Differences, shape)
    }

    /// The same where the duals are those of a map.
    #[must_use]
    pub fn count_with(self, map: &Analysis, shape: &[usize]) -> f64 {
        let channels = shape.get(1).copied().unwrap_or(1).max(1);
        (self.images + self.duals * map.places(shape)) as f64
            + self.channels as f64 / channels as f64
    }
}

impl Held {
    /// So many images in each of the moments.
    pub(super) const fn images(data: usize, prior: usize, other: usize) -> Self {
        Self {
            data: Arrays::images(data),
            prior: Arrays::images(prior),
            other: Arrays::images(other),
            state: Arrays::images(1),
            prior_copies: false,
        }
    }

    /// The same with so many images in its state.
    pub(super) const fn with_state(self, images: usize) -> Self {
        Self { state: Arrays::images(images), ..self }
    }
}

impl Method {
    /// The method with these traits.
    #[must_use]
    pub const fn new(traits: &'static Traits) -> Self {
        Self(traits)
    }

    /// Its name in messages and job files.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.0.name
    }

    /// Whether its result comes without iterations.
    #[must_use]
    pub fn is_direct(self) -> bool {
        self.data_term == DataUse::Nothing
    }

    /// Whether it takes a prox of the data term, which has iterations inside.
    #[must_use]
    pub fn has_prox(self) -> bool {
        self.data_term == DataUse::Prox
    }

    /// How many ordered subsets it takes of so many operators, if this many are asked for: by default as many as there are
    /// operators, and 1 if it has none.
    #[must_use]
    pub fn subsets(self, asked: Option<usize>, operators: usize) -> usize {
        match self.key("subsets") {
            Some(_) => asked.unwrap_or(operators),
            None => 1,
        }
    }

    /// Whether a network can be its prior.
    #[must_use]
    pub fn takes_network(self) -> bool {
        matches!(self.priors, Priors::Any | Priors::Denoiser)
    }

    /// Whether it has no prior.
    #[must_use]
    pub fn takes_no_prior(self) -> bool {
        self.priors == Priors::None
    }

    /// The key of this name, if it has one.
    #[must_use]
    pub fn key(self, name: &str) -> Option<&'static Key> {
        self.0.keys.iter().find(|key| key.name == name)
    }

    /// Refuses a prior that it cannot use.
    pub fn check_prior(self, prior: PriorKind) -> Result<()> {
        let needed = match (self.priors, prior) {
            (Priors::Any, _)
            | (
                Priors::Denoiser,
                PriorKind::TotalVariation | PriorKind::Wavelets | PriorKind::Network,
            )
            | (Priors::Analysis, PriorKind::TotalVariation | PriorKind::Wavelets)
            | (Priors::None, PriorKind::None) => return Ok(()),
            (Priors::None, _) => "takes no prior",
            (Priors::Analysis, _) => "takes total variation or wavelets as its prior",
            (Priors::Denoiser, _) => {
                "needs a prior that denoises (total variation, wavelets or a network)"
            }
        };
        let given = match prior {
            PriorKind::None => "there is none",
            PriorKind::TotalVariation => "it is total variation",
            PriorKind::Wavelets => "it is wavelets",
            PriorKind::Network => "it is a network",
        };
        let others = match self.priors {
            Priors::Denoiser => String::new(),
            _ => format!("; {} take any", Self::those(|method| method.priors == Priors::Any)),
        };
        Err(Error::argument("solver", format!("{self} {needed}, and {given}{others}")))
    }

    /// Whether it takes a fidelity; `has_step` is whether a step size is given.
    #[must_use]
    pub fn takes_fidelity(self, fidelity: &str, has_step: bool) -> bool {
        match self.fidelities.iter().find(|(name, _)| *name == fidelity) {
            Some((_, Taken::AsItIs | Taken::By(_) | Taken::ByUnlessStep(_))) => true,
            Some((_, Taken::WithStep)) => has_step,
            Some((_, Taken::Not(_))) | None => false,
        }
    }

    /// Refuses a range for the image, if it cannot keep to one.
    pub fn check_clamp(self) -> Result<()> {
        if self.clamps {
            return Ok(());
        }
        let others = Self::those(|method| method.clamps && method.priors == self.priors);
        Err(Error::argument("solver", format!("{self} does not support `clamp`; {others} do")))
    }

    /// The algorithm with these keys, for this fidelity: itself, or another of the same name.
    pub fn resolve(self, fidelity: &str, keys: &Keys) -> Result<Self> {
        let method = self.for_fidelity(fidelity, keys.number("step").is_some())?;
        let given = method.variants.iter().find(|(key, _)| keys.is_given(key));
        Ok(given.map_or(method, |(_, variant)| *variant))
    }

    /// The algorithm. All ranks call it.
    pub fn build(self, ingredients: &Ingredients<'_>) -> Result<Box<dyn Algorithm>> {
        (self.0.make)(ingredients)
    }

    /// The names of the methods for which something holds: `pgd, fista and red`.
    pub fn those(holds: impl Fn(Self) -> bool) -> String {
        let names: Vec<&str> =
            METHODS.iter().filter(|method| holds(**method)).map(|method| method.name()).collect();
        match names.split_last() {
            None => "none".into(),
            Some((last, [])) => (*last).into(),
            Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        }
    }

    /// The algorithm that takes this fidelity under the method's name: itself, or another. `has_step` is whether a step size is
    /// given.
    pub fn for_fidelity(self, fidelity: &str, has_step: bool) -> Result<Self> {
        let refuse = |reason: String| Err(Error::argument("solver", reason));
        match self.fidelities.iter().find(|(name, _)| *name == fidelity) {
            Some((_, Taken::AsItIs)) => Ok(self),
            Some((_, Taken::WithStep)) if has_step => Ok(self),
            Some((_, Taken::WithStep)) => refuse(format!(
                "`step` is missing: {self} finds none for the fidelity {fidelity}, so a number above 0 is expected; {} find \
                 one or need none",
                Self::those(|method| method.takes_fidelity(fidelity, false))
            )),
            Some((_, Taken::By(method))) => Ok(*method),
            Some((_, Taken::ByUnlessStep(method))) => Ok(if has_step { self } else { *method }),
            Some((_, Taken::Not(reason))) => refuse(format!(
                "{self} does not take the fidelity {fidelity}: {reason}; {} take it",
                Self::those(|method| method.takes_fidelity(fidelity, true))
            )),
            None => {
                let names: Vec<&str> = self.fidelities.iter().map(|(name, _)| *name).collect();
                let names = names.join(", ");
                refuse(format!("{self} does not know the fidelity {fidelity}; it takes {names}"))
            }
        }
    }
}

impl Deref for Method {
    type Target = Traits;

    fn deref(&self) -> &'static Traits {
        self.0
    }
}

impl Default for Method {
    /// Proximal gradient descent.
    fn default() -> Self {
        super::ProximalGradient::METHOD
    }
}

impl PartialEq for Method {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Method {}

impl fmt::Debug for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Method").field(&self.0.name).finish()
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let is_meant = |method: &&Method| method.name == name || method.aliases.contains(&name);
        METHODS.iter().find(is_meant).copied().ok_or_else(|| {
            let names: Vec<&str> = METHODS
                .iter()
                .flat_map(|method| {
                    std::iter::once(method.name).chain(method.aliases.iter().copied())
                })
                .collect();
            let names = names.join(", ");
            Error::argument("solver", format!("`{name}` is unknown; there are {names}"))
        })
    }
}
