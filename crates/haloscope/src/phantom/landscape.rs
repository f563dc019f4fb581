//! A lake in the mountains: a colour picture that is calculated, for examples that want a photograph.
//!
//! The one idea: the colour at a place is a function of the place, so that any size shows the same
//! scene, and pixels are means over four places. Things are looked at from the front to the back: sign
//! and tree, meadow, water (which mirrors the rest), mountains, sky.

use ndarray::IxDyn;
use rayon::prelude::*;

use super::noise::{at_point, fractal, ridged, smooth};
use crate::array::Array;
use crate::error::{Error, Result};

type Colour = [f32; 3];

/// The far shore, as a part of the height.
const HORIZON: f32 = 0.60;

/// Where the sun is.
const SUN: [f32; 2] = [0.66, 0.27];

/// Rows of the letters on the sign, three dots each.
const LETTERS: [[u8; 5]; 4] = [
    [0b101, 0b101, 0b111, 0b101, 0b101],
    [0b010, 0b101, 0b111, 0b101, 0b101],
    [0b100, 0b100, 0b100, 0b100, 0b111],
    [0b010, 0b101, 0b101, 0b101, 0b010],
];

/// A colour picture of a landscape, as (1, 3, height, width) with values from 0 to 1.
///
/// It is made to behave like a photograph: power falls with frequency about as 1/f², sky and haze are
/// smooth, the ridges, the tree and the sign have edges, water and leaves have fine texture. It is the
/// same for everyone, up to rounding.
///
/// ```
/// let picture = haloscope::phantom::landscape(48, 64)?;
/// assert_eq!(picture.shape(), [1, 3, 48, 64]);
/// assert!(picture.iter().all(|&value| (0.0..=1.0).contains(&value)));
/// # Ok::<(), haloscope::Error>(())
/// ```
pub fn landscape(height: usize, width: usize) -> Result<Array> {
    if height == 0 || width == 0 || height.checked_mul(width).is_none_or(|size| size > 1 << 40) {
        let reason = format!("a picture of {height} rows of {width} pixels");
        return Err(Error::argument("landscape", reason));
    }
    let scene = Scene::new(height, width);
    let mut pixels = vec![[0.0; 3]; height * width];
    pixels.par_chunks_mut(width).enumerate().for_each(|(row, pixels)| {
        for (column, pixel) in pixels.iter_mut().enumerate() {
            let mut sum = [0.0; 3];
            for (right, down) in [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)] {
                let x = (column as f32 + right) / width as f32;
                let y = (row as f32 + down) / height as f32;
                sum = add(sum, scene.colour(x, y));
            }
            *pixel = sum.map(|value| (value / 4.0).clamp(0.0, 1.0));
        }
    });
    let planes = (0..3).flat_map(|channel| pixels.iter().map(move |pixel| pixel[channel]));
    let shape = IxDyn(&[1, 3, height, width]);
    Array::from_shape_vec(shape, planes.collect())
        .map_err(|error| Error::argument("landscape", error.to_string()))
}

/// What the scene needs to know of the picture.
struct Scene {
    /// Width over height.
    aspect: f32,
    /// Fields of frequency 2ⁿ per height have features of one pixel.
    finest: u32,
}

impl Scene {
    fn new(height: usize, width: usize) -> Self {
        let finest = (height.max(2) as f32).log2().ceil() as u32;
        Self { aspect: width as f32 / height as f32, finest: finest.clamp(4, 14) }
    }

    /// Octaves from a frequency of 2ⁿ per height to the pixels.
    fn octaves(&self, coarsest: u32) -> u32 {
        self.finest.saturating_sub(coarsest).max(1)
    }

    /// `x` and `y` go from 0 to 1, right and down.
    fn colour(&self, x: f32, y: f32) -> Colour {
        // Shapes are as wide as they are high, whatever the picture is.
        let across = (x - 0.5) * self.aspect;
        if let Some(colour) = self.sign(across, y).or_else(|| self.tree(across, y)) {
            return colour;
        }
        let meadow = 0.86 + 0.05 * smooth(71, across * 2.0, 0.3) - 0.10 * across * across
            + 0.012 * fractal(72, across * 40.0, 0.0, self.octaves(6), 0.6);
        if y > meadow {
            return self.meadow(across, y, y - meadow);
        }
        if y > HORIZON {
            return self.water(across, y, meadow - y);
        }
        self.distance(across, y)
    }

