//! Samples of an image's Fourier transform anywhere: what trajectories of MRI and visibilities have in common.
//!
//! An image is multiplied with a map, and then transformed once, or once for each plane of a stack: a plane has a screen for the
//! image, some of the samples, and a factor for each of these. Planes are taken in order, so that the bits do not depend on threads.

use std::fmt;
use std::sync::Mutex;

use rayon::prelude::*;

use super::complex;
use crate::error::Result;
use crate::fourier::{Complex, Nufft, Real, Scratch};

/// The best accuracy in single precision; beyond it, transforms run in double precision.
pub(super) const SINGLE: f64 = 2e-6;

/// What one transform of a stack does.
pub(super) struct Plane {
    /// What the image is multiplied with.
    pub(super) screen: Option<Vec<Complex<f64>>>,
    /// The samples of the plane, of all, and their factors; all samples if there are none.
    pub(super) members: Option<Members>,
}

/// Some of the samples, and what they are multiplied with in one plane.
pub(super) struct Members {
    pub(super) samples: Vec<u32>,
    pub(super) factors: Vec<Complex<f64>>,
}

/// Samples of images of one shape.
pub(super) struct Sampled {
    channels: usize,
    pixels: usize,
    samples: usize,
    /// What each pixel is multiplied with.
    map: Option<Vec<Complex<f32>>>,
    /// What each sample is multiplied with.
    weights: Option<Vec<f32>>,
    scale: f32,
    planes: Planes,
}

enum Planes {
    Single(Stacked<f32>),
    Double(Stacked<f64>),
}

/// All planes, one after the other in the same memory.
struct Stacked<T> {
    planes: Vec<Planned<T>>,
    /// Memory of calls that are over.
    rooms: Mutex<Vec<Room<T>>>,
}

/// A plane with its transform.
struct Planned<T> {
    transform: Nufft<T>,
    screen: Option<Vec<Complex<T>>>,
    members: Option<(Vec<u32>, Vec<Complex<T>>)>,
}

/// Memory for one call.
struct Room<T> {
    scratch: Scratch<T>,
    image: Vec<Complex<T>>,
    samples: Vec<Complex<T>>,
}

/// The parameters of [`Sampled`], apart from those of its planes.
pub(super) struct Parameters<'a> {
    /// (channel, spatial…).
    pub(super) shape: &'a [usize],
    /// Radians along each axis, sample by sample.
    pub(super) points: &'a [f64],
    pub(super) map: Option<Vec<Complex<f32>>>,
    pub(super) weights: Option<Vec<f32>>,
    pub(super) scale: f32,
    pub(super) accuracy: f64,
}

impl Sampled {
    /// Plans all transforms.
    pub(super) fn new(parameters: Parameters, planes: Vec<Plane>) -> Result<Self> {
        let Parameters { shape, points, map, weights, scale, accuracy } = parameters;
        let sides = &shape[1..];
        let planes = if accuracy >= SINGLE {
            Planes::Single(plan(sides, points, accuracy, planes)?)
        } else {
            Planes::Double(plan(sides, points, accuracy, planes)?)
        };
        let (channels, pixels) = (shape[0], sides.iter().product());
        let samples = points.len() / sides.len();
        Ok(Self { channels, pixels, samples, map, weights, scale, planes })
    }

    /// The number of samples.
    pub(super) fn samples(&self) -> usize {
        self.samples
    }

    pub(super) fn cost(&self) -> f64 {
        match &self.planes {
            Planes::Single(stack) => stack.planes.iter().map(|plane| plane.transform.cost()).sum(),
            Planes::Double(stack) => stack.planes.iter().map(|plane| plane.transform.cost()).sum(),
        }
    }

    /// The samples of a batch of images.
    pub(super) fn forward(&self, images: &[f32], measurements: &mut [f32]) -> Result<()> {
        match &self.planes {
            Planes::Single(stack) => self.forward_in(stack, images, measurements),
            Planes::Double(stack) => self.forward_in(stack, images, measurements),
        }
    }

    /// The adjoint of [`forward`](Self::forward).
    pub(super) fn adjoint(&self, measurements: &[f32], images: &mut [f32]) -> Result<()> {
        match &self.planes {
            Planes::Single(stack) => self.adjoint_in(stack, measurements, images),
            Planes::Double(stack) => self.adjoint_in(stack, measurements, images),
        }
    }

    fn forward_in<T: Real>(
        &self,
        stack: &Stacked<T>,
        images: &[f32],
        measurements: &mut [f32],
    ) -> Result<()> {
        if self.samples == 0 {
            return Ok(());
        }
        let pairs = images
            .chunks(self.channels * self.pixels)
            .zip(measurements.chunks_mut(2 * self.samples));
        for (image, measurement) in pairs {
            let mut values = complex(self.channels, image);
            if let Some(map) = &self.map {
                values.par_iter_mut().zip(map).for_each(|(value, map)| *value *= map);
            }
            let mut total = vec![Complex::<T>::default(); self.samples];
            stack.with_room(|room| {
                stack.planes.iter().try_for_each(|plane| plane.forward(&values, &mut total, room))
            })?;
            let (real, imaginary) = measurement.split_at_mut(self.samples);
            for (index, total) in total.iter().enumerate() {
                let weight =
                    self.scale * self.weights.as_ref().map_or(1.0, |weights| weights[index]);
                real[index] = total.re.single() * weight;
                imaginary[index] = total.im.single() * weight;
            }
        }
        Ok(())
    }

