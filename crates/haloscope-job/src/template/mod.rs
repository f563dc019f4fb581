//! Problems to try things out with, each as the text of a job file: what `haloscope init` writes and `haloscope demo`
//! runs.

use std::fmt;

use haloscope_nn::models::{Builtin, ModelName};
use serde::{Deserialize, Serialize};

/// Which problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Problem {
    /// A colour photograph from three blurred, noisy frames.
    #[serde(rename = "deblur", alias = "highres-color")]
    Deblur,
    /// A slice from a few noisy projections.
    #[serde(rename = "tomography-2d")]
    Tomography2d,
    /// A volume from a few noisy cone-beam views.
    #[serde(rename = "tomography-3d")]
    Tomography3d,
    /// A colour photograph from four small frames.
    #[serde(rename = "super-resolution")]
    SuperResolution,
    /// A noisy colour photograph.
    #[serde(rename = "denoise")]
    Denoise,
    /// A colour photograph with half of its pixels missing.
    #[serde(rename = "inpainting")]
    Inpainting,
    /// A slice from an MRI scan that measures one of four lines.
    #[serde(rename = "mri")]
    Mri,
    /// A part of the sky from the visibilities of a radio interferometer.
    #[serde(rename = "radio")]
    Radio,
}

/// What a template leaves open.
#[derive(Clone, Debug)]
pub struct Choices {
    /// What it is called, and so is what it writes.
    pub name: String,
    /// Pixels along each side; [`Problem::sides`] are those of a size.
    pub sides: Vec<usize>,
    /// The number of operators: blurs at so many angles, so many frames, or groups of views. That of the template if there
    /// is none; problems with one operator have no other.
    pub operators: Option<usize>,
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
    /// The built-in network for such images.
    pub network: Builtin,
    /// The ending of the result's file.
    pub ending: &'static str,
}

/// The weight of a network against the data that its inventors use.
pub(crate) const DPIR: f64 = 0.23;

/// The standard deviation of the noise of visibilities, in the brightest pixel's flux.
const RADIO_NOISE: f64 = 1.0;

/// What problems were called before: tables and command lines may still have it.
const OLD_NAMES: [(&str, Problem); 1] = [("highres-color", Problem::Deblur)];

/// The different frames of half the size that a picture has.
const PHASES: usize = 4;

/// What so many frames have, from one on.
const WHICH: [&str; PHASES + 1] = [
    "with a quarter of its pixels",
    "each with different pixels of it",
    "each with different pixels of it",
    "each with different pixels of it",
    "of which every fourth has the same pixels of it",
];

