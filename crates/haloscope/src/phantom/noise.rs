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

/// A number from 0 to 1 for a point of the lattice.
pub(super) fn at_point(seed: u32, x: i64, y: i64) -> f32 {
    let mut bits = (x as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        ^ (y as u64).wrapping_mul(0xc2b2_ae3d_27d4_eb4f)
        ^ u64::from(seed).wrapping_mul(0x1656_67b1_9e37_79f9);
    bits = (bits ^ (bits >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    bits = (bits ^ (bits >> 29)).wrapping_mul(0xa076_1d64_78bd_642f);
    (bits >> 40) as f32 / (1 << 24) as f32
}

/// A smooth field from −1 to 1 whose features are about 1 wide: gradients at the lattice's points.
pub(super) fn smooth(seed: u32, x: f32, y: f32) -> f32 {
    let (left, top) = (x.floor(), y.floor());
    let (right_part, lower_part) = (x - left, y - top);
    let fade = |t: f32| t * t * t * (t * (t * 6.0 - 15.0) + 10.0);
    let corner = |right: i64, below: i64| {
        let value = at_point(seed, left as i64 + right, top as i64 + below);
        let (across, down) = DIRECTIONS[(value * 16.0) as usize & 15];
        across * (right_part - right as f32) + down * (lower_part - below as f32)
    };
    let (a, b) = (fade(right_part), fade(lower_part));
    let above = corner(0, 0) * (1.0 - a) + corner(1, 0) * a;
    let below = corner(0, 1) * (1.0 - a) + corner(1, 1) * a;
    std::f32::consts::SQRT_2 * (above * (1.0 - b) + below * b)
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
