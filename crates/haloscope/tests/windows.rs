//! Operators on parts of the image have the bits of the whole operator, however the image is cut.
//!
//! Every part is computed from a window that holds just what the operator says it reads; the parts are put together and
//! compared with the whole. A new operator that works on windows is one line in the list at the end.

use std::ops::Range;
use std::sync::Arc;

use haloscope::Array;
use haloscope::array::{dot, norm};
use haloscope::physics::{
    Blur, BlurMethod, Compose, Decolorize, Downsampling, DownsamplingFilter, Identity, Inpainting,
    Padding, Physics, Scaled, WindowPhysics, kernels,
};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;

type Random = fastrand::Rng;
type Part = Vec<Range<usize>>;
type Make = fn(&mut Random) -> Arc<dyn Physics>;

const BATCH: usize = 2;

/// Cuts sides at random places, into at most nine parts in all.
fn random_parts(sides: &[usize], random: &mut Random) -> Vec<Part> {
    let mut parts = vec![Vec::new()];
    for (axis, &side) in sides.iter().enumerate() {
        let most = if axis + 1 == sides.len() { 9 / parts.len() } else { 3 };
        let mut cuts: Vec<usize> =
            (1..random.usize(1..=most.max(1))).map(|_| random.usize(0..=side)).collect();
        cuts.extend([0, side]);
        cuts.sort_unstable();
        parts = parts
            .iter()
            .flat_map(|part| {
                cuts.windows(2).map(move |ends| {
                    let mut part: Part = Clone::clone(part);
                    part.push(ends[0]..ends[1]);
                    part
                })
            })
            .collect();
    }
    parts
}

/// The window of an array that begins again at its ends.
fn cut(array: &Array, window: &[Range<isize>]) -> Vec<f32> {
    let sides = &array.shape()[2..];
    assert_eq!(window.len(), sides.len());
    for (range, &side) in window.iter().zip(sides) {
        assert!(range.len() <= side, "{window:?} of {sides:?}");
    }
    let mut shape = array.shape()[..2].to_vec();
    shape.extend(window.iter().map(ExactSizeIterator::len));
    let value = |at: IxDyn| {
        let mut place = [at[0], at[1]].to_vec();
        for (axis, (range, &side)) in window.iter().zip(sides).enumerate() {
            let position = range.start + at[axis + 2] as isize;
            place.push(position.rem_euclid(side as isize) as usize);
        }
        array[IxDyn(&place)]
    };
    ArrayD::from_shape_fn(shape, value).into_raw_vec_and_offset().0
}

/// Writes a part of an array, all of which must be absent as yet.
fn paste(array: &mut Array, part: &[Range<usize>], values: Vec<f32>) {
    let mut shape = array.shape()[..2].to_vec();
    shape.extend(part.iter().map(ExactSizeIterator::len));
    let values = ArrayD::from_shape_vec(shape, values).expect("the values of a part");
    let mut slice = array.slice_each_axis_mut(|axis| match axis.axis.index() {
        0 | 1 => (..).into(),
        axis => part[axis - 2].clone().into(),
    });
    assert!(slice.iter().all(|value| value.is_nan()), "parts overlap at {part:?}");
    slice.assign(&values);
}

fn random_array(shape: &[usize], random: &mut Random) -> Array {
    ArrayD::from_shape_fn([&[BATCH], shape].concat(), |_| random.f32() * 2.0 - 1.0)
}

fn absent(shape: &[usize]) -> Array {
    ArrayD::from_elem([&[BATCH], shape].concat(), f32::NAN)
}

fn bits(array: &Array) -> Vec<u32> {
    array.iter().map(|value| value.to_bits()).collect()
}

