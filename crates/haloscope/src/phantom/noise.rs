//! Smooth random fields: values that are fixed at the points of a lattice and run smoothly between.
//!
//! Sums of them at doubling frequencies have spectra that fall as natural textures do. The lattice's
//! values come from a hash of the point, so that a field has no size and needs no memory.

/// Directions of slopes, evenly around the circle. Written out, so that they are the same everywhere.
const DIRECTIONS: [(f32, f32); 16] = [
    (0.980_785_25, 0.195_090_32),
    (0.831_469_6, 0.555_570_2),
    (0.555_570_2, 0.831_469_6),
    (0.195_090_32, 0.980_785_25),
    (-0.195_090_32, 0.980_785_25),
    (-0.555_570_2, 0.831_469_6),
    (-0.831_469_6, 0.555_570_2),
    (-0.980_785_25, 0.195_090_32),
    (-0.980_785_25, -0.195_090_32),
    (-0.831_469_6, -0.555_570_2),
    (-0.555_570_2, -0.831_469_6),
    (-0.195_090_32, -0.980_785_25),
    (0.195_090_32, -0.980_785_25),
    (0.555_570_2, -0.831_469_6),
    (0.831_469_6, -0.555_570_2),
    (0.980_785_25, -0.195_090_32),
];

/// Bits without pattern for a point of the lattice.
fn hash(seed: u32, x: i32, y: i32) -> u32 {
    let mut bits = (x as u32).wrapping_mul(0x9e37_79b1)
        ^ (y as u32).wrapping_mul(0x85eb_ca77)
        ^ seed.wrapping_mul(0xc2b2_ae3d);
    bits = (bits ^ (bits >> 15)).wrapping_mul(0x2c1b_3c6d);
    bits = (bits ^ (bits >> 12)).wrapping_mul(0x297a_2d39);
    bits ^ (bits >> 15)
}

/// A number from 0 to 1 for a point of the lattice.
pub(super) fn at_point(seed: u32, x: i32, y: i32) -> f32 {
    (hash(seed, x, y) >> 8) as f32 / (1 << 24) as f32
}

/// A smooth field from −1 to 1 whose features are about 1 wide: gradients at the lattice's points.
pub(super) fn smooth(seed: u32, x: f32, y: f32) -> f32 {
    let (left, top) = (below(x), below(y));
    let (right_part, lower_part) = (x - left as f32, y - top as f32);
    let fade = |t: f32| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
    let corner = |right: i32, under: i32| {
        let direction = hash(seed, left.wrapping_add(right), top.wrapping_add(under)) >> 28;
        let (across, down) = DIRECTIONS[direction as usize];
        across * (right_part - right as f32) + down * (lower_part - under as f32)
    };
    let (a, b) = (fade(right_part), fade(lower_part));
    let above = corner(0, 0) * (1.0 - a) + corner(1, 0) * a;
    let under = corner(0, 1) * (1.0 - a) + corner(1, 1) * a;
    std::f32::consts::SQRT_2 * (above * (1.0 - b) + under * b)
}

/// A whole number at or below, at most by 1: unlike `floor`, this is no call of a function.
fn below(x: f32) -> i32 {
    x as i32 - i32::from(x < 0.0)
}

/// A sum of fields at doubling frequencies whose amplitudes shrink by `gain`: 0.5 gives a power that
/// falls as 1/f² along a line, as that of photographs does.
pub(super) fn fractal(seed: u32, x: f32, y: f32, octaves: u32, gain: f32) -> f32 {
    let (mut sum, mut weight, mut scale) = (0.0, 1.0, 1.0);
    for octave in 0..octaves {
        // Shifted, so that lattices do not lie on each other.
        let shift = 17.3 * octave as f32;
        sum += weight * smooth(seed.wrapping_add(octave), x * scale + shift, y * scale - shift);
        weight *= gain;
        scale *= 2.0;
    }
    sum
}

/// [`fractal`] of folded fields: sharp ridges, as mountains have.
pub(super) fn ridged(seed: u32, x: f32, y: f32, octaves: u32, gain: f32) -> f32 {
    let (mut sum, mut weight, mut scale) = (0.0, 1.0, 1.0);
    for octave in 0..octaves {
        let shift = 9.7 * octave as f32;
        let field = smooth(seed.wrapping_add(octave), x * scale + shift, y * scale + shift);
        sum += weight * (1.0 - 2.0 * field.abs());
        weight *= gain;
        scale *= 2.0;
    }
    sum
}