    fn adjoint_in<T: Real>(
        &self,
        stack: &Stacked<T>,
        measurements: &[f32],
        images: &mut [f32],
    ) -> Result<()> {
        if self.samples == 0 {
            images.fill(0.0);
            return Ok(());
        }
        let pairs = measurements
            .chunks(2 * self.samples)
            .zip(images.chunks_mut(self.channels * self.pixels));
        for (measurement, image) in pairs {
            let mut values = complex(2, measurement);
            for (index, value) in values.iter_mut().enumerate() {
                *value *= self.scale * self.weights.as_ref().map_or(1.0, |weights| weights[index]);
            }
            let mut total = vec![Complex::<T>::default(); self.pixels];
            stack.with_room(|room| {
                stack.planes.iter().try_for_each(|plane| plane.adjoint(&values, &mut total, room))
            })?;
            let (real, imaginary) = image.split_at_mut(self.pixels);
            for (index, total) in total.iter().enumerate() {
                let mut value = Complex::new(total.re.single(), total.im.single());
                if let Some(map) = &self.map {
                    value *= map[index].conj();
                }
                real[index] = value.re;
                if let Some(part) = imaginary.get_mut(index) {
                    *part = value.im;
                }
            }
        }
        Ok(())
    }
}

fn plan<T: Real>(
    sides: &[usize],
    points: &[f64],
    accuracy: f64,
    planes: Vec<Plane>,
) -> Result<Stacked<T>> {
    let number = |value: &Complex<f64>| Complex::new(T::rounded(value.re), T::rounded(value.im));
    let axes = sides.len();
    let one = |plane: Plane| {
        let own: Option<Vec<f64>> = plane.members.as_ref().map(|members| {
            let point = |&sample: &u32| &points[sample as usize * axes..][..axes];
            members.samples.iter().flat_map(point).copied().collect()
        });
        let members = plane.members.map(|members| {
            let factors = members.factors.iter().map(number).collect();
            (members.samples, factors)
        });
        Ok(Planned {
            transform: Nufft::new(sides, own.as_deref().unwrap_or(points), accuracy)?,
            screen: plane.screen.map(|screen| screen.iter().map(number).collect()),
            members,
        })
    };
    let planes = planes.into_iter().map(one).collect::<Result<_>>()?;
    Ok(Stacked { planes, rooms: Mutex::new(Vec::new()) })
}

impl<T> Stacked<T> {
    /// Runs with memory that no other call uses.
    fn with_room(&self, run: impl FnOnce(&mut Room<T>) -> Result<()>) -> Result<()> {
        let kept = self.rooms.lock().ok().and_then(|mut rooms| rooms.pop());
        let mut room = kept.unwrap_or_default();
        let result = run(&mut room);
        if let Ok(mut rooms) = self.rooms.lock() {
            rooms.push(room);
        }
        result
    }
}

impl<T> Default for Room<T> {
    fn default() -> Self {
        Self { scratch: Scratch::default(), image: Vec::new(), samples: Vec::new() }
    }
}

impl<T: Real> Planned<T> {
    /// Adds the plane's part to all samples.
    fn forward(
        &self,
        image: &[Complex<f32>],
        total: &mut [Complex<T>],
        room: &mut Room<T>,
    ) -> Result<()> {
        self.fit(room);
        match &self.screen {
            Some(screen) => {
                let pairs = room.image.par_iter_mut().zip(image).zip(screen);
                pairs.for_each(|((to, value), screen)| *to = wide::<T>(*value) * screen);
            }
            None => {
                room.image.par_iter_mut().zip(image).for_each(|(to, value)| *to = wide(*value));
            }
        }
        self.transform.forward(&room.image, &mut room.samples, &mut room.scratch)?;
        match &self.members {
            Some((samples, factors)) => {
                for ((&sample, factor), value) in samples.iter().zip(factors).zip(&room.samples) {
                    let to = &mut total[sample as usize];
                    *to = *to + *value * factor;
                }
            }
            None => {
                total.iter_mut().zip(&room.samples).for_each(|(to, value)| *to = *to + *value);
            }
        }
        Ok(())
    }

    /// Adds what the plane's samples give to an image.
    fn adjoint(
        &self,
        values: &[Complex<f32>],
        total: &mut [Complex<T>],
        room: &mut Room<T>,
    ) -> Result<()> {
        self.fit(room);
        match &self.members {
            Some((samples, factors)) => {
                for ((&sample, factor), to) in samples.iter().zip(factors).zip(&mut room.samples) {
                    *to = wide::<T>(values[sample as usize]) * factor.conj();
                }
            }
            None => {
                room.samples.iter_mut().zip(values).for_each(|(to, value)| *to = wide(*value));
            }
        }
        self.transform.adjoint(&room.samples, &mut room.image, &mut room.scratch)?;
        match &self.screen {
            Some(screen) => {
                let pairs = total.par_iter_mut().zip(&room.image).zip(screen);
                pairs.for_each(|((to, value), screen)| *to = *to + *value * screen.conj());
            }
            None => {
                total.par_iter_mut().zip(&room.image).for_each(|(to, value)| *to = *to + *value);
            }
        }
        Ok(())
    }

    fn fit(&self, room: &mut Room<T>) {
        room.image.resize(self.transform.sides().iter().product(), Complex::default());
        room.samples.resize(self.transform.samples(), Complex::default());
    }
}

fn wide<T: Real>(value: Complex<f32>) -> Complex<T> {
    Complex::new(T::of_single(value.re), T::of_single(value.im))
}

impl fmt::Debug for Sampled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (planes, precision) = match &self.planes {
            Planes::Single(stack) => (stack.planes.len(), "f32"),
            Planes::Double(stack) => (stack.planes.len(), "f64"),
        };
        f.debug_struct("Sampled")
            .field("samples", &self.samples)
            .field("planes", &planes)
            .field("precision", &precision)
            .finish_non_exhaustive()
    }
}
