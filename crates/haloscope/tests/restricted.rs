//! Operators that see everything, restricted to parts of the image: what parts give adds up to what the whole gives, to the
//! same bits in any order, and adjoints of parts are parts of the adjoint.

use std::ops::Range;
use std::sync::Arc;

use haloscope::array::{distance, norm};
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d, evenly_spaced,
};
use haloscope::physics::{
    Blur, Compose, FixedPoint, LinearPhysics, Matrix, Padding, Physics, Scaled, kernels,
};
use haloscope::{Array, Result};
use ndarray::ArrayD;

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    ArrayD::from_shape_fn([&[2], shape].concat(), |_| random.f32() * 2.0 - 1.0)
}

fn samples(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

fn cut(array: &Array, part: &[Range<usize>]) -> Array {
    let slice = array.slice_each_axis(|axis| match axis.axis.index() {
        0 | 1 => (..).into(),
        axis => part[axis - 2].clone().into(),
    });
    slice.as_standard_layout().into_owned()
}

/// Two or three parts along each of the sides.
fn parts(sides: &[usize]) -> Vec<Vec<Range<usize>>> {
    let mut parts = vec![Vec::new()];
    for (axis, &side) in sides.iter().enumerate() {
        let mut cuts = vec![0, side / 3, side * (axis + 2) / 5, side];
        cuts.dedup();
        let extended = |part: &Vec<Range<usize>>| -> Vec<Vec<Range<usize>>> {
            let with = |ends: &[usize]| {
                let mut part = part.clone();
                part.push(ends[0]..ends[1]);
                part
            };
            cuts.windows(2).map(with).collect()
        };
        parts = parts.iter().flat_map(extended).collect();
    }
    parts
}

/// Nothing is measured outside the shadow of a part, and within it the same; the adjoint reads nothing else.
fn assert_keeps_shadow(operator: &dyn LinearPhysics, part: &[Range<usize>], x: &Array, y: &Array) {
    let of = |part: Option<Result<Arc<dyn Physics>>>| part.expect("parts exist").expect("a part");
    let whole = of(operator.restricted(part));
    let (restricted, shadow) = (of(operator.restricted_to_shadow(part)), operator.shadow(part));
    let measured = whole.forward(x).expect("forward");
    let inside = cut(&measured, &shadow);
    let squares = |array: &Array| norm(samples(array)).powi(2);
    assert!(squares(&measured) - squares(&inside) <= 1e-12 * squares(&measured), "{operator:?}");
    let found = restricted.forward(x).expect("forward");
    let apart = distance(samples(&found), samples(&inside));
    assert!(apart <= 1e-6 * norm(samples(&inside)), "{operator:?}, {part:?}: {apart}");
    let adjoint = |operator: &Arc<dyn Physics>, y: &Array| {
        operator.as_linear().expect("linear").adjoint(y).expect("adjoint")
    };
    let (found, expected) = (adjoint(&restricted, &cut(y, &shadow)), adjoint(&whole, y));
    let apart = distance(samples(&found), samples(&expected));
    assert!(apart <= 2e-6 * norm(samples(&expected)), "{operator:?}, {part:?}: {apart}");
}

fn assert_adds_up(operator: &dyn LinearPhysics) {
    let (x, y) = (random(operator.image_shape(), 1), random(operator.measurement_shape(), 2));
    let whole = operator.forward(&x).expect("forward");
    let adjoint = operator.adjoint(&y).expect("adjoint");
    let mut terms = Vec::new();
    for part in parts(&operator.image_shape()[1..]) {
        let restricted = operator.restricted(&part).expect("parts exist").expect("a part");
        terms.push(restricted.forward(&cut(&x, &part)).expect("forward"));
        let own = restricted.as_linear().expect("linear").adjoint(&y).expect("adjoint");
        assert_keeps_shadow(operator, &part, &cut(&x, &part), &y);
        let expected = cut(&adjoint, &part);
        let apart = distance(samples(&own), samples(&expected));
        assert!(apart <= 2e-6 * norm(samples(&adjoint)), "{operator:?}, {part:?}: {apart}");
    }
    let greatest = terms.iter().flatten().fold(0.0, |most: f32, value| most.max(value.abs()));
    let unit = FixedPoint::new(greatest, terms.len()).expect("finite");
    let add_up = |terms: &mut dyn Iterator<Item = &Array>| {
        let mut sums = vec![0; whole.len()];
        terms.for_each(|term| unit.add(samples(term), &mut sums));
        let mut sum = vec![0.0; whole.len()];
        unit.round(&sums, &mut sum);
        sum
    };
    let sum = add_up(&mut terms.iter());
    assert_eq!(sum, add_up(&mut terms.iter().rev()), "{operator:?}");
    let apart = distance(&sum, samples(&whole));
    assert!(apart <= 1e-6 * norm(samples(&whole)), "{operator:?}: {apart}");
}

#[test]
fn what_parts_give_adds_up() {
    let turn = std::f64::consts::TAU;
    let matrix = random(&[2 * 5 * 7], 3);
    let fan = FanBeam { offset: 1.5, ..FanBeam::new(evenly_spaced(9, turn), 40, 60.0, 25.0) };
    let flat = Tomography2d::with_pixels(&[2, 31, 22], [1.2, 0.8], fan).expect("a scan");
    let beam = ParallelBeam3d::new(evenly_spaced(5, turn), [14, 18]);
    let cone = ConeBeam::new(evenly_spaced(5, turn), [16, 20], 50.0, 20.0);
    // So near that rays are steeper than 45°, which takes the general projector.
    let steep = ConeBeam::new(evenly_spaced(4, turn), [30, 12], 9.0, 6.0);
    let operators: Vec<Arc<dyn Physics>> = vec![
        Arc::new(Matrix::new(&[2, 5, 7], &matrix).expect("a matrix")),
        Arc::new(flat.scaled(0.3).expect("a factor")),
        Arc::new(
            Tomography3d::with_voxels(&[1, 9, 12, 11], [1.0, 1.5, 0.7], beam).expect("a scan"),
        ),
        Arc::new(Tomography3d::new(&[1, 9, 12, 11], cone).expect("a scan")),
        Arc::new(Tomography3d::new(&[1, 12, 8, 8], steep).expect("a scan")),
        {
            let scan = ParallelBeam::new(evenly_spaced(12, turn / 2.0), 37);
            let flat = Arc::new(Tomography2d::new(&[1, 24, 29], scan).expect("a scan"));
            let kernel = kernels::uniform(&[1, 3]).expect("a kernel");
            let blur = Blur::new(&[1, 12, 37], &kernel, Padding::Reflect).expect("a blur");
            let blurred = Compose::new(Arc::new(blur), flat).expect("operators that meet");
            Arc::new(Scaled::new(-2.0, Arc::new(blurred)).expect("finite"))
        },
    ];
    for operator in operators {
        assert_adds_up(operator.as_linear().expect("linear"));
    }
}

#[test]
fn parts_that_are_not_there_or_empty_are_refused() {
    let matrix = Matrix::new(&[1, 4, 4], &ArrayD::ones(vec![2, 16])).expect("a matrix");
    let message = |part: &[Range<usize>]| {
        matrix.restricted(part).expect("parts exist").expect_err("refused").to_string()
    };
    assert!(message(&[0..4, 2..5]).contains("ranges within [4, 4]"));
    assert!(message(&[0..4, 2..2]).contains("no range may be empty"));
}
