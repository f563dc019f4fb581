//! Half-quadratic splitting with a denoiser of decreasing level: the method of DPIR.

use super::algorithm::{Algorithm, Setting};
use super::keys::{INNER_ITERATIONS, INNER_TOLERANCE, Key, KeyKind, KeyValue, Keys};
use super::method::{DataUse, Held, Method, Priors, SQUARES, Traits};
use super::prior::Plug;
use super::state::State;
use crate::error::{Error, Result};
use crate::image::Image;

/// `x = prox f(z)` with a step that falls with the level, `z = D(x, σ)`; the image is `z`.
///
/// Levels are those that the denoiser is given; where it works on images that are scaled to 0 to 1 ([`Plug::scale`],
/// [`Range::Normalise`](super::Range::Normalise)), steps are of the levels in the values of `z`, so that images in any unit
/// have the same schedule.
#[derive(Clone, Debug)]
pub struct HalfQuadratic {
    /// The denoiser.
    pub prior: Plug,
    /// The level and the step of each iteration.
    pub schedule: Schedule,
}

/// Noise levels and step sizes, one of each for every iteration; the last ones stay.
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule {
    /// The level that the denoiser is given.
    pub levels: Vec<f32>,
    /// The step of the data term's prox.
    pub steps: Vec<f64>,
}

/// Levels that a schedule may have.
const MOST_LEVELS: usize = 1_000_000;

impl Schedule {
    /// DPIR's: levels that fall from `first` to `last` on a logarithmic scale, and steps of `level² / (noise² ·
    /// weight)`. `weight` is 0.23 there, `noise` the standard deviation of the measurements' noise.
    pub fn falling(
        first: f64,
        last: f64,
        iterations: usize,
        noise: f64,
        weight: f64,
    ) -> Result<Self> {
        let positive = |value: f64| value > 0.0 && value.is_finite();
        let is_possible = [first, last, noise, weight].into_iter().all(positive)
            && (1..=MOST_LEVELS).contains(&iterations);
        if !is_possible {
            return Err(Error::argument(
                "schedule",
                format!(
                    "levels from {first} to {last} in {iterations} iterations with noise {noise} and weight \
                     {weight}; all must be above 0, and at most {MOST_LEVELS} iterations"
                ),
            ));
        }
        let level = |index: usize| {
            let share = index as f64 / (iterations - 1).max(1) as f64;
            first * (last / first).powf(share)
        };
        let levels: Vec<f64> = (0..iterations).map(level).collect();
        Ok(Self {
            steps: levels.iter().map(|level| level * level / (noise * noise * weight)).collect(),
            levels: levels.into_iter().map(|level| level as f32).collect(),
        })
    }
}

static HQS: Traits = Traits {
    name: "hqs",
    aliases: &[],
    summary: "half-quadratic splitting with falling levels (DPIR)",
    keys: &[
        Key::required("levels", KeyKind::Pair, "first and last"),
        Key::optional(
            "noise",
            KeyKind::PositiveOrAuto,
            Some(KeyValue::Auto),
            "the standard deviation of the data's noise, or `\"auto\"`, the default, which estimates it from the data",
        ),
        Key::optional("weight", KeyKind::Positive, Some(KeyValue::Number(0.23)), ""),
        Key::optional("schedule-iterations", KeyKind::Count, None, "those of `[stop]`"),
        INNER_ITERATIONS,
        INNER_TOLERANCE,
    ],
    priors: Priors::Denoiser,
    clamps: true,
    fidelities: SQUARES,
    data_term: DataUse::Prox,
    knows_data_term: false,
    // The image, which is where the prox is taken, and what the prox makes of it.
    holds: Held::images(1, 2, 2),
    variants: &[],
    check: |keys| {
        // Whatever is found out makes a schedule.
        let (noise, iterations) = (keys.number("noise").unwrap_or(1.0), 1);
        schedule(keys, noise, iterations).map(drop).map_err(|error| ("levels", error.to_string()))
    },
    make: |from| {
        let noise = from.required("noise")?;
        let schedule = schedule(from.keys, noise, from.iterations)?;
        Ok(Box::new(HalfQuadratic { prior: from.denoiser()?, schedule }))
    },
};

fn schedule(keys: &Keys, noise: f64, iterations: usize) -> Result<Schedule> {
    let (first, last) = keys.pair("levels").ok_or_else(|| {
        let reason = "`levels` is missing; the first and the last level are expected";
        Error::argument("solver", reason)
    })?;
    let iterations = keys.count("schedule-iterations").unwrap_or(iterations);
    Schedule::falling(first, last, iterations, noise, keys.number("weight").unwrap_or(0.23))
}

impl HalfQuadratic {
    /// What it takes and holds.
    pub const METHOD: Method = Method::new(&HQS);
}

impl Algorithm for HalfQuadratic {
    fn name(&self) -> &'static str {
        HQS.name
    }

    fn step(&self, setting: &Setting<'_>, state: &mut State) -> Result<Image> {
        let (levels, steps) = (&self.schedule.levels, &self.schedule.steps);
        let (Some(last), true) = (levels.len().checked_sub(1), levels.len() == steps.len()) else {
            return Err(Error::argument(
                "schedule",
                "as many levels as steps are needed, and at least one",
            ));
        };
        let index = setting.iteration().min(last);
        let unit = self.prior.unit(&state.image)?;
        let near_data = setting.prox(&state.image, unit * unit * steps[index])?;
        let denoiser = self.prior.with_level(levels[index]);
        setting.prior(|| denoiser.denoise_owned(near_data))
    }
}