/// Iterations that suit total variation and networks.
const ITERATIONS: (usize, usize) = (150, 8);

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Deblur,
        Self::Tomography2d,
        Self::Tomography3d,
        Self::SuperResolution,
        Self::Denoise,
        Self::Inpainting,
        Self::Mri,
        Self::Radio,
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
            Self::Mri => "mri",
            Self::Radio => "radio",
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
            Self::Mri => "A slice from an MRI scan that measures one of four lines",
            Self::Radio => "A part of the sky from the visibilities of a radio interferometer",
        }
    }

    /// The problem of a name, or of what it was called before.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let old = OLD_NAMES.iter().find(|(old, _)| *old == name).map(|(_, problem)| *problem);
        Self::ALL.into_iter().find(|problem| problem.name() == name).or(old)
    }

    /// The channels of its image.
    #[must_use]
    pub fn channels(self) -> usize {
        if self.is_colour() { 3 } else { 1 }
    }

    /// The sides of its image at a size: a square or a cube.
    #[must_use]
    pub fn sides(self, size: usize) -> Vec<usize> {
        vec![size; if self == Self::Tomography3d { 3 } else { 2 }]
    }

    /// The built-in network for its image.
    #[must_use]
    pub fn network(self) -> Builtin {
        Builtin::for_image(self.channels(), self.sides(1).len())
    }

    /// How many operators it has at the most.
    #[must_use]
    pub fn most_operators(self) -> usize {
        match self {
            Self::Deblur | Self::SuperResolution => 10_000,
            Self::Tomography2d | Self::Tomography3d => self.views(),
            Self::Denoise | Self::Inpainting => 1,
            // Coils, and the times at which an array measures.
            Self::Mri => 64,
            Self::Radio => 40,
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
        model(name, self.network())
    }

    /// The text of the job file.
    #[must_use]
    pub fn job(self, choices: &Choices) -> String {
        let sides = &choices.sides;
        let side = |index: usize| sides.get(index).or(sides.last()).copied().unwrap_or(0);
        let length = sides.iter().copied().max().unwrap_or(0);
        let (columns, rows) = match self {
            // What magnification and the opening of the cone make of the sides.
            Self::Tomography3d => (side(1).max(side(2)) * 3 / 2, side(0) * 3 / 2),
            // The diagonal and a little more: 3/2 of the side of a square.
            _ => (((side(0).pow(2) + side(1).pow(2)) as f64 * 9.0 / 8.0).sqrt() as usize, 0),
        };
        let count = choices.operators.unwrap_or(match self {
            Self::Deblur => 3,
            Self::Denoise | Self::Inpainting => 1,
            Self::Mri => 8,
            _ => 4,
        });
        let angles: Vec<f64> = (0..count).map(|i| 180.0 * i as f64 / count as f64).collect();
        let many = |one: &str, more: &str| if count == 1 { one.to_owned() } else { more.into() };
        self.template()
            .replace("{operators}", &frames(count))
            .replace("{prior}", &prior(choices.model.as_deref(), &self.tuning(), self.network()))
            .replace("{name}", &choices.name)
            .replace("{sides}", &format!("{sides:?}"))
            .replace("{rows}", &rows.to_string())
            .replace("{detector}", &columns.to_string())
            .replace("{source}", &(length * 3).to_string())
            .replace("{length}", &length.to_string())
            .replace("{views}", &self.views().to_string())
            .replace("{groups}", &count.to_string())
            .replace("{angles}", &list(angles.iter().map(ToString::to_string)))
            .replace("{noise_of_data}", &short(RADIO_NOISE))
            .replace("{count}", &spelled(count))
            .replace("{frames}", &many("frame", "frames"))
            .replace("{blurs}", &many("blur", "blurs with kernels at different angles"))
            .replace("{which}", WHICH[(count.max(1) - 1).min(PHASES)])
            .replace("{files}", &files(count))
            .replace("{iterations}", &iterations(choices.iterations, choices.model.as_deref()))
    }

    fn is_scan(self) -> bool {
        matches!(self, Self::Tomography2d | Self::Tomography3d)
    }

    fn is_colour(self) -> bool {
        !self.is_scan() && !matches!(self, Self::Mri | Self::Radio)
    }

    /// The views of a scan.
    fn views(self) -> usize {
        if self == Self::Tomography3d { 48 } else { 60 }
    }

    fn template(self) -> &'static str {
        match self {
            Self::Deblur => include_str!("templates/deblur.toml"),
            Self::Tomography2d => include_str!("templates/tomography-2d.toml"),
            Self::Tomography3d => include_str!("templates/tomography-3d.toml"),
            Self::SuperResolution => include_str!("templates/super-resolution.toml"),
            Self::Denoise => include_str!("templates/denoise.toml"),
            Self::Inpainting => include_str!("templates/inpainting.toml"),
            Self::Mri => include_str!("templates/mri.toml"),
            Self::Radio => include_str!("templates/radio.toml"),
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
            // A search at 96 and 256 pixels: bench/runs/2026-11-18-amd-epyc/mri-template.jsonl.
            Self::Mri => ((0.2, 0.01), Some(0.01), DPIR, 0.003),
            // A first guess: no search was made.
            Self::Radio => ((0.2, 0.01), Some(RADIO_NOISE), DPIR, 0.3),
        };
        // Measured scans are in any unit, and attenuations have no upper end.
        let range = if self.is_colour() { Range::Unit } else { Range::Positive };
        Tuning { levels, noise, balance, weight, range }
    }
}

impl Draft {
    /// The text of a job file of this name whose result has another, with a network, or total variation if there is none.
    pub(crate) fn job(&self, name: &str, result: &str, model: Option<&str>) -> String {
        include_str!("templates/from.toml")
            .replace("{prior}", &prior(model, &self.tuning, self.network))
            .replace("{measurements}", self.measurements.trim_end())
            .replace("{operators}", self.operators.trim_end())
            .replace("{title}", &self.title)
            .replace("{result}", result)
            .replace("{iterations}", &iterations(None, model))
            .replace("{name}", name)
    }
}

/// The network that is named, or else a built-in one if this build has them; `None` for total variation.
pub(crate) fn model(name: Option<&str>, network: Builtin) -> Option<String> {
    match name {
        Some("tv") => None,
        Some(name) => Some(name.to_owned()),
        None => cfg!(feature = "builtin").then(|| ModelName::Builtin(network).to_string()),
    }
}

/// `[[operators]]` of so many frames of half the size: every fourth begins with the same pixel.
fn frames(count: usize) -> String {
    let frame =
        "[[operators]]\nkind = \"downsampling\"\nfactor = 2\nfilter = \"gaussian\"\nphase = ";
    let how = "# How the image was measured: it was smoothed, and every second pixel was kept along each side.";
    if count == PHASES {
        return format!(
            "{how} \"all\" makes one frame for\n# each possible first pixel.\n{frame}\"all\""
        );
    }
    let phases = (0..count).map(|index| (index % PHASES / 2, index % 2));
    let frames: Vec<String> =
        phases.map(|(row, column)| format!("{frame}[{row}, {column}]")).collect();
    format!("{how} `phase` is the\n# first pixel that a frame keeps.\n{}", frames.join("\n\n"))
}