    /// Sky, sun and mountains: what is above the far shore.
    fn distance(&self, across: f32, y: f32) -> Colour {
        let near = HORIZON
            - 0.05
            - 0.13 * (0.45 - (across + 0.42).abs()).max(0.0)
            - 0.035 * ridged(31, across * 3.1, 0.7, self.octaves(2), 0.5);
        if y > near {
            return self.forest(across, y, near);
        }
        let far = 0.37 + 0.20 * (across - 0.25).abs()
            - 0.055 * ridged(41, across * 2.3, 1.9, self.octaves(2), 0.48);
        if y > far { self.mountain(across, y, far) } else { self.sky(across, y) }
    }

    fn sky(&self, across: f32, y: f32) -> Colour {
        let low = (y / HORIZON).clamp(0.0, 1.0);
        let mut sky = mix([0.16, 0.34, 0.66], [0.62, 0.77, 0.91], low.powf(0.8));
        sky = mix(sky, [0.98, 0.83, 0.66], (low - 0.35).max(0.0) * 1.1);
        let away = distance(across - (SUN[0] - 0.5) * self.aspect, y - SUN[1]);
        sky = add(sky, scale([0.75, 0.55, 0.30], 0.55 * (-away * 7.0).exp()));
        // Clouds are wide and flat, and thin at their edges.
        let field = fractal(11, across * 2.2 + 0.4, y * 6.5, self.octaves(2), 0.52);
        let density = smoothstep(0.02, 0.75, field + 0.12);
        let light = fractal(11, across * 2.2 + 0.47, y * 6.5 - 0.25, 5, 0.52);
        let shade = 0.80 + 0.35 * (field - light).clamp(-0.5, 0.5);
        let cloud =
            mix(scale([0.95, 0.95, 1.0], shade), [1.0, 0.92, 0.82], (1.0 - away).max(0.0) * 0.6);
        sky = mix(sky, cloud, 0.85 * density);
        if away < 0.035 { [1.0, 0.97, 0.86] } else { sky }
    }

    fn mountain(&self, across: f32, y: f32, ridge: f32) -> Colour {
        let octaves = self.octaves(3);
        let height =
            |dx: f32, dy: f32| ridged(51, (across + dx) * 6.0, (y + dy) * 8.0, octaves, 0.47);
        let step = 0.008;
        let slope = (height(step, step * 0.6) - height(0.0, 0.0)) / step * 0.028;
        let light = 0.66 + 0.42 * slope / (1.0 + slope.abs());
        let below = y - ridge;
        let snow_line = 0.075 + 0.05 * fractal(55, across * 9.0, y * 5.0, octaves, 0.6);
        let rock = mix([0.34, 0.35, 0.42], [0.42, 0.38, 0.36], smoothstep(0.0, 0.2, below));
        let snow = smoothstep(0.05, -0.05, below - snow_line) * smoothstep(-1.1, 0.5, slope + 0.2);
        let stone = scale(mix(rock, [0.97, 0.97, 1.0], snow), light);
        // Air between here and there.
        mix(stone, [0.72, 0.78, 0.86], 0.22 + 0.9 * below.clamp(0.0, 0.4))
    }

    fn forest(&self, across: f32, y: f32, ridge: f32) -> Colour {
        // Fir trees: a saw of random heights on the ridge, and rows of tips below.
        let below = (y - ridge).max(0.0);
        let texture = fractal(61, across * 26.0, y * 46.0, self.octaves(5), 0.72);
        let tips = smooth(62, across * 130.0, y * 55.0);
        let light = (0.55 + 0.55 * texture + 0.25 * tips).clamp(0.1, 1.3);
        let green = mix(
            [0.10, 0.20, 0.13],
            [0.26, 0.31, 0.14],
            0.5 + 0.5 * smooth(63, across * 6.0, y * 9.0),
        );
        mix(scale(green, light), [0.60, 0.68, 0.74], (0.30 - 1.2 * below).max(0.05))
    }

