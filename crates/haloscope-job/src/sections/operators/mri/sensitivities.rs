//! What the coils of a scan see: everything alike, a simulated birdcage, maps in files, or what their measurements tell.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use haloscope::distribute::agree_on_root;
use haloscope::io::{self, Axes, ReadOptions, Reader};
use haloscope::physics::fourier::{Calibration, birdcage};
use haloscope::{Array, Error, Result};
use haloscope_comm::Context;
use ndarray::Axis;

use crate::document::Section;

/// The sensitivities of all coils.
#[derive(Clone, Debug)]
pub(super) enum Sensitivities {
    /// One coil that sees all pixels alike.
    None,
    /// So many coils of a birdcage, for simulations.
    Birdcage(usize),
    /// A file for each coil: (2, spatial…).
    Files(Vec<PathBuf>),
    /// From the middle of what each coil measured.
    Estimated(Estimate),
}

/// Sensitivities that are estimated, once for all coils of a process.
#[derive(Clone, Debug)]
pub(super) struct Estimate {
    /// A file for each coil with frequencies on a grid: (2, spatial…).
    files: Vec<PathBuf>,
    /// The side of the middle, if it is not the usual one.
    width: Option<usize>,
    maps: Arc<Mutex<Option<Arc<Vec<Array>>>>>,
}

impl Sensitivities {
    pub(super) fn read(section: &Section) -> Result<Self> {
        let inputs = |key| Ok::<_, Error>(section.inputs(key)?.map(|groups| groups.concat()));
        let width = section.count("calibration-width")?;
        let empty = |key| section.place_of(key).refuse("an empty list; one or more are expected");
        if let Some(files) = inputs("coils-from")? {
            if !matches!(section.get::<usize>("coils"), Ok(None)) {
                return Err(section
                    .place()
                    .refuse("`coils` and `coils-from` are given; one of them is expected"));
            }
            if files.is_empty() {
                return Err(empty("coils-from"));
            }
            return Ok(Self::Estimated(Estimate { files, width, maps: Arc::default() }));
        }
        if width.is_some() {
            let reason = "it belongs to `coils-from`, which is not given; leave it out";
            return Err(section.place_of("calibration-width").refuse(reason));
        }
        match section.get::<usize>("coils") {
            Ok(Some(0)) => {
                Err(section.place_of("coils").refuse("0 is given; 1 or more is expected"))
            }
            Ok(Some(count)) => Ok(Self::Birdcage(count)),
            Ok(None) => Ok(Self::None),
            Err(_) => match inputs("coils")?.unwrap_or_default() {
                files if files.is_empty() => Err(empty("coils")),
                files => Ok(Self::Files(files)),
            },
        }
    }

    /// The number of coils.
    pub(super) fn count(&self) -> usize {
        match self {
            Self::None => 1,
            Self::Birdcage(count) => *count,
            Self::Files(files) | Self::Estimated(Estimate { files, .. }) => files.len(),
        }
    }

    pub(super) fn files(&self) -> &[PathBuf] {
        match self {
            Self::None | Self::Birdcage(_) => &[],
            Self::Files(files) | Self::Estimated(Estimate { files, .. }) => files,
        }
    }

    /// The sensitivity of a coil for images of a shape (channel, spatial…): (2, spatial…).
    pub(super) fn map(&self, image: &[usize], coil: usize) -> Result<Option<Array>> {
        Ok(match self {
            Self::None => None,
            Self::Birdcage(count) => Some(birdcage(&image[1..], *count, coil)?),
            Self::Files(files) => Some(parts(&files[coil])?),
            Self::Estimated(estimate) => Some(estimate.get()?[coil].clone()),
        })
    }

    /// The same without a long calculation: nothing for what is estimated, whose files are looked at.
    pub(super) fn draft(&self, image: &[usize], coil: usize) -> Result<Option<Array>> {
        match self {
            Self::Estimated(estimate) => estimate.check(image, coil).map(|()| None),
            _ => self.map(image, coil),
        }
    }
}

impl Estimate {
    /// The sensitivities of all coils.
    fn get(&self) -> Result<Arc<Vec<Array>>> {
        // Others wait for who is at it, and do not begin themselves.
        let mut maps = self.maps.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(maps) = maps.as_ref() {
            return Ok(maps.clone());
        }
        let measured = self.files.iter().map(|path| parts(path)).collect::<Result<Vec<_>>>()?;
        let axes = measured.first().map_or(2, |coil| coil.ndim() - 1);
        let usual = Calibration::of_axes(axes);
        let calibration = Calibration { width: self.width.unwrap_or(usual.width), ..usual };
        let made = Arc::new(calibration.sensitivities(&measured)?);
        *maps = Some(made.clone());
        Ok(made)
    }

    /// Refuses a file whose frequencies are not those of the image.
    fn check(&self, image: &[usize], coil: usize) -> Result<()> {
        let path = &self.files[coil];
        let found = Reader::open(path, &as_parts())?.shape().to_vec();
        if found.get(1) == Some(&2) && found[2..] == image[1..] {
            return Ok(());
        }
        Err(Error::Shape {
            what: format!("{}: the frequencies for the sensitivity of a coil", path.display()),
            expected: format!("complex numbers of {:?} are expected", &image[1..]),
            found,
        })
    }

    /// Lets the first rank estimate, and gives the maps to the processes of all others; all ranks call it.
    pub(super) fn share(&self, ctx: &Context, image: &[usize]) -> Result<()> {
        let shape = [&[2], &image[1..]].concat();
        let made = agree_on_root(ctx, || {
            let made = self.get()?;
            match made.iter().find(|map| map.shape() != shape) {
                None => Ok(made),
                Some(other) => Err(Error::Shape {
                    what: "a sensitivity of a coil".into(),
                    expected: format!("{shape:?} is expected"),
                    found: other.shape().to_vec(),
                }),
            }
        })?;
        if ctx.process_size() == ctx.size() {
            return Ok(());
        }
        self.receive(ctx, &shape, made)
    }

    /// Takes the maps that the first rank has; all ranks call it.
    fn receive(&self, ctx: &Context, shape: &[usize], made: Option<Arc<Vec<Array>>>) -> Result<()> {
        let mut maps = made.map_or_else(
            || vec![Array::zeros(shape.to_vec()); self.files.len()],
            |made| made.to_vec(),
        );
        for map in &mut maps {
            crate::acquire::broadcast(ctx, map)?;
        }
        *self.maps.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(maps));
        Ok(())
    }
}

fn as_parts() -> ReadOptions {
    ReadOptions { axes: Axes::ChannelFirst, ..ReadOptions::default() }
}

/// The real and the imaginary parts in a file: (2, spatial…).
fn parts(path: &Path) -> Result<Array> {
    Ok(io::read(path, &as_parts())?.array.index_axis_move(Axis(0), 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_get_the_maps_of_the_first_rank() -> Result<()> {
        let shape = [2, 6, 5];
        let maps = Arc::new(vec![
            Array::from_shape_fn(shape.to_vec(), |at| (at[0] + 3 * at[1] * at[2]) as f32),
            Array::ones(shape.to_vec()),
        ]);
        let given = maps.clone();
        let all = Context::threads(3, move |ctx| {
            let files = vec![PathBuf::from("absent-0.npy"), PathBuf::from("absent-1.npy")];
            let own = Estimate { files, width: None, maps: Arc::default() };
            own.receive(ctx, &shape, ctx.is_root().then(|| given.clone()))?;
            // What is there is not estimated again: the files are absent.
            own.get()
        })?;
        assert!(all.iter().all(|found| *found == maps));
        Ok(())
    }
}
