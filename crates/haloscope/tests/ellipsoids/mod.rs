//! Shepp and Logan's head as ellipsoids: voxels of it, and exact integrals along rays.

use haloscope::Array;

/// Value, half axes, centre, angle around z in degrees; in units of half the image.
const ELLIPSOIDS: [(f64, [f64; 3], [f64; 2], f64); 10] = [
    (1.0, [0.69, 0.92, 0.81], [0.0, 0.0], 0.0),
    (-0.8, [0.6624, 0.8740, 0.78], [0.0, -0.0184], 0.0),
    (-0.2, [0.11, 0.31, 0.22], [0.22, 0.0], -18.0),
    (-0.2, [0.16, 0.41, 0.28], [-0.22, 0.0], 18.0),
    (0.1, [0.21, 0.25, 0.41], [0.0, 0.35], 0.0),
    (0.1, [0.046, 0.046, 0.05], [0.0, 0.1], 0.0),
    (0.1, [0.046, 0.046, 0.05], [0.0, -0.1], 0.0),
    (0.1, [0.046, 0.023, 0.05], [-0.08, -0.605], 0.0),
    (0.1, [0.023, 0.023, 0.02], [0.0, -0.606], 0.0),
    (0.1, [0.023, 0.046, 0.02], [0.06, -0.605], 0.0),
];

/// A line through space, in pixels from the middle.
pub(crate) struct Ray {
    pub(crate) origin: [f64; 3],
    pub(crate) direction: [f64; 3],
}

/// A point or direction where an ellipsoid is the unit sphere, up to its centre.
fn turn([x, y, z]: [f64; 3], half_axes: [f64; 3], degrees: f64) -> [f64; 3] {
    let (sin, cos) = degrees.to_radians().sin_cos();
    [(x * cos + y * sin) / half_axes[0], (y * cos - x * sin) / half_axes[1], z / half_axes[2]]
}

fn dot(a: [f64; 3], b: [f64; 3]) -> f64 {
    a[0] * b[0] + a[1] * b[1] + a[2] * b[2]
}

/// The integral through a head of `size` pixels.
pub(crate) fn integral(size: usize, ray: &Ray) -> f64 {
    let half = size as f64 / 2.0;
    let length = dot(ray.direction, ray.direction).sqrt();
    let chord = |&(value, axes, centre, degrees): &(f64, [f64; 3], [f64; 2], f64)| {
        let origin = ray.origin.map(|x| x / half);
        let o = turn([origin[0] - centre[0], origin[1] - centre[1], origin[2]], axes, degrees);
        let d = turn(ray.direction.map(|x| x / half), axes, degrees);
        let inside = dot(o, d).powi(2) - dot(d, d) * (dot(o, o) - 1.0);
        value * 2.0 * inside.max(0.0).sqrt() / dot(d, d) * length
    };
    ELLIPSOIDS.iter().map(chord).sum()
}

/// The mean over each pixel of a plane (row 0 at the top) or voxel of a volume (all axes growing),
/// with batch and channel in front.
pub(crate) fn head(size: &[usize]) -> Array {
    let parts = if size.len() == 2 { 8 } else { 4 };
    // The axes of a plane are y and x; it lies in the middle.
    let layers = if size.len() == 2 { 1 } else { parts };
    let sides = [&[1][..], size].concat();
    let [depth, height, width] = sides[sides.len() - 3..] else { panic!("2 or 3 axes") };
    let upwards = if size.len() == 2 { -1.0 } else { 1.0 };
    let place = |i: usize, n: usize, part: f64| (i as f64 + part) / n as f64 * 2.0 - 1.0;
    let half_diagonal = 3.0_f64.sqrt() / *size.iter().min().expect("sides") as f64;
    let shape = [&[1, 1], size].concat();
    Array::from_shape_fn(shape, |i| {
        let (z, y, x) = if size.len() == 2 { (0, i[2], i[3]) } else { (i[2], i[3], i[4]) };
        let mut sum = 0.0;
        for &(value, axes, centre, degrees) in &ELLIPSOIDS {
            let radius = |part: [f64; 3]| {
                let z = if size.len() == 2 { 0.0 } else { place(z, depth, part[0]) };
                let y = upwards * place(y, height, part[1]) - centre[1];
                let p = turn([place(x, width, part[2]) - centre[0], y, z], axes, degrees);
                dot(p, p).sqrt()
            };
            let middle = radius([0.5; 3]);
            let margin = half_diagonal / axes[0].min(axes[1]).min(axes[2]);
            if (middle - 1.0).abs() > margin {
                sum += if middle < 1.0 { value } else { 0.0 };
                continue;
            }
            let part = |i: usize, n: usize| (i as f64 + 0.5) / n as f64;
            let mut inside = 0;
            for a in 0..layers {
                for b in 0..parts * parts {
                    let at = [part(a, layers), part(b / parts, parts), part(b % parts, parts)];
                    inside += usize::from(radius(at) <= 1.0);
                }
            }
            sum += value * inside as f64 / (layers * parts * parts) as f64;
        }
        sum as f32
    })
}

/// Against a range of 1, within the circle or ball that all views see.
pub(crate) fn psnr(image: &Array, truth: &Array) -> f64 {
    assert_eq!(image.shape(), truth.shape());
    let (mut sum, mut count) = (0.0, 0);
    for (i, &truth) in truth.indexed_iter() {
        let place = |axis: usize| {
            let n = image.shape()[axis];
            (i[axis] as f64 + 0.5) / n as f64 * 2.0 - 1.0
        };
        let radius: f64 = (2..image.ndim()).map(|axis| place(axis).powi(2)).sum();
        if radius < 0.95 * 0.95 {
            sum += f64::from(image[&i] - truth).powi(2);
            count += 1;
        }
    }
    -10.0 * (sum / f64::from(count)).log10()
}