/// The names of so many files, or a few of them.
fn files(count: usize) -> String {
    let name = |number: usize| format!("\"frame-{number}.png\"");
    match count {
        0..=4 => list((1..=count).map(name)),
        _ => list([name(1), "…".into(), name(count)].into_iter()),
    }
}

/// A list as TOML has it.
fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

/// A number as prose has it.
fn spelled(number: usize) -> String {
    const WORDS: [&str; 13] = [
        "no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten",
        "eleven", "twelve",
    ];
    WORDS.get(number).map_or_else(|| number.to_string(), |word| (*word).to_owned())
}

fn iterations(given: Option<usize>, model: Option<&str>) -> String {
    let (variation, network) = ITERATIONS;
    given.unwrap_or(if model.is_some() { network } else { variation }).to_string()
}

/// `[prior]` and `[solver]`, for an image that this built-in network is for.
fn prior(model: Option<&str>, tuning: &Tuning, network: Builtin) -> String {
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
        .replace("{network}", &ModelName::Builtin(network).to_string())
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
    fn choices(problem: Problem, operators: Option<usize>) -> Choices {
        let (name, sides) = ("job".to_owned(), problem.sides(32));
        Choices { name, sides, operators, model: None, iterations: None }
    }

    #[test]
    fn every_number_of_operators_makes_a_job() {
        for problem in [
            Problem::Deblur,
            Problem::SuperResolution,
            Problem::Tomography2d,
            Problem::Tomography3d,
        ] {
            for operators in [1, 2, 3, 4, 5, 8, 13] {
                let text = problem.job(&choices(problem, Some(operators)));
                // That of the noise is the only one of TOML.
                assert_eq!(text.matches('{').count(), 1, "{text}");
                let job = crate::Job::parse("job.toml", &text, std::path::Path::new(""));
                let seen = job.and_then(|job| job.operators()).expect(&text);
                assert_eq!(seen.count, operators, "{text}");
            }
            let own = problem.job(&choices(problem, None));
            let own = crate::Job::parse("job.toml", &own, std::path::Path::new("")).expect("a job");
            let count = if problem == Problem::Deblur { 3 } else { 4 };
            assert_eq!(own.operators().expect("operators").count, count);
        }
    }

    #[test]
    fn four_frames_are_all_that_there_are_and_others_begin_again() {
        let of = |count| Problem::SuperResolution.job(&choices(Problem::SuperResolution, count));
        assert_eq!(of(None), of(Some(4)));
        assert!(of(None).contains("phase = \"all\""));
        let five = of(Some(5));
        let phases: Vec<&str> =
            five.lines().filter_map(|line| line.strip_prefix("phase = ")).collect();
        assert_eq!(phases, ["[0, 0]", "[0, 1]", "[1, 0]", "[1, 1]", "[0, 0]"]);
    }

    #[test]
    fn detectors_see_images_of_unequal_sides() {
        let line = |problem: Problem, sides: &[usize], key: &str| {
            let text = problem.job(&Choices { sides: sides.to_vec(), ..choices(problem, None) });
            let found = text.lines().find_map(|line| line.strip_prefix(&format!("{key} = ")));
            found.expect(key).split(" #").next().unwrap_or_default().trim().to_owned()
        };
        let flat = Problem::Tomography2d;
        for side in [16, 17, 33, 256, 4097] {
            assert_eq!(line(flat, &[side, side], "detector"), (side * 3 / 2).to_string());
        }
        // The diagonal is 412.3.
        assert_eq!(line(flat, &[100, 400], "detector"), "437");
        let deep = [64, 16, 16];
        assert_eq!(line(Problem::Tomography3d, &deep, "detector"), "[96, 24]");
        assert_eq!(line(Problem::Tomography3d, &deep, "source-distance"), "192");
        assert_eq!(line(Problem::Tomography3d, &deep, "detector-distance"), "64");
        assert_eq!(line(Problem::Tomography3d, &deep, "size"), "[64, 16, 16]");
    }

    #[test]
    fn problems_have_one_name_and_old_ones_are_known() {
        for problem in Problem::ALL {
            assert_eq!(Problem::named(problem.name()), Some(problem));
            let name = serde_json::to_value(problem).expect("a name");
            assert_eq!(name, problem.name());
            assert_eq!(serde_json::from_value::<Problem>(name).ok(), Some(problem));
        }
        for (old, problem) in OLD_NAMES {
            assert_eq!(Problem::named(old), Some(problem));
            assert_eq!(serde_json::from_value::<Problem>(old.into()).ok(), Some(problem));
        }
        assert_eq!(Problem::named("x-ray"), None);
    }
}
