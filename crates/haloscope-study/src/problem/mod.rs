//! The problems that are reconstructed, made here at any size from a seed: nothing is downloaded. A scan may be of a
//! [`Volume`] of the user's instead.
//!
//! A [`Scene`] is a problem at a size. Its operators come from a factory, so that a rank makes its own only; all
//! of them have no negative weights, from which [`step_size`] gets a safe step after a few applications.

mod blurs;
mod frames;
mod scans;
mod volume;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use haloscope::array::squared_norm;
use haloscope::distribute::{DistributedStack, Factory};
use haloscope::noise::Noise;
use haloscope::phantom::{SheppLogan, Table, landscape};
use haloscope::physics::Physics;
use haloscope::{Array, Measurements};
use haloscope_comm::Collectives;
use serde::{Deserialize, Serialize};

pub use volume::Volume;
pub(crate) use volume::read_prepared;

use crate::error::{Error, Result};

/// Which problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Problem {
    /// A colour picture from frames that are blurred in different directions.
    #[serde(rename = "highres-color")]
    HighresColor,
    /// A slice from parallel beams, 100 views in groups.
    #[serde(rename = "tomography-2d")]
    Tomography2d,
    /// A volume from cone beams, 64 views in groups.
    #[serde(rename = "tomography-3d")]
    Tomography3d,
    /// A colour picture from frames of half its size, shifted by fractions of a pixel.
    #[serde(rename = "super-resolution")]
    SuperResolution,
}

/// How far a measurement reaches in the image: what an image in shards would have to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// So many pixels around each one.
    Local(usize),
    /// All of it; all measurements together have so many values.
    Everywhere(usize),
}

/// A problem at a size.
#[derive(Clone, Debug)]
pub struct Scene {
    problem: Problem,
    /// (channel, spatial…).
    shape: Vec<usize>,
    operators: usize,
    seed: u64,
}

impl Problem {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::HighresColor, Self::Tomography2d, Self::Tomography3d, Self::SuperResolution];

    /// Its name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::HighresColor => "highres-color",
            Self::Tomography2d => "tomography-2d",
            Self::Tomography3d => "tomography-3d",
            Self::SuperResolution => "super-resolution",
        }
    }

    /// The channels of its images.
    #[must_use]
    pub fn channels(self) -> usize {
        match self {
            Self::HighresColor | Self::SuperResolution => 3,
            Self::Tomography2d | Self::Tomography3d => 1,
        }
    }

    /// The spatial axes of its images.
    #[must_use]
    pub fn axes(self) -> usize {
        if self == Self::Tomography3d { 3 } else { 2 }
    }

    /// The spatial sides for a size; in a weak study a side is as many times longer as there are ranks: the rows
    /// of a picture, and the axis of a scan's rotation.
    #[must_use]
    pub fn sides(self, size: usize, stretch: usize) -> Vec<usize> {
        match self.axes() {
            3 => vec![size * stretch, size, size],
            _ => vec![size, size * stretch],
        }
    }

    /// The noise unless another is asked for: that of a camera, where white is 1; that of a scan, relative to its
    /// measurements.
    #[must_use]
    pub fn default_noise(self) -> f64 {
        match self {
            Self::HighresColor => 0.1,
            _ => 0.01,
        }
    }
}

impl Scene {
    /// A problem on an image of these spatial sides, from so many operators.
    pub fn new(problem: Problem, sides: &[usize], operators: usize, seed: u64) -> Result<Self> {
        if sides.len() != problem.axes() || sides.iter().any(|side| !(8..=1 << 20).contains(side)) {
            return Err(Error::argument(
                "size",
                format!("sides of {sides:?}; {problem} takes {} from 8 to 1048576", problem.axes()),
            ));
        }
        let most = match problem {
            Problem::Tomography2d => scans::FLAT_VIEWS,
            Problem::Tomography3d => scans::CONE_VIEWS,
            Problem::HighresColor | Problem::SuperResolution => 10_000,
        };
        if !(1..=most).contains(&operators) {
            return Err(Error::argument(
                "operators",
                format!("{operators} were asked for; {problem} can have 1 to {most}"),
            ));
        }
        let mut shape = vec![problem.channels()];
        shape.extend_from_slice(sides);
        Ok(Self { problem, shape, operators, seed })
    }

    /// The shape of the image, (channel, spatial…).
    #[must_use]
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The image that is to be found.
    pub fn truth(&self) -> Result<Array> {
        let sides = &self.shape[1..];
        Ok(match self.problem {
            Problem::HighresColor | Problem::SuperResolution => landscape(sides[0], sides[1])?,
            Problem::Tomography2d | Problem::Tomography3d => {
                SheppLogan::new(Table::Modified).with_points(2).draw(sides)?
            }
        })
    }

    /// The operators, each made where it is needed.
    #[must_use]
    pub fn factory(&self) -> Factory {
        let scene = self.clone();
        Factory::new(self.operators, move |index, _ctx, _shared| scene.operator(index))
    }

    /// How far measurements reach.
    pub fn reach(&self) -> Result<Reach> {
        Ok(match self.problem {
            Problem::HighresColor => Reach::Local(blurs::radius(&self.shape)),
            Problem::SuperResolution => Reach::Local(frames::RADIUS),
            Problem::Tomography2d | Problem::Tomography3d => Reach::Everywhere(
                self.operator(0)?.measurement_shape().iter().skip(2).product::<usize>()
                    * if self.shape.len() == 4 { scans::CONE_VIEWS } else { scans::FLAT_VIEWS },
            ),
        })
    }

