//! Where a scan along a trajectory measures, and the weights of its samples.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use haloscope::distribute::agree_on_root;
use haloscope::physics::fourier::{Spiral, Trajectory, radial};
use haloscope::{Error, Result};
use haloscope_comm::{Collectives, Context};

use crate::document::{Section, numbers};

/// The points of a scan.
#[derive(Clone, Debug)]
pub(super) enum Points {
    /// Numbers in a file: as many for each sample as the image has axes. How many there are is found once.
    File { path: PathBuf, count: Arc<OnceLock<Option<usize>>> },
    /// Lines through frequency 0, each of so many samples.
    Radial { spokes: usize, samples: Option<usize> },
    /// Arms from frequency 0 outwards, which leave no gaps if their turns and samples are not given.
    Spiral(Arms),
}

/// The arms of a spiral scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arms {
    interleaves: usize,
    samples: Option<usize>,
    turns: Option<f64>,
    power: f64,
    is_golden: bool,
}

impl Arms {
    /// The arms for images of a shape (channel, spatial…).
    fn of(self, image: &[usize]) -> Spiral {
        let covering = Spiral::covering(self.interleaves, self.power, &image[1..]);
        let turns = self.turns.unwrap_or(covering.turns);
        Spiral {
            interleaves: self.interleaves,
            samples: self
                .samples
                .unwrap_or_else(|| Spiral::samples_of(turns, self.power, &image[1..])),
            turns,
            power: self.power,
            is_golden: self.is_golden,
        }
    }
}

impl Points {
    pub(super) fn read_keys(section: &Section) -> Result<Self> {
        let file = section.path("points")?;
        let (spokes, interleaves) = (section.count("spokes")?, section.count("interleaves")?);
        let samples = section.count("samples")?;
        let turns = section.positive("turns")?;
        let power = section.positive("variable-density")?;
        let is_golden = section.choose("angles", &[("uniform", false), ("golden", true)])?;
        let is_spiral = interleaves.is_some();
        if let Some(key) = [
            (turns.is_some(), "turns"),
            (power.is_some(), "variable-density"),
            (is_golden.is_some(), "angles"),
        ]
        .into_iter()
        .find_map(|(is_given, key)| (is_given && !is_spiral).then_some(key))
        {
            let reason = "it belongs to spirals, and `interleaves` is not given; leave it out";
            return Err(section.place_of(key).refuse(reason));
        }
        if let Some(power) = power.filter(|power| !(1.0..=10.0).contains(power)) {
            let reason = format!("{power} is given; 1 (Archimedean) to 10 is expected");
            return Err(section.place_of("variable-density").refuse(reason));
        }
        match (file, spokes, interleaves) {
            (Some(path), None, None) => Ok(Self::File { path, count: Arc::default() }),
            (None, Some(spokes), None) => Ok(Self::Radial { spokes, samples }),
            (None, None, Some(interleaves)) => {
                if samples == Some(1) {
                    let reason = "1 is given; an arm has 2 or more samples";
                    return Err(section.place_of("samples").refuse(reason));
                }
                let (power, is_golden) = (power.unwrap_or(1.0), is_golden.unwrap_or(false));
                Ok(Self::Spiral(Arms { interleaves, samples, turns, power, is_golden }))
            }
            (None, None, None) => Err(section.place().refuse(
                "`points` is missing: a file with radians for each pixel, as many for each sample as the image has sides; or \
                 `spokes`, the number of lines of a radial scan; or `interleaves`, the number of arms of a spiral one",
            )),
            _ => Err(section.place().refuse(
                "two of `points`, `spokes` and `interleaves` are given; one of them is expected",
            )),
        }
    }

    /// Radians for each pixel, for images of a shape (channel, spatial…).
    pub(super) fn read(&self, image: &[usize]) -> Result<Vec<f64>> {
        let is_plane = image.len() == 3;
        match self {
            Self::File { path, .. } => numbers::read_wide(path, "points", image.len() - 1),
            Self::Radial { spokes, samples } if is_plane => {
                radial(*spokes, samples.unwrap_or_else(|| across(image)), 0.0)
            }
            Self::Spiral(arms) if is_plane => arms.of(image).points(),
            Self::Radial { .. } | Self::Spiral(_) => Err(Error::argument(
                if matches!(self, Self::Radial { .. }) { "spokes" } else { "interleaves" },
                format!(
                    "such a scan is of planes, and the image has the sides {:?}; `points` takes any",
                    &image[1..]
                ),
            )),
        }
    }

