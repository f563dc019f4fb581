//! Problems to try things out with, each as the text of a job file: what `haloscope init` writes and `haloscope demo`
//! runs.

use std::fmt;

/// Which problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A colour photograph from three blurred, noisy frames.
    Deblur,
    /// A slice from a few noisy projections.
    Tomography2d,
    /// A volume from a few noisy cone-beam views.
    Tomography3d,
    /// A colour photograph from four small frames.
    SuperResolution,
    /// A noisy colour photograph.
    Denoise,
    /// A colour photograph with half of its pixels missing.
    Inpainting,
}

/// What a template leaves open.
#[derive(Clone, Debug)]
pub struct Choices {
    /// What it is called, and so is what it writes.
    pub name: String,
    /// Pixels along each side.
    pub size: usize,
    /// Weights of a denoiser; total variation if there are none.
    pub model: Option<String>,
    /// Iterations; what suits the prior if there are none.
    pub iterations: Option<usize>,
}

/// The numbers of a prior and its method.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Tuning {
    /// The first and the last level that a network is told.
    pub levels: (f64, f64),
    /// The standard deviation of the measurements' noise; the run finds it if there is none.
    pub noise: Option<f64>,
    /// The weight of a network against the data.
    pub balance: f64,
    /// The weight of total variation.
    pub weight: f64,
    pub range: Range,
}

/// The values of an image.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Range {
    /// From 0 to 1.
    Unit,
    /// In units of their own.
    Any,
    /// In units of their own, in which nothing is negative.
    Positive,
}

/// What a job takes from data: the sections that differ from problem to problem.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    /// What is reconstructed, and from what.
    pub title: String,
    /// `[measurements]`, and `[image]` if it is needed.
    pub measurements: String,
    /// `[[operators]]`, and `[start]` if it is needed.
    pub operators: String,
    pub tuning: Tuning,
    /// Whether the image has three channels of colour.
    pub is_colour: bool,
    /// The ending of the result's file.
    pub ending: &'static str,
}

/// The weight of a network against the data that its inventors use.
pub(crate) const DPIR: f64 = 0.23;

/// Iterations that suit total variation and networks.
const ITERATIONS: (usize, usize) = (150, 8);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Deblur,
        Self::Tomography2d,
        Self::Tomography3d,
        Self::SuperResolution,
        Self::Denoise,
        Self::Inpainting,
    ];

    /// Its name, everywhere.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Deblur => "deblur",
            Self::Tomography2d => "tomography-2d",
            Self::Tomography3d => "tomography-3d",
            Self::SuperResolution => "super-resolution",
            Self::Denoise => "denoise",
            Self::Inpainting => "inpainting",
        }
    }

    /// What it is, in a line.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Deblur => "A colour photograph from three blurred, noisy frames",
            Self::Tomography2d => "A slice from a few noisy projections",
            Self::Tomography3d => "A volume from a few noisy cone-beam views",
            Self::SuperResolution => "A colour photograph from four small frames",
            Self::Denoise => "A noisy colour photograph",
            Self::Inpainting => "A colour photograph with half of its pixels missing",
        }
    }

    /// A size that takes seconds.
    #[must_use]
    pub fn default_size(self) -> usize {
        match self {
            Self::Tomography3d => 64,
            Self::SuperResolution => 384,
            _ => 256,
        }
    }

    /// The network of the prior: the one that is named, or the one of this build that suits the problem; `None` for total
    /// variation.
    #[must_use]
    pub fn model(self, name: Option<&str>) -> Option<String> {
        model(name, !matches!(self, Self::Tomography2d | Self::Tomography3d))
    }

    /// The text of the job file.
    #[must_use]
    pub fn job(self, choices: &Choices) -> String {
        let size = choices.size;
        let views = if self == Self::Tomography3d { 48 } else { 60 };
        self.template()
            .replace("{prior}", &prior(choices.model.as_deref(), &self.tuning()))
            .replace("{name}", &choices.name)
            .replace("{size}", &size.to_string())
            .replace("{detector}", &(size * 3 / 2).to_string())
            .replace("{source}", &(size * 3).to_string())
            .replace("{views}", &views.to_string())
            .replace("{iterations}", &iterations(choices.iterations, choices.model.as_deref()))
    }

    fn template(self) -> &'static str {
        match self {
            Self::Deblur => include_str!("templates/deblur.toml"),
            Self::Tomography2d => include_str!("templates/tomography-2d.toml"),
            Self::Tomography3d => include_str!("templates/tomography-3d.toml"),
            Self::SuperResolution => include_str!("templates/super-resolution.toml"),
            Self::Denoise => include_str!("templates/denoise.toml"),
            Self::Inpainting => include_str!("templates/inpainting.toml"),
        }
    }

    /// What suits the template: the best of a search at several sizes, for both priors. A test compares them.
    fn tuning(self) -> Tuning {
        let (levels, noise, balance, weight) = match self {
            Self::Deblur => ((0.2, 0.03), Some(0.03), 0.1, 0.009),
            Self::SuperResolution => ((0.2, 0.02), Some(0.02), 0.1, 0.003),
            Self::Inpainting => ((0.2, 0.02), Some(0.02), 0.1, 0.012),
            Self::Tomography2d => ((0.2, 0.01), None, DPIR, 0.0004),
            Self::Tomography3d => ((0.2, 0.01), None, DPIR, 0.00015),
            Self::Denoise => ((0.2, 0.05), Some(0.1), DPIR, 0.09),
        };
        // Measured scans are in any unit, and attenuations have no upper end.
        let is_scan = matches!(self, Self::Tomography2d | Self::Tomography3d);
        let range = if is_scan { Range::Positive } else { Range::Unit };
        Tuning { levels, noise, balance, weight, range }
    }
}

