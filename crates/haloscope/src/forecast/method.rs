//! The methods of `solve`, as far as it matters what they hold and which prior they take.

use std::fmt;
use std::str::FromStr;

use super::Prior;
use crate::error::{Error, Result};

/// A method.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Method {
    /// [`ProximalGradient`](crate::solve::ProximalGradient).
    #[default]
    ProximalGradient,
    /// [`Fista`](crate::solve::Fista).
    Fista,
    /// [`HalfQuadratic`](crate::solve::HalfQuadratic).
    HalfQuadratic,
    /// [`Admm`](crate::solve::Admm).
    Admm,
    /// [`DouglasRachford`](crate::solve::DouglasRachford).
    DouglasRachford,
    /// [`RedGradient`](crate::solve::RedGradient).
    Red,
    /// [`RedFixedPoint`](crate::solve::RedFixedPoint).
    RedFixedPoint,
    /// [`PrimalDual`](crate::solve::PrimalDual), whose prior is total variation.
    PrimalDual,
    /// [`ConjugateGradient`](crate::solve::ConjugateGradient), which has no prior.
    ConjugateGradient,
    /// [`Landweber`](crate::solve::Landweber), which has no prior.
    Landweber,
    /// Filtered back-projection, of cone beams by the method of Feldkamp, Davis and Kress: no iterations, no prior, and all
    /// measurements on every rank.
    FilteredBackProjection,
}

impl Method {
    /// All that have iterations.
    pub const ALL: [Self; 10] = [
        Self::ProximalGradient,
        Self::Fista,
        Self::HalfQuadratic,
        Self::Admm,
        Self::DouglasRachford,
        Self::Red,
        Self::RedFixedPoint,
        Self::PrimalDual,
        Self::ConjugateGradient,
        Self::Landweber,
    ];

    /// Its name in messages and job files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ProximalGradient => "pgd",
            Self::Fista => "fista",
            Self::HalfQuadratic => "hqs",
            Self::Admm => "admm",
            Self::DouglasRachford => "drs",
            Self::Red => "red",
            Self::RedFixedPoint => "red-fixed-point",
            Self::PrimalDual => "primal-dual",
            Self::ConjugateGradient => "cg",
            Self::Landweber => "landweber",
            Self::FilteredBackProjection => "fbp",
        }
    }

    /// Whether it takes a prox of the data term, which has iterations inside.
    #[must_use]
    pub fn has_prox(self) -> bool {
        matches!(
            self,
            Self::HalfQuadratic | Self::Admm | Self::DouglasRachford | Self::RedFixedPoint
        )
    }

    /// Whether a network can be its prior.
    #[must_use]
    pub fn takes_network(self) -> bool {
        self != Self::PrimalDual && !self.takes_no_prior()
    }

    /// Whether it has no prior.
    #[must_use]
    pub fn takes_no_prior(self) -> bool {
        matches!(self, Self::ConjugateGradient | Self::Landweber | Self::FilteredBackProjection)
    }

    pub(super) fn check_prior(self, prior: &Prior<'_>) -> Result<()> {
        let needed = match (self, prior) {
            (Self::PrimalDual, Prior::TotalVariation) => return Ok(()),
            (method, Prior::None) if method.takes_no_prior() => return Ok(()),
            (method, _) if method.takes_no_prior() => "takes no prior",
            (Self::PrimalDual, _) => "takes total variation as its prior",
            (Self::HalfQuadratic | Self::Red | Self::RedFixedPoint, Prior::None) => {
                "needs a denoiser"
            }
            _ => return Ok(()),
        };
        Err(Error::argument("forecast", format!("{self} {needed}")))
    }

    /// As the steps in `solve` are written; the iterate and the one before it are always there.
    pub(super) fn held(self, image: &[usize]) -> Held {
        let (channels, axes) = (image[1] as f64, (image.len() - 2) as f64);
        match self {
            Self::ProximalGradient | Self::HalfQuadratic => {
                Held { data: 2.0, prior: 3.0, other: 4.0 }
            }
            Self::Landweber => Held { data: 2.0, prior: 0.0, other: 4.0 },
            Self::Fista => Held { data: 3.0, prior: 4.0, other: 7.0 },
            Self::Admm => Held { data: 4.0, prior: 5.0, other: 6.0 },
            Self::DouglasRachford => Held { data: 3.0, prior: 5.0, other: 6.0 },
            Self::Red => Held { data: 3.0, prior: 2.0, other: 5.0 },
            Self::RedFixedPoint => Held { data: 3.0, prior: 2.0, other: 3.0 },
            Self::ConjugateGradient => Held { data: 4.0, prior: 0.0, other: 6.0 },
            Self::FilteredBackProjection => Held { data: 0.0, prior: 0.0, other: 2.0 },
            // The dual variable and the gradient that it moves along have an array for each axis.
            Self::PrimalDual => {
                Held { data: 2.0 + axes, prior: 0.0, other: 5.0 + 2.0 * axes + 1.0 / channels }
            }
        }
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Method {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        if matches!(name, "fbp" | "fdk") {
            return Ok(Self::FilteredBackProjection);
        }
        Self::ALL.into_iter().find(|method| method.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            Error::argument(
                "solver",
                format!("`{name}` is unknown; there are {names}, fbp and fdk"),
            )
        })
    }
}

/// Arrays as large as the image that a method holds itself.
pub(super) struct Held {
    /// While the gradient or the prox of the data term is computed.
    pub(super) data: f64,
    /// While the prior is.
    pub(super) prior: f64,
    /// At any other time.
    pub(super) other: f64,
}