    /// The number of samples; of a file, as its header says, if it can be read.
    pub(super) fn count(&self, image: &[usize]) -> Option<usize> {
        match self {
            Self::File { path, count } => {
                let all = *count.get_or_init(|| numbers::count_wide(path, "points"));
                all.map(|all| all / (image.len() - 1).max(1))
            }
            Self::Radial { spokes, samples } => {
                Some(spokes.saturating_mul(samples.unwrap_or_else(|| across(image))))
            }
            Self::Spiral(arms) => Some(arms.interleaves.saturating_mul(arms.of(image).samples)),
        }
    }

    pub(super) fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::File { path, .. } => Some(path),
            Self::Radial { .. } | Self::Spiral(_) => None,
        }
    }
}

/// The samples of a spoke: twice the longest side, so that its ends are the highest frequencies.
fn across(image: &[usize]) -> usize {
    2 * image[1..].iter().copied().max().unwrap_or(1)
}

/// The weights of all samples for images of some sides, which are found once for all coils of a process.
#[derive(Clone, Debug, Default)]
pub(super) struct Densities(Arc<Mutex<Option<Found>>>);

/// The sides of an image, and the weights.
type Found = (Vec<usize>, Arc<Vec<f64>>);

impl Densities {
    /// The weights for images of a shape (channel, spatial…).
    pub(super) fn get(&self, image: &[usize], points: &[f64]) -> Result<Arc<Vec<f64>>> {
        // Others wait for who is at it, and do not begin themselves.
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((sides, weights)) = found.as_ref()
            && *sides == image[1..]
        {
            return Ok(weights.clone());
        }
        let weights = Arc::new(Trajectory::density(&image[1..], points)?);
        *found = Some((image[1..].to_vec(), weights.clone()));
        Ok(weights)
    }

    /// Lets the first rank find the weights, and gives them to the processes of all others; all ranks call it.
    pub(super) fn share(&self, ctx: &Context, image: &[usize], points: &Points) -> Result<()> {
        let made = agree_on_root(ctx, || self.get(image, &points.read(image)?))?;
        if ctx.process_size() == ctx.size() {
            return Ok(());
        }
        self.receive(ctx, image, made)
    }

    /// Takes the weights that the first rank has; all ranks call it.
    fn receive(&self, ctx: &Context, image: &[usize], made: Option<Arc<Vec<f64>>>) -> Result<()> {
        let mut count = [made.as_ref().map_or(0, |made| made.len() as u64)];
        ctx.comm().broadcast(0, &mut count)?;
        let mut weights = made.map_or_else(|| vec![0.0; count[0] as usize], |made| made.to_vec());
        ctx.comm().broadcast(0, &mut weights)?;
        let mut found = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *found = Some((image[1..].to_vec(), Arc::new(weights)));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_of_a_file_are_counted_without_reading_them() -> Result<()> {
        let folder = tempfile::tempdir().expect("a folder");
        let image = [1, 12, 10];
        let numbers: Vec<f64> = (0..2 * 345).map(|index| f64::from(index) * 1e-3).collect();
        let path = folder.path().join("points.npy");
        haloscope::io::write_numbers(&path, &[345, 2], &numbers)?;
        let text = folder.path().join("points.txt");
        let words: Vec<String> = numbers.iter().map(f64::to_string).collect();
        std::fs::write(&text, words.join(" ")).expect("a file");
        for path in [path, text] {
            let points = Points::File { path, count: Arc::default() };
            assert_eq!(points.count(&image), Some(345));
            assert_eq!(points.read(&image)?.len(), 2 * 345);
        }
        let path = folder.path().join("missing.npy");
        assert_eq!(Points::File { path, count: Arc::default() }.count(&image), None);
        let many = Points::Radial { spokes: usize::MAX, samples: None };
        assert_eq!(many.count(&image), Some(usize::MAX));
        let error = many.read(&image).expect_err("too many").to_string();
        assert!(error.contains("2³¹"), "{error}");
        Ok(())
    }

    #[test]
    fn processes_get_the_weights_of_the_first_rank() -> Result<()> {
        let points = || Points::Radial { spokes: 7, samples: None };
        let image = [1, 12, 10];
        let all = Context::threads(3, move |ctx| {
            // Each has its own, as in processes.
            let own = Densities::default();
            let made = agree_on_root(ctx, || own.get(&image, &points().read(&image)?))?;
            own.receive(ctx, &image, made)?;
            // What is there is not found again: these points would have others.
            own.get(&image, &[])
        })?;
        let expected = Trajectory::density(&image[1..], &points().read(&image)?)?;
        assert!(all.iter().all(|weights| **weights == expected));
        Ok(())
    }
}
