//! Winograd transforms along depth, before those of the input's planes and after the products.

use super::lanes::Lanes;
use super::transform::{F2, Transform};
use super::winograd::COLUMNS;
use crate::engine::cpu::layout::BLOCK;

/// Planes under the deepest tile.
const DEEPEST: usize = 4;

/// A row of a plane outside the volume, of which all rows are this one.
#[repr(align(64))]
struct Zeros([f32; COLUMNS * BLOCK]);

static ZEROS: Zeros = Zeros([0.0; COLUMNS * BLOCK]);

/// The input of a run of tiles, one block of channels: a window of each plane that they cover.
pub(crate) struct DepthInput {
    /// The corner of the window in each plane and the floats between its rows.
    planes: [(*const f32, usize); DEEPEST],
    pub(crate) rows: usize,
    /// Pixels, at most those under the longest run of the largest tiles.
    pub(crate) columns: usize,
}

impl DepthInput {
    /// A window of the planes that `corner` gives; those that it does not have lie outside the volume and are zero.
    pub(crate) fn new(
        [rows, columns]: [usize; 2],
        row_stride: usize,
        corner: impl Fn(usize) -> Option<*const f32>,
    ) -> Self {
        debug_assert!(columns <= COLUMNS);
        let outside = (ZEROS.0.as_ptr(), 0);
        let plane = |index| corner(index).map_or(outside, |corner| (corner, row_stride));
        Self { planes: std::array::from_fn(plane), rows, columns }
    }
}

/// Transforms a window along depth: `target` receives `[A](plane_stride)[row][column][BLOCK]`.
///
/// # Safety
/// The windows of the first `A` planes are valid, and so is `target`. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn transform_depth<
    L: Lanes,
    T: Transform<M, A>,
    const M: usize,
    const A: usize,
>(
    input: &DepthInput,
    target: *mut f32,
    plane_stride: usize,
) {
    let mut target = target;
    for row in 0..input.rows {
        let mut sources = [std::ptr::null(); A];
        for z in 0..A {
            let (corner, stride) = input.planes[z];
            sources[z] = corner.wrapping_add(row * stride);
        }
        for column in 0..input.columns {
            // SAFETY: the caller vouches for the planes and the target.
            unsafe {
                let mut d = [L::splat(0.0); A];
                for z in 0..A {
                    d[z] = L::load(sources[z].add(column * BLOCK));
                }
                let d = T::input(d);
                for z in 0..A {
                    d[z].store(target.add(z * plane_stride));
                }
                target = target.add(BLOCK);
            }
        }
    }
}

/// Transforms products back along depth, in place: of `A` values, `stride` floats apart, the first `M` become the result.
///
/// # Safety
/// `products` is valid for `len` floats, a multiple of eight, at each of the `A` places. The CPU has the instructions of `L`.
#[inline(always)]
pub(crate) unsafe fn fold_depth<L: Lanes, T: Transform<M, A>, const M: usize, const A: usize>(
    products: *mut f32,
    stride: usize,
    len: usize,
) {
    for at in (0..len).step_by(BLOCK) {
        // SAFETY: the caller vouches for the products.
        unsafe {
            let products = products.add(at);
            let mut m = [L::splat(0.0); A];
            for z in 0..A {
                m[z] = L::load(products.add(z * stride));
            }
            let m = T::output(m);
            for z in 0..M {
                m[z].store(products.add(z * stride));
            }
        }
    }
}

/// The filter transform along depth, `G`, for tiles of so many planes; none where taps are summed one by one.
pub(crate) fn depth_filter(depth: usize) -> &'static [[f64; 3]] {
    match depth {
        2 => &<F2 as Transform<2, 4>>::FILTER,
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::super::InstructionSet;
    use super::*;
    use crate::engine::cpu::buffer::AlignedBuffer;

    const ROWS: usize = 2;
    const WIDTH: usize = 3;
    const PLANE: usize = ROWS * WIDTH * BLOCK;

    /// Values and weights of three taps.
    fn random(len: usize) -> (AlignedBuffer, [f64; 3]) {
        let mut random = fastrand::Rng::with_seed(6);
        let buffer = AlignedBuffer::zeroed(len);
        for index in 0..len {
            // SAFETY: below the buffer's length, and nobody else uses it.
            unsafe { buffer.as_ptr().add(index).write(random.f32() - 0.5) };
        }
        (buffer, std::array::from_fn(|_| random.f64() - 0.5))
    }

    #[test]
    fn every_instruction_set_convolves_along_depth_and_sees_zeros_outside() {
        for set in InstructionSet::ALL {
            if !set.is_available() {
                eprintln!("skipped: {set:?}, which this CPU does not have");
                continue;
            }
            for planes in 1..=4 {
                let (depth, points) = (2, 4);
                let (input, taps) = random(planes * PLANE);
                let products = AlignedBuffer::zeroed(points * PLANE);
                let corner = |index: usize| {
                    let plane = input.as_ptr().wrapping_add(index * PLANE).cast_const();
                    (index < planes).then_some(plane)
                };
                let window = DepthInput::new([ROWS, WIDTH], WIDTH * BLOCK, corner);
                // SAFETY: both buffers have room for all planes, and the instructions are there.
                unsafe {
                    set.depth_kernel()(&window, products.as_ptr(), PLANE);
                    for (point, row) in depth_filter(depth).iter().enumerate() {
                        let weight: f64 = row.iter().zip(taps).map(|(row, tap)| row * tap).sum();
                        for index in point * PLANE..(point + 1) * PLANE {
                            #[expect(clippy::cast_possible_truncation, reason = "kept as f32")]
                            let weight = weight as f32;
                            *products.as_ptr().add(index) *= weight;
                        }
                    }
                    set.fold_kernel()(products.as_ptr(), PLANE, PLANE);
                }
                // SAFETY: below the lengths of the buffers.
                let value = |buffer: &AlignedBuffer, index: usize| unsafe {
                    f64::from(*buffer.as_ptr().add(index))
                };
                for plane in 0..depth {
                    for index in 0..PLANE {
                        let inside = (0..3).filter(|tap| plane + tap < planes);
                        let expected: f64 = inside
                            .map(|tap| taps[tap] * value(&input, (plane + tap) * PLANE + index))
                            .sum();
                        let found = value(&products, plane * PLANE + index);
                        assert!((found - expected).abs() < 2e-6, "{set:?}: {found}, {expected}");
                    }
                }
            }
        }
    }
}
