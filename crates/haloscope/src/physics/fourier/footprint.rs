//! The bytes that operators of frequencies take, before they are made.
//!
//! Unlike blurs and projectors they hold arrays as large as the image and more: finer grids, screens of planes of w, sorted samples,
//! sensitivities of coils. The counts follow the arrays of [`Sampled`](super::sampled) and [`Nufft`] one by one.

use super::planes::plane_sizes;
use super::sampled::SINGLE;
use crate::fourier::{Complex, Nufft, Real};

/// The bytes of one operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// From its making to its end.
    pub held: usize,
    /// What it keeps from its first call on.
    pub kept: usize,
    /// While it is applied.
    pub applied: usize,
    /// All of it while it is made.
    pub made: usize,
}

impl Footprint {
    /// Of [`Cartesian`](super::Cartesian) for images of these spatial sides.
    #[must_use]
    pub fn cartesian(sides: &[usize], has_coil: bool, has_mask: bool) -> Self {
        let pixels: usize = sides.iter().product();
        let coil = if has_coil { size_of::<Complex<f32>>() } else { 0 };
        let mask = if has_mask { size_of::<f32>() } else { 0 };
        // The image, and its lines along another axis; a mask is read as complex numbers.
        let image = 2 * size_of::<Complex<f32>>();
        let held = pixels * (coil + mask);
        Self { held, kept: 0, applied: pixels * image, made: held + pixels * (coil + 3 * mask) }
    }

    /// Of [`Trajectory`](super::Trajectory) with so many samples on so many threads.
    #[must_use]
    pub fn trajectory(
        sides: &[usize],
        samples: usize,
        [has_coil, has_density]: [bool; 2],
        accuracy: f64,
        threads: usize,
    ) -> Self {
        let pixels: usize = sides.iter().product();
        let planes = Planes { sides, members: &[samples], is_stacked: false, accuracy, threads };
        let mut found = planes.footprint(samples);
        let coil = if has_coil { size_of::<Complex<f32>>() } else { 0 };
        found.held += pixels * coil + samples * if has_density { 4 } else { 0 };
        // For densities, a transform in double precision, its image, window, weights and response; the points stay.
        let density = if has_density {
            let transform = Nufft::<f64>::bytes(sides, samples, 1e-6, threads).unwrap_or([0; 2]);
            transform.iter().sum::<usize>() + pixels * 24 + samples * 40
        } else {
            0
        };
        found.made = samples * 8 * sides.len() + pixels * coil + found.held.max(density);
        found
    }

    /// Of [`Visibilities`](super::Visibilities) with weights, at these w.
    #[must_use]
    pub fn visibilities(
        sides: [usize; 2],
        w: &[f64],
        cell: f64,
        accuracy: f64,
        threads: usize,
    ) -> Self {
        let pixels = sides[0] * sides[1];
        let edge = |side: usize| (side / 2) as f64 * cell;
        let square = edge(sides[0]).powi(2) + edge(sides[1]).powi(2);
        let deepest = if square < 1.0 { -square / ((1.0 - square).sqrt() + 1.0) } else { -1.0 };
        let stack = plane_sizes(w, deepest, accuracy);
        let (members, is_stacked) = match &stack {
            Some(members) => (&members[..], true),
            None => (&[w.len()][..], false),
        };
        let planes = Planes { sides: &sides, members, is_stacked, accuracy, threads };
        let mut found = planes.footprint(w.len());
        found.held += pixels * size_of::<Complex<f32>>() + w.len() * 4;
        // n − 1, its square and the correction of each pixel; u, v, w, weights and points of each visibility; all planes in double
        // precision, which become those that are held one after the other.
        let wide = if is_stacked {
            members.len() * pixels * 16 + members.iter().sum::<usize>() * 20
        } else {
            0
        };
        found.made = pixels * 24 + w.len() * 56 + found.held.max(wide);
        found
    }
}

/// Transforms that run one after the other in the same memory.
struct Planes<'a> {
    sides: &'a [usize],
    /// The samples of each.
    members: &'a [usize],
    /// Whether planes have screens and factors.
    is_stacked: bool,
    accuracy: f64,
    threads: usize,
}

impl Planes<'_> {
    fn footprint(&self, samples: usize) -> Footprint {
        if self.accuracy >= SINGLE { self.of::<f32>(samples) } else { self.of::<f64>(samples) }
    }

    fn of<T: Real>(&self, samples: usize) -> Footprint {
        let pixels: usize = self.sides.iter().product();
        let number = size_of::<Complex<T>>();
        let (mut held, mut room) = (0, 0);
        for &members in self.members {
            let bytes = Nufft::<T>::bytes(self.sides, members, self.accuracy, self.threads);
            let [plan, scratch] = bytes.unwrap_or([0; 2]);
            held += plan;
            if self.is_stacked {
                held += pixels * number + members * (4 + number);
            }
            room = room.max(scratch + (pixels + members) * number);
        }
        // The image as complex numbers, with its map; the sums of all planes, samples or pixels.
        let applied = pixels.max(samples) * (size_of::<Complex<f32>>() + number);
        Footprint { held, kept: room, applied, made: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_planes_and_double_precision_take_more() {
        let w: Vec<f64> = (0..500).map(f64::from).collect();
        let of = |w: &[f64], accuracy| Footprint::visibilities([64, 80], w, 1e-3, accuracy, 2);
        let flat = of(&vec![0.0; 500], 1e-5);
        let deep = of(&w.iter().map(|w| 30.0 * w).collect::<Vec<_>>(), 1e-5);
        assert!(deep.held > 2 * flat.held, "{deep:?} {flat:?}");
        assert!(of(&w, 1e-9).held > of(&w, 1e-5).held);
        // A map for each pixel, a weight for each visibility and a grid of more than the image.
        assert!(flat.held >= 64 * 80 * 8 + 500 * 4 && flat.kept > 64 * 80 * 8 * 3);
        let scan = Footprint::cartesian(&[10, 10], true, true);
        assert_eq!((scan.held, scan.applied), (1200, 1600));
    }
}
