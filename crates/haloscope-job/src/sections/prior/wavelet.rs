//! Wavelets as a prior: one orthogonal basis or several, as in SARA.

use haloscope::Result;
use haloscope::denoise::{Bases, Wavelets};
use toml::de::DeValue;

use super::PriorKind;
use crate::document::{Section, Value};

pub(super) fn read(section: &Section) -> Result<PriorKind> {
    let bases = match section.get::<Names>("bases")? {
        Some(Names(names)) => {
            names.parse().map_err(|error| section.place_of("bases").refuse(error))?
        }
        None => Bases::default(),
    };
    let standard = if bases == Bases::SARA { Wavelets::sara() } else { Wavelets::default() };
    let denoiser = Wavelets {
        bases,
        scales: section.count("scales")?.unwrap_or(standard.scales),
        coarse: section.get("coarse")?.unwrap_or(standard.coarse),
        range: None,
        iterations: section.count("iterations")?.unwrap_or(standard.iterations),
        tolerance: section.not_negative("tolerance")?.unwrap_or(standard.tolerance),
    };
    section.require::<f64>("weight")?;
    let weight = section.not_negative("weight")?.unwrap_or_default();
    Ok(PriorKind::Wavelets { weight, denoiser })
}

/// A name, or a list of them.
struct Names(String);

impl<'a> Value<'a> for Names {
    fn expected() -> String {
        "\"sara\", or names of bases such as \"db4\" or [\"dirac\", \"db1\"]".into()
    }

    fn of(value: &'a DeValue<'a>) -> Option<Self> {
        if let Some(name) = value.as_str() {
            return Some(Self(name.into()));
        }
        let names: Option<Vec<&str>> =
            value.as_array()?.iter().map(|name| name.get_ref().as_str()).collect();
        names.map(|names| Self(names.join(",")))
    }
}
