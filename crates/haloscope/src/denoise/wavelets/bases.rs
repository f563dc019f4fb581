//! Sets of orthogonal bases: pixels and Daubechies's wavelets.

use std::fmt;
use std::str::FromStr;

use super::filters::MOST_ORDER;
use crate::error::{Error, Result};

/// One or several orthogonal bases, each at most once: `dirac`, the pixels themselves, and `db1` to `db8`.
///
/// ```
/// use haloscope::denoise::Bases;
///
/// let bases: Bases = "db2, db4".parse()?;
/// assert_eq!(bases.len(), 2);
/// assert_eq!("sara".parse::<Bases>()?, Bases::SARA);
/// assert_eq!(bases.to_string(), "db2, db4");
/// # Ok::<(), haloscope::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bases(u16);

impl Bases {
    /// Those of sparsity averaging: `dirac` and `db1` to `db8`.
    pub const SARA: Self = Self(0x1ff);

    /// The wavelets with so many vanishing moments, 1 to 8; 0 is the pixels.
    pub fn daubechies(order: usize) -> Result<Self> {
        if order > MOST_ORDER {
            let reason = format!("db{order} is given; dirac and db1 to db{MOST_ORDER} are known");
            return Err(Error::argument("wavelets", reason));
        }
        Ok(Self(1 << order))
    }

    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// How many there are.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is always one")]
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// Their orders, 0 for pixels, from the lowest.
    pub(super) fn orders(self) -> impl Iterator<Item = usize> {
        (0..=MOST_ORDER).filter(move |order| self.0 & (1 << order) != 0)
    }
}

impl Default for Bases {
    /// `db4`.
    fn default() -> Self {
        Self(1 << 4)
    }
}

impl fmt::Display for Bases {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::SARA {
            return f.write_str("sara");
        }
        let name = |order| if order == 0 { "dirac".into() } else { format!("db{order}") };
        f.write_str(&self.orders().map(name).collect::<Vec<String>>().join(", "))
    }
}

impl FromStr for Bases {
    type Err = Error;

    /// `sara`, or names with commas or spaces between them.
    fn from_str(names: &str) -> Result<Self> {
        let unknown = |name: &str| {
            let reason = format!(
                "the basis {name:?} is unknown; sara, dirac, haar and db1 to db{MOST_ORDER} are expected"
            );
            Error::argument("wavelets", reason)
        };
        let mut bases: Option<Self> = None;
        for name in names.split([',', ' ']).filter(|name| !name.is_empty()) {
            let next = match name {
                "sara" => Self::SARA,
                "dirac" => Self(1),
                "haar" => Self(1 << 1),
                _ => {
                    let order = name.strip_prefix("db").and_then(|order| order.parse().ok());
                    let order = order.filter(|order| (1..=MOST_ORDER).contains(order));
                    Self::daubechies(order.ok_or_else(|| unknown(name))?)?
                }
            };
            bases = Some(bases.map_or(next, |bases| bases.and(next)));
        }
        bases.ok_or_else(|| unknown(names))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_and_written() -> Result<()> {
        for name in ["sara", "dirac", "db8", "dirac, db1, db3"] {
            assert_eq!(name.parse::<Bases>()?.to_string(), name);
        }
        assert_eq!(Bases::SARA.len(), 9);
        assert_eq!("haar db1".parse::<Bases>()?, Bases::daubechies(1)?);
        for name in ["db9", "db0", "sym4", "", "db"] {
            let error = name.parse::<Bases>().expect_err(name).to_string();
            assert!(error.contains("db1 to db8"), "{error}");
        }
        Ok(())
    }
}