    fn operator(&self, index: usize) -> haloscope::Result<Arc<dyn Physics>> {
        Ok(match self.problem {
            Problem::HighresColor => Arc::new(blurs::blur(&self.shape, index, self.operators)?),
            Problem::SuperResolution => Arc::new(frames::frame(&self.shape, index, self.seed)?),
            Problem::Tomography2d => Arc::new(scans::flat(&self.shape, index, self.operators)?),
            Problem::Tomography3d => Arc::new(scans::cone(&self.shape, index, self.operators)?),
        })
    }

    /// What the rank's own operators measure of the truth, with noise.
    pub fn measure(
        &self,
        stack: &DistributedStack,
        truth: &Array,
        noise: f64,
    ) -> Result<Measurements> {
        let mut local = stack.forward_terms(truth)?.into_local()?;
        let deviation = match self.problem {
            Problem::HighresColor | Problem::SuperResolution => noise,
            Problem::Tomography2d | Problem::Tomography3d => {
                noise * root_mean_square(stack, &local)?
            }
        };
        Noise::gaussian(deviation)?.add_to_all(&mut local, self.seed)?;
        Ok(local)
    }
}

/// Of the measurements of all ranks, with the same bits on any number of them.
fn root_mean_square(stack: &DistributedStack, local: &Measurements) -> Result<f64> {
    let squares: Vec<(u64, [f64; 2])> = local
        .iter()
        .map(|(index, part)| {
            let values = part.as_standard_layout();
            let values = values.as_slice().unwrap_or_default();
            (index as u64, [squared_norm(values), values.len() as f64])
        })
        .collect();
    let terms: Vec<(u64, &[f64])> =
        squares.iter().map(|(index, square)| (*index, &square[..])).collect();
    let mut sums = [0.0; 2];
    stack.context().comm().ordered_sum(&terms, &mut sums)?;
    Ok((sums[0] / sums[1].max(1.0)).sqrt())
}

/// Applications of `AᵀA` until its norm is known well enough.
const APPLICATIONS: usize = 4;

/// A step with which gradient descent converges: at most `1 / ‖AᵀA‖`.
///
/// Where `M` and `v` have no negative elements, the largest eigenvalue of `M` is at most the largest of `(M v)ᵢ / vᵢ`
/// (Collatz and Wielandt). So powers of `AᵀA` on an image of ones give bounds from above, which is what a step needs.
pub fn step_size(stack: &DistributedStack) -> Result<f64> {
    let shape: Vec<usize> = [1].iter().chain(stack.image_shape()).copied().collect();
    let mut image = Array::ones(shape);
    let mut bound = f64::INFINITY;
    for _ in 0..APPLICATIONS {
        let next = stack.normal(&image)?;
        let pairs = next.iter().zip(&image).filter(|(_, before)| **before > 0.0);
        let ratio = pairs.fold(0.0, |most: f64, (after, before)| {
            most.max(f64::from(*after) / f64::from(*before))
        });
        if !(ratio > 0.0 && ratio.is_finite()) {
            return Err(Error::argument("problem", "the operators see nothing of the image"));
        }
        bound = bound.min(ratio);
        // Pixels that nothing measures become 0 and stay so.
        image = next.mapv(|value| value.max(0.0) / ratio as f32);
    }
    Ok(0.99 / bound)
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Problem {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|problem| problem.name() == name).ok_or_else(|| {
            let names: Vec<&str> = Self::ALL.iter().map(|problem| problem.name()).collect();
            let reason = format!("`{name}` is unknown; there are {}", names.join(", "));
            Error::argument("problem", reason)
        })
    }
}

#[cfg(test)]
mod tests {
    use haloscope::distribute::distribute;
    use haloscope::least_squares::NormOptions;
    use haloscope_comm::Context;

    use super::*;

    #[test]
    fn steps_are_safe_and_not_much_smaller_than_need_be() {
        for problem in Problem::ALL {
            let scene = Scene::new(problem, &problem.sides(16, 1), 3, 1).expect("a scene");
            let stack = distribute(scene.factory(), &Context::solo()).expect("operators");
            let step = step_size(&stack).expect("a step");
            let norm = stack.squared_norm(&NormOptions::default()).expect("a norm").estimate;
            assert!(step * norm <= 1.0, "{problem}: {step} for a squared norm of {norm}");
            assert!(step * norm > 0.8, "{problem}: {step} for a squared norm of {norm}");
        }
    }

    #[test]
    fn measurements_have_the_same_bits_on_any_number_of_ranks() {
        for problem in Problem::ALL {
            let measure = move |ranks: usize| {
                let parts = Context::threads(ranks, move |ctx| {
                    let scene = Scene::new(problem, &problem.sides(12, 1), 4, 7)?;
                    let stack = distribute(scene.factory(), ctx)?;
                    let data = scene.measure(&stack, &scene.truth()?, 0.05)?;
                    Ok::<Vec<(usize, Array)>, Error>(
                        data.iter().map(|(index, part)| (index, part.clone())).collect(),
                    )
                });
                let mut parts = parts.expect("no rank fails").concat();
                parts.sort_by_key(|(index, _)| *index);
                parts
            };
            let alone = measure(1);
            assert_eq!(alone.len(), 4);
            for ranks in [2, 3] {
                assert_eq!(measure(ranks), alone, "{problem} on {ranks} ranks");
            }
        }
    }

    #[test]
    fn bad_sizes_and_counts_say_what_would_be_accepted() {
        for (sides, operators, words) in
            [(&[4, 4][..], 8, "from 8"), (&[8, 8, 8], 8, "takes 2"), (&[64, 64], 101, "1 to 100")]
        {
            let error = Scene::new(Problem::Tomography2d, sides, operators, 0);
            let error = error.expect_err("refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = "mri".parse::<Problem>().expect_err("unknown").to_string();
        assert!(error.contains("tomography-3d"), "{error}");
    }
}