impl Draft {
    /// The text of a job file of this name whose result has another, with a network, or total variation if there is none.
    pub fn job(&self, name: &str, result: &str, model: Option<&str>) -> String {
        include_str!("templates/from.toml")
            .replace("{prior}", &prior(model, &self.tuning))
            .replace("{measurements}", self.measurements.trim_end())
            .replace("{operators}", self.operators.trim_end())
            .replace("{title}", &self.title)
            .replace("{result}", result)
            .replace("{iterations}", &iterations(None, model))
            .replace("{name}", name)
    }
}

/// The network that is named, or the one of this build for such images; `None` for total variation.
pub(crate) fn model(name: Option<&str>, is_colour: bool) -> Option<String> {
    let model = match name {
        Some("tv") => return None,
        None if cfg!(not(feature = "builtin")) => return None,
        Some(name) => name,
        None if is_colour => "builtin:color",
        None => "builtin:gray",
    };
    Some(model.to_owned())
}

fn iterations(given: Option<usize>, model: Option<&str>) -> String {
    let (variation, network) = ITERATIONS;
    given.unwrap_or(if model.is_some() { network } else { variation }).to_string()
}

/// `[prior]` and `[solver]`.
fn prior(model: Option<&str>, tuning: &Tuning) -> String {
    let template = match model {
        Some(_) => include_str!("templates/network.toml"),
        None => include_str!("templates/total-variation.toml"),
    };
    let range = match tuning.range {
        Range::Unit => "clamp = [0, 1]                # the values that the image may have",
        Range::Positive => {
            "clamp = [0, inf]              # the values that the image may have: none is negative"
        }
        Range::Any => "# clamp = [0, 1]              # the values that the image may have",
    };
    let noise = tuning.noise.map_or_else(|| "\"auto\"".into(), short);
    let model = model.map(literal).unwrap_or_default();
    template
        .trim_end()
        .replace("{range}", range)
        .replace("{model}", &model)
        .replace("{first}", &short(tuning.levels.0))
        .replace("{last}", &short(tuning.levels.1))
        .replace("{noise}", &noise)
        .replace("{balance}", &short(tuning.balance))
        .replace("{weight}", &short(tuning.weight))
}

/// Text as TOML has it: a literal string, so that backslashes of paths stay what they are.
pub(crate) fn literal(text: &str) -> String {
    if text.contains('\'') { format!("{text:?}") } else { format!("'{text}'") }
}

/// A number with three digits that count, and no more than it needs.
pub(crate) fn short(number: f64) -> String {
    if number == 0.0 || !number.is_finite() {
        return "0".into();
    }
    let digits = (2 - number.abs().log10().floor() as i32).max(0) as usize;
    if digits > 9 {
        return format!("{number:.2e}");
    }
    let text = format!("{number:.digits$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_no_idle_zeros() {
        let numbers = [0.2, 0.0005, 0.012, 1.0, 37.456, 12345.6, 0.000_123_456, 0.0, 1.5e-12];
        let texts = numbers.map(short);
        assert_eq!(
            texts,
            ["0.2", "0.0005", "0.012", "1", "37.5", "12346", "0.000123", "0", "1.50e-12"]
        );
    }

    #[test]
    fn paths_with_quotes_stay_paths() {
        assert_eq!(literal("a\\b.png"), "'a\\b.png'");
        assert_eq!(literal("it's.png"), "\"it's.png\"");
    }
}