    /// What is above, mirrored and moved by waves that seem smaller far away.
    fn water(&self, across: f32, y: f32, to_shore: f32) -> Colour {
        let depth = (y - HORIZON) / (1.0 - HORIZON);
        let near = 0.035 + depth;
        let wave = |seed| {
            fractal(seed, across * 6.0 / near, 3.0 * near.ln() * 9.0, self.octaves(5).min(4), 0.55)
        };
        let (dx, dy) = (wave(81) * 0.010, wave(85) * 0.055 * (0.15 + depth));
        let mirrored = (2.0 * HORIZON - y + dy).clamp(0.0, HORIZON - 0.002);
        let mirror = self.distance(across + dx, mirrored);
        let ground = mix([0.05, 0.16, 0.20], [0.13, 0.25, 0.22], smoothstep(0.15, 0.0, to_shore));
        let mut water = mix(scale(mirror, 0.86), ground, 0.20 + 0.5 * depth);
        // The sun on the waves.
        let column = across - (SUN[0] - 0.5) * self.aspect;
        let glitter =
            smoothstep(0.30, 0.85, wave(89)) * (-(column / (0.05 + 0.10 * depth)).powi(2)).exp();
        water = add(water, scale([1.0, 0.86, 0.62], 0.9 * glitter));
        // Mist on the far shore.
        mix(water, [0.80, 0.83, 0.86], 0.45 * smoothstep(0.05, 0.0, depth))
    }

    fn meadow(&self, across: f32, y: f32, inside: f32) -> Colour {
        // Blades stand upright, and are longer in front.
        let patches = fractal(91, across * 5.0, y * 9.0, self.octaves(3), 0.6);
        let blades = fractal(93, across * 75.0, y * 22.0, self.octaves(6), 0.78);
        let light = (0.62 + 0.30 * patches + 0.42 * blades).clamp(0.08, 1.4);
        let grass = mix([0.20, 0.31, 0.08], [0.46, 0.45, 0.15], 0.5 + 0.6 * patches);
        let mut colour = scale(grass, light);
        // Flowers in cells of a lattice, some cells empty.
        let cells = 46.0;
        let (column, row) = ((across * cells).floor(), (y * cells * 1.4).floor());
        let random = |seed| at_point(seed, column as i32, row as i32);
        if random(95) < 0.22 && inside > 0.02 {
            let place = [
                (column + 0.3 + 0.4 * random(96)) / cells,
                (row + 0.3 + 0.4 * random(97)) / cells / 1.4,
            ];
            if distance(across - place[0], y - place[1]) < 0.0035 + 0.003 * random(98) {
                colour = if random(99) < 0.5 { [0.93, 0.82, 0.25] } else { [0.90, 0.90, 0.95] };
            }
        }
        mix([0.30, 0.27, 0.20], colour, smoothstep(0.0, 0.012, inside))
    }

    /// A tree at the left, of leaves and the gaps between them.
    fn tree(&self, across: f32, y: f32) -> Option<Colour> {
        let centre = -0.36 * self.aspect;
        let x = across - centre;
        // Crowns: where a sum of ellipses, roughened, is large.
        let crown = |dx: f32, dy: f32, width: f32, height: f32| {
            1.0 - ((x - dx) / width).powi(2) - ((y - dy) / height).powi(2)
        };
        let inside = crown(0.0, 0.42, 0.15, 0.14)
            .max(crown(-0.07, 0.53, 0.14, 0.10))
            .max(crown(0.07, 0.55, 0.14, 0.09))
            .max(crown(0.02, 0.31, 0.09, 0.09));
        let rough = fractal(21, x * 15.0, y * 15.0, self.octaves(4), 0.7);
        if inside + 0.55 * rough > 0.12 {
            let leaves = fractal(24, x * 55.0, y * 55.0, self.octaves(6), 0.8);
            let bulk = fractal(27, x * 13.0 + 0.35, y * 13.0 + 0.5, 3, 0.5);
            // Light comes from the upper right.
            let lit = 0.46 + 0.55 * bulk + 0.9 * (x * 0.8 - (y - 0.45)) + 0.5 * leaves;
            let green = mix([0.07, 0.15, 0.04], [0.47, 0.53, 0.15], lit.clamp(0.0, 1.0));
            return Some(green);
        }
        let width = 0.014 + 0.028 * smoothstep(0.80, 0.95, y) + 0.003 * smooth(29, 0.0, y * 14.0);
        if (0.45..0.93).contains(&y) && x.abs() < width {
            let bark = fractal(28, x * 160.0, y * 24.0, self.octaves(6), 0.7);
            let round = 0.55 + 0.4 * (x / width);
            return Some(scale([0.34, 0.25, 0.18], (round + 0.45 * bark).clamp(0.1, 1.2)));
        }
        None
    }