fn samples(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

/// `A x` and `Aᵀ y` from parts.
fn from_parts(operator: &dyn WindowPhysics, x: &Array, y: &Array, parts: &[Part]) -> [Array; 2] {
    let (mut ax, mut aty) = (absent(operator.measurement_shape()), absent(operator.image_shape()));
    let len = |shape: &[usize], part: &[Range<usize>]| {
        BATCH * shape[0] * part.iter().map(ExactSizeIterator::len).product::<usize>()
    };
    for part in parts {
        let region = operator.measurement_region(part);
        let mut values = vec![f32::NAN; len(operator.measurement_shape(), &region)];
        let window = cut(x, &operator.image_reads(&region));
        operator.forward_window(BATCH, &region, &window, &mut values).expect("forward");
        paste(&mut ax, &region, values);
        let mut values = vec![f32::NAN; len(operator.image_shape(), part)];
        let window = cut(y, &operator.measurement_reads(part));
        operator.adjoint_window(BATCH, part, &window, &mut values).expect("adjoint");
        paste(&mut aty, part, values);
    }
    [ax, aty]
}

fn assert_parts(operator: &dyn Physics, random: &mut Random) {
    let operator = operator.as_window().expect("an operator on windows");
    let x = random_array(operator.image_shape(), random);
    let y = random_array(operator.measurement_shape(), random);
    let [ax, aty] = [operator.forward(&x), operator.adjoint(&y)].map(|whole| whole.expect("whole"));
    let mut first: Option<[Array; 2]> = None;
    for _ in 0..3 {
        let parts = random_parts(&operator.image_shape()[1..], random);
        let found = from_parts(operator, &x, &y, &parts);
        if operator.window_bits_agree() {
            assert_eq!(bits(&found[0]), bits(&ax), "{operator:?}: A x of {parts:?}");
            assert_eq!(bits(&found[1]), bits(&aty), "{operator:?}: Aᵀ y of {parts:?}");
        }
        for (found, whole) in found.iter().zip([&ax, &aty]) {
            let apart = norm(samples(&(found - whole)));
            assert!(apart <= 3e-6 * norm(samples(whole)).max(1e-3), "{operator:?}: {apart}");
        }
        let first = first.get_or_insert_with(|| found.clone());
        assert_eq!(first.each_ref().map(bits), found.each_ref().map(bits), "{parts:?}");
        let (left, right) =
            (dot(samples(&found[0]), samples(&y)), dot(samples(&x), samples(&found[1])));
        let scale = norm(samples(&found[0])).max(0.01 * norm(samples(&x))) * norm(samples(&y));
        assert!((left - right).abs() <= 4e-6 * scale, "{operator:?}: {left} and {right}");
        assert_solution(operator, &x, &parts);
    }
}

/// Where parts can be solved on their own, the solution has the bits of the whole.
fn assert_solution(operator: &dyn WindowPhysics, b: &Array, parts: &[Part]) {
    for shift in [0.0, 0.3] {
        let mut solution = absent(b.shape().get(1..).expect("axes"));
        for part in parts {
            let window: Vec<_> =
                part.iter().map(|range| range.start as isize..range.end as isize).collect();
            let b = cut(b, &window);
            let mut out = vec![f32::NAN; b.len()];
            match operator.solve_normal_window(BATCH, part, &b, shift, &mut out) {
                Some(solved) => solved.expect("a solution"),
                None => return,
            }
            paste(&mut solution, part, out);
        }
        let whole = operator.solve_normal(b, shift).expect("a closed form").expect("a solution");
        assert_eq!(bits(&solution), bits(&whole), "{operator:?}");
    }
}

/// 1 or 3 channels and two or three sides, of 1 to 40 and 1 to 14 pixels.
fn image_shape(random: &mut Random) -> Vec<usize> {
    let sides = random.usize(2..4);
    let mut shape = vec![if random.bool() { 1 } else { 3 }];
    shape.extend((0..sides).map(|_| random.usize(1..if sides == 2 { 41 } else { 15 })));
    shape
}

/// Often larger than the image; one in three a product of a column and a row.
fn random_kernel(shape: &[usize], padding: Padding, random: &mut Random) -> Array {
    let longest = |side: usize| if padding == Padding::Valid { side.min(12) } else { 12 };
    let size: Vec<usize> = shape[1..].iter().map(|&side| random.usize(1..=longest(side))).collect();
    if random.usize(0..3) == 0 {
        return kernels::uniform(&size).expect("a kernel");
    }
    let images = if random.bool() { 1 } else { BATCH };
    let channels = if random.bool() { 1 } else { shape[0] };
    ArrayD::from_shape_fn([&[images, channels], &size[..]].concat(), |_| random.f32() - 0.5)
}

fn random_blur(
    shape: &[usize],
    padding: Padding,
    method: BlurMethod,
    random: &mut Random,
) -> Arc<dyn Physics> {
    let kernel = random_kernel(shape, padding, random);
    Arc::new(Blur::with_method(shape, &kernel, padding, method).expect("a blur"))
}

fn direct(padding: Padding, random: &mut Random) -> Arc<dyn Physics> {
    random_blur(&image_shape(random), padding, BlurMethod::Direct, random)
}

/// An image of several blocks along one side, so that parts cut through them.
fn blocks(padding: Padding, random: &mut Random) -> Arc<dyn Physics> {
    let method = if random.bool() { BlurMethod::Blocks } else { BlurMethod::Fourier };
    let mut shape = if random.bool() { vec![1, 5, 9] } else { vec![2, 2, 4, 7] };
    let long = random.usize(1..shape.len());
    shape[long] = random.usize(200..700) / if shape.len() == 4 { 2 } else { 1 };
    random_blur(&shape, padding, method, random)
}

fn downsampling(padding: Padding, random: &mut Random) -> Arc<dyn Physics> {
    let mut shape = image_shape(random);
    let factor = random.usize(1..5);
    shape[1..].iter_mut().for_each(|side| *side += 4);
    let filter = match random.usize(0..5) {
        0 => DownsamplingFilter::None,
        1 => DownsamplingFilter::Box,
        2 if padding != Padding::Valid => DownsamplingFilter::Gaussian,
        3 if padding != Padding::Valid && shape.len() == 3 => DownsamplingFilter::Bicubic,
        _ => DownsamplingFilter::Kernel(random_kernel(&shape, padding, random)),
    };
    let phase: Vec<usize> = shape[1..].iter().map(|_| random.usize(0..factor)).collect();
    let make = || Downsampling::new(&shape, factor, &filter, padding).expect("downsampling");
    // A phase beyond a short side is refused.
    Arc::new(make().with_phase(&phase).unwrap_or_else(|_| make()))
}

fn inpainting(random: &mut Random) -> Arc<dyn Physics> {
    let shape = image_shape(random);
    let mask = ArrayD::from_shape_fn(shape.clone(), |_| random.f32().mul_add(2.0, -1.0).max(0.0));
    Arc::new(Inpainting::new(&shape, &mask).expect("inpainting"))
}

fn decolorize(random: &mut Random) -> Arc<dyn Physics> {
    let shape = image_shape(random);
    let weights: Vec<f32> = (0..shape[0]).map(|_| random.f32()).collect();
    Arc::new(Decolorize::with_weights(&shape, &weights).expect("decolorize"))
}

fn scaled(random: &mut Random) -> Arc<dyn Physics> {
    let inner: [Make; 3] =
        [inpainting, decolorize, |random| downsampling(Padding::Circular, random)];
    let inner = inner[random.usize(0..3)](random);
    let factor = if random.usize(0..4) == 0 { 0.0 } else { random.f32() - 0.5 };
    Arc::new(Scaled::new(factor, inner).expect("finite"))
}

/// Two or three operators with any paddings, after each other.
fn compose(random: &mut Random) -> Arc<dyn Physics> {
    let paddings = [Padding::Circular, Padding::Reflect, Padding::Replicate, Padding::Constant];
    let pick = |random: &mut Random| paddings[random.usize(0..paddings.len())];
    let mut all = downsampling(pick(random), random);
    for _ in 0..random.usize(1..3) {
        let (padding, method) = (pick(random), BlurMethod::Direct);
        let next = random_blur(all.measurement_shape(), padding, method, random);
        all = Arc::new(Compose::new(next, all).expect("operators that meet"));
    }
    all
}

macro_rules! window_tests {
    ($($name:ident: $make:expr;)*) => { proptest! {
        #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]
        $(#[test] fn $name(seed: u64) {
            let mut random = Random::with_seed(seed);
            let make: Make = $make;
            assert_parts(&*make(&mut random), &mut random);
        })*
    } };
}

window_tests! {
    identity: |random| Arc::new(Identity::new(&image_shape(random)));
    inpainting_: inpainting;
    decolorize_: decolorize;
    blur_circular: |random| direct(Padding::Circular, random);
    blur_reflect: |random| direct(Padding::Reflect, random);
    blur_replicate: |random| direct(Padding::Replicate, random);
    blur_constant: |random| direct(Padding::Constant, random);
    blur_valid: |random| direct(Padding::Valid, random);
    blocks_circular: |random| blocks(Padding::Circular, random);
    blocks_reflect: |random| blocks(Padding::Reflect, random);
    blocks_replicate: |random| blocks(Padding::Replicate, random);
    blocks_constant: |random| blocks(Padding::Constant, random);
    blocks_valid: |random| blocks(Padding::Valid, random);
    downsampling_circular: |random| downsampling(Padding::Circular, random);
    downsampling_reflect: |random| downsampling(Padding::Reflect, random);
    downsampling_replicate: |random| downsampling(Padding::Replicate, random);
    downsampling_constant: |random| downsampling(Padding::Constant, random);
    downsampling_valid: |random| downsampling(Padding::Valid, random);
    scaled_: scaled;
    compose_: compose;
}