    /// A sign on two posts at the right, with letters: straight edges of high contrast.
    fn sign(&self, across: f32, y: f32) -> Option<Colour> {
        let x = across - 0.27 * self.aspect;
        let grain = |shade: f32| {
            let lines = fractal(15, x * 9.0, y * 130.0, self.octaves(4).min(5), 0.6);
            scale([0.50, 0.36, 0.22], shade + 0.22 * lines)
        };
        let (left, right, top, bottom) = (-0.13, 0.13, 0.685, 0.795);
        if !(left..right).contains(&x) || !(top..bottom).contains(&y) {
            let on_post = [left + 0.035, right - 0.035].iter().any(|post| (x - post).abs() < 0.011);
            return (on_post && (top - 0.02..0.955).contains(&y)).then(|| grain(0.72));
        }
        let edge = (x - left).min(right - x).min(y - top).min(bottom - y);
        if edge < 0.007 {
            return Some(grain(0.65));
        }
        // Four letters of 3 × 5 dots with one dot between them: 15 dots in 0.22.
        let dot = 0.22 / 15.0;
        let (column, row) = ((x + 0.11) / dot, (y - 0.7033) / dot);
        if (0.0..15.0).contains(&column) && (0.0..5.0).contains(&row) {
            let (letter, within) = (column as usize / 4, column as usize % 4);
            if within < 3 && LETTERS[letter][row as usize] & (4 >> within) != 0 {
                return Some([0.10, 0.09, 0.10]);
            }
        }
        Some(add(grain(0.42), [0.60, 0.60, 0.56]))
    }
}

fn add(a: Colour, b: Colour) -> Colour {
    [a[0] + b[0], a[1] + b[1], a[2] + b[2]]
}

fn scale(a: Colour, factor: f32) -> Colour {
    a.map(|value| value * factor)
}

/// `a` where `share` is 0, `b` where it is 1.
fn mix(a: Colour, b: Colour, share: f32) -> Colour {
    let share = share.clamp(0.0, 1.0);
    [0, 1, 2].map(|i| a[i] + (b[i] - a[i]) * share)
}

/// 0 at `from`, 1 at `to`, smooth between; `from` may be the larger one.
fn smoothstep(from: f32, to: f32, value: f32) -> f32 {
    let t = ((value - from) / (to - from)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

fn distance(x: f32, y: f32) -> f32 {
    (x * x + y * y).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Differences of neighbours in a row of the green channel, at a distance.
    fn differences(picture: &Array, distance: usize) -> Vec<f64> {
        let &[_, _, height, width] = picture.shape() else { unreachable!("a picture") };
        let value = |row: usize, column: usize| f64::from(picture[[0, 1, row, column]]);
        (0..height)
            .flat_map(|row| (distance..width).map(move |column| (row, column)))
            .map(|(row, column)| value(row, column) - value(row, column - distance))
            .collect()
    }

    fn moment(values: &[f64], power: i32) -> f64 {
        values.iter().map(|value| value.powi(power)).sum::<f64>() / values.len() as f64
    }

    #[test]
    fn statistics_are_those_of_photographs() {
        let picture = landscape(192, 192).expect("a picture");
        // Most neighbours are alike and a few differ much: the fourth moment is far above the 3 of a
        // Gaussian. Kodak's photographs have 11 to 76.
        let near = differences(&picture, 1);
        let kurtosis = moment(&near, 4) / moment(&near, 2).powi(2);
        assert!((10.0..80.0).contains(&kurtosis), "{kurtosis}");
        // Power as 1/f²: doubling a distance raises the squared difference, by less than a smooth
        // picture's 4 and more than white noise's 1.
        for distance in [1, 2, 4, 8] {
            let growth = moment(&differences(&picture, 2 * distance), 2)
                / moment(&differences(&picture, distance), 2);
            assert!((1.1..2.6).contains(&growth), "{distance}: {growth}");
        }
        let mean = picture.mean().expect("values");
        assert!((0.25..0.6).contains(&mean), "{mean}");
    }

    #[test]
    fn number_of_threads_and_shape_of_the_picture_do_not_matter() {
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| landscape(20, 45)).expect("a picture")
        };
        assert_eq!(on(1), on(3));
        for (height, width) in [(1, 1), (1, 9), (40, 3)] {
            let picture = landscape(height, width).expect("a picture");
            assert!(picture.iter().all(|value| (0.0..=1.0).contains(value)));
        }
        assert!(landscape(0, 5).is_err());
    }
}
