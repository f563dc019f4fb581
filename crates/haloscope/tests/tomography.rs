//! Tomography against exact line integrals, against ASTRA and RTK, and against itself.
//!
//! The fixtures are made by `fixtures/make_tomography.py`, which has the same phantom.

mod ellipsoids;

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use ellipsoids::{Ray, head, integral, psnr};
use haloscope::array::{distance, norm};
use haloscope::distribute::distribute;
use haloscope::fidelity::{Fidelities, L2};
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, Grouping, ParallelBeam, ParallelBeam3d, Rays, Scan2d, Scan3d, Tomography2d,
    Tomography3d, View3d, Window, evenly_spaced,
};
use haloscope::physics::{LinearPhysics, Physics, Stack};
use haloscope::solve::{Problem, Sirt, Start, State, Stopping, solve};
use haloscope::{Array, Error, Measurements};
use haloscope_comm::Context;

/// An array of the script.
fn fixture(name: &str, shape: &[usize]) -> Array {
    let path = format!("{}/fixtures/tomography_{name}.npy", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(path).expect("a fixture");
    let header = usize::from(u16::from_le_bytes([bytes[8], bytes[9]]));
    let values = bytes[10 + header..].chunks_exact(4);
    let values = values.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    let shape = [&[1, 1], shape].concat();
    Array::from_shape_vec(shape, values).expect("the shape of the fixture")
}

/// A number that the script printed.
fn number(name: &str) -> f64 {
    let path = format!("{}/fixtures/tomography.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the numbers");
    let numbers: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    numbers[name].as_f64().expect("a number")
}

fn slice(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

/// ‖a − b‖ / ‖b‖.
fn error(a: &Array, b: &Array) -> f64 {
    assert_eq!(a.shape(), b.shape());
    distance(slice(a), slice(b)) / norm(slice(b))
}

fn turned(count: usize, arc: f64) -> Vec<f64> {
    evenly_spaced(count, arc).iter().map(|angle| angle + 0.01).collect()
}

/// Integrals through the phantom of a number of pixels along the rays of a scan.
fn integrals_2d(size: usize, scan: &Scan2d) -> Array {
    let (views, bins) = (scan.views(), scan.bins());
    Array::from_shape_fn(vec![1, 1, views.len(), bins], |i| {
        let view = views[i[2]];
        let k = i[3] as f64 - (bins as f64 - 1.0) / 2.0;
        let bin = [view.centre[0] + k * view.u[0], view.centre[1] + k * view.u[1], 0.0];
        let ray = match view.rays {
            Rays::Along([x, y]) => Ray { origin: bin, direction: [x, y, 0.0] },
            Rays::From([x, y]) => {
                Ray { origin: [x, y, 0.0], direction: [bin[0] - x, bin[1] - y, 0.0] }
            }
        };
        integral(size, &ray) as f32
    })
}

/// A value for each ray of a scan.
fn along_rays(scan: &Scan3d, value: impl Fn(&Ray) -> f64) -> Array {
    let (views, [rows, columns]) = (scan.views(), scan.detector());
    Array::from_shape_fn(vec![1, 1, views.len(), rows, columns], |i| {
        let view = views[i[2]];
        let r = i[3] as f64 - (rows as f64 - 1.0) / 2.0;
        let c = i[4] as f64 - (columns as f64 - 1.0) / 2.0;
        let bin: [f64; 3] = std::array::from_fn(|j| view.centre[j] + c * view.u[j] + r * view.v[j]);
        let ray = match view.rays {
            Rays::Along(direction) => Ray { origin: bin, direction },
            Rays::From(origin) => {
                Ray { origin, direction: std::array::from_fn(|j| bin[j] - origin[j]) }
            }
        };
        value(&ray) as f32
    })
}

#[test]
fn parallel_sinograms_are_those_of_astra() {
    let head = fixture("head", &[64, 64]);
    let operator = Tomography2d::new(&[1, 64, 64], ParallelBeam::new(turned(40, PI), 95));
    let sinogram = operator.expect("a scan").forward(&head).expect("a sinogram");
    let difference = error(&sinogram, &fixture("head_parallel", &[40, 95]));
    assert!(difference < 1e-3, "{difference}");

    let smooth = fixture("smooth", &[48, 60]);
    let scan = ParallelBeam { spacing: 1.3, offset: 3.25, ..ParallelBeam::new(turned(40, PI), 61) };
    let operator = Tomography2d::new(&[1, 48, 60], scan).expect("a scan");
    let sinogram = operator.forward(&smooth).expect("a sinogram");
    let difference = error(&sinogram, &fixture("smooth_parallel", &[40, 61]));
    assert!(difference < 1e-3, "{difference}");
}

#[test]
fn sirt_is_that_of_astra() {
    let views = fixture("head_parallel", &[40, 95]);
    let operator = Tomography2d::new(&[1, 64, 64], ParallelBeam::new(turned(40, PI), 95));
    let operators: Vec<Arc<dyn Physics>> = vec![Arc::new(operator.expect("a scan"))];
    let context = Context::solo();
    let physics = distribute(Stack::new(operators).expect("a stack"), &context).expect("ranks");
    let fidelity = distribute(Fidelities::from(L2::default()), &context).expect("ranks");
    let problem = Problem::new(physics, Measurements::new(vec![views]), fidelity).expect("one");
    let method = Sirt::new(&problem, 1.0, 1, None).expect("a method");
    let start = State::new(problem.start(&Start::Zeros).expect("zeros"));
    let stopping = Stopping { iterations: 25, ..Stopping::default() };
    let found = solve(&problem, &method, start, &stopping, None).expect("it runs");
    let image = found.state.image.into_whole().expect("an image");
    let difference = error(&image, &fixture("head_sirt", &[64, 64]));
    assert!(difference < 1e-3, "{difference}");
}

#[test]
fn fan_sinograms_are_those_of_astra_within_one_percent() {
    let scan = FanBeam { spacing: 1.5, ..FanBeam::new(turned(20, TAU), 256, 600.0, 300.0) };
    let operator = Tomography2d::new(&[1, 256, 256], scan).expect("a scan");
    let sinogram = operator.forward(&head(&[256, 256])).expect("a sinogram");
    let difference = error(&sinogram, &fixture("head_fan", &[20, 256]));
    assert!(difference < 1e-2, "{difference}");

    let scan = FanBeam::new(turned(40, TAU), 90, 150.0, 60.0);
    let scan = FanBeam { spacing: 1.5, offset: -2.5, ..scan };
    let operator = Tomography2d::new(&[1, 48, 60], scan).expect("a scan");
    let sinogram = operator.forward(&fixture("smooth", &[48, 60])).expect("a sinogram");
    let difference = error(&sinogram, &fixture("smooth_fan", &[40, 90]));
    assert!(difference < 1e-2, "{difference}");
}

#[test]
fn sinograms_of_a_phantom_approach_its_line_integrals() {
    for (size, accepted) in [(64, 0.06), (256, 0.015)] {
        let image = head(&[size, size]);
        let (far, bins) = (2.0 * size as f64, size * 3 / 2);
        let fan = FanBeam { spacing: 1.5, ..FanBeam::new(turned(20, TAU), bins, far, far / 2.0) };
        let scans: [Scan2d; 2] = [ParallelBeam::new(turned(20, PI), bins).into(), fan.into()];
        for scan in scans {
            let exact = integrals_2d(size, &scan);
            let operator = Tomography2d::new(&[1, size, size], scan).expect("a scan");
            let difference = error(&operator.forward(&image).expect("a sinogram"), &exact);
            assert!(difference < accepted, "{size}: {difference}");
        }
    }
}

#[test]
fn projections_of_a_smooth_ball_are_its_line_integrals() {
    // exp(−r²/2w²) around a point (x, y, z) integrates to w √(2π) exp(−d²/2w²) along a line at
    // distance d.
    let (width, ball) = (4.0_f64, [3.0, -2.5, 4.0]);
    let voxel = [1.2, 1.0, 0.8];
    let volume = Array::from_shape_fn(vec![1, 1, 36, 44, 52], |i| {
        let at = |axis: usize, n: f64, size: f64| (i[axis] as f64 - (n - 1.0) / 2.0) * size;
        let p = [at(4, 52.0, voxel[2]), at(3, 44.0, voxel[1]), at(2, 36.0, voxel[0])];
        let squared: f64 = (0..3).map(|j| (p[j] - ball[j]).powi(2)).sum();
        (-squared / (2.0 * width * width)).exp() as f32
    });
    let cone =
        ConeBeam { offset: [1.5, -2.0], ..ConeBeam::new(turned(8, TAU), [56, 64], 90.0, 30.0) };
    let parallel =
        ParallelBeam3d { spacing: [0.9, 1.1], ..ParallelBeam3d::new(turned(8, PI), [48, 50]) };
    // Around twice while the volume goes by, on a detector that is turned by five degrees.
    let helix = Scan3d::from(ConeBeam::new(turned(16, 2.0 * TAU), [56, 64], 90.0, 30.0));
    let views = helix.views().into_iter().enumerate();
    let views = views.map(|(i, view)| view.tilted(5.0_f64.to_radians()).raised(i as f64 - 8.0));
    let helix = Scan3d::Views { views: views.collect(), detector: [56, 64] };
    for scan in [Scan3d::from(cone), parallel.into(), helix] {
        let exact = along_rays(&scan, |ray| {
            let o: [f64; 3] = std::array::from_fn(|j| ray.origin[j] - ball[j]);
            let dot = |a: [f64; 3], b: [f64; 3]| a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
            let squared =
                dot(o, o) - dot(o, ray.direction).powi(2) / dot(ray.direction, ray.direction);
            width * TAU.sqrt() * (-squared / (2.0 * width * width)).exp()
        });
        let operator = Tomography3d::with_voxels(&[1, 36, 44, 52], voxel, scan).expect("a scan");
        let difference = error(&operator.forward(&volume).expect("projections"), &exact);
        assert!(difference < 1e-2, "{difference}");
    }
}

/// The same scan as vectors, tilted so little that only the choice of projector changes.
fn as_vectors(scan: &Scan3d) -> Scan3d {
    let views = scan.views().into_iter().map(|view| View3d { v: [1e-13, 0.0, view.v[2]], ..view });
    Scan3d::Views { views: views.collect(), detector: scan.detector() }
}

#[test]
fn projectors_of_upright_and_of_any_detectors_agree() {
    let mut random = fastrand::Rng::with_seed(5);
    let cone =
        ConeBeam { offset: [0.7, -1.3], ..ConeBeam::new(turned(9, TAU), [21, 17], 50.0, 9.0) };
    let parallel =
        ParallelBeam3d { spacing: [0.8, 1.2], ..ParallelBeam3d::new(turned(9, PI), [21, 17]) };
    let down = View3d { v: [0.0, 0.0, -1.1], ..Scan3d::from(cone.clone()).views()[1] };
    let down = Scan3d::Views { views: vec![down], detector: [21, 17] };
    for scan in [cone.into(), parallel.into(), down] {
        let shape = [1, 13, 15, 18];
        let upright = Tomography3d::with_voxels(&shape, [1.1, 0.9, 1.0], scan).expect("a scan");
        let oblique = as_vectors(upright.scan());
        let oblique = Tomography3d::with_voxels(&shape, [1.1, 0.9, 1.0], oblique).expect("a scan");
        let volume = Array::from_shape_fn(vec![1, 1, 13, 15, 18], |_| random.f32());
        let a = upright.forward(&volume).expect("projections");
        let b = oblique.forward(&volume).expect("projections");
        assert!(error(&a, &b) < 1e-6, "{}", error(&a, &b));
        let (a, b) = (upright.adjoint(&a).expect("volume"), oblique.adjoint(&a).expect("volume"));
        assert!(error(&a, &b) < 1e-6, "{}", error(&a, &b));
    }
}

#[test]
fn parallel_beams_in_space_are_those_of_the_slices() {
    let mut random = fastrand::Rng::with_seed(6);
    let angles = turned(7, PI);
    let volume = Array::from_shape_fn(vec![1, 1, 5, 11, 9], |_| random.f32());
    let scan = ParallelBeam3d::new(angles.clone(), [5, 15]);
    let operator = Tomography3d::new(&[1, 5, 11, 9], scan).expect("a scan");
    let stack = operator.forward(&volume).expect("projections");
    let planar = Tomography2d::new(&[1, 11, 9], ParallelBeam::new(angles, 15)).expect("a scan");
    for z in 0..5 {
        // In the plane y grows against rows, in space along them.
        let slice = Array::from_shape_fn(vec![1, 1, 11, 9], |i| volume[[0, 0, z, 10 - i[2], i[3]]]);
        let sinogram = planar.forward(&slice).expect("a sinogram");
        let part = Array::from_shape_fn(vec![1, 1, 7, 15], |i| stack[[0, 0, i[2], z, i[3]]]);
        assert!(error(&part, &sinogram) < 1e-6, "{}", error(&part, &sinogram));
    }
}

#[test]
fn filtered_back_projection_is_at_least_as_good_as_that_of_astra() {
    let truth = head(&[128, 128]);
    let best = ["psnr_fbp_linear", "psnr_fbp_line", "psnr_fbp_strip"].map(number);
    let scan = Scan2d::from(ParallelBeam::new(evenly_spaced(180, PI), 185));
    let sinogram = integrals_2d(128, &scan);
    let operator = Tomography2d::new(&[1, 128, 128], scan).expect("a scan");
    let image = operator.filtered_back_projection(&sinogram, Window::Ramp).expect("an image");
    let ours = psnr(&image, &truth);
    println!("{ours:.2} dB, ASTRA {best:.2?} dB");
    assert!(best.iter().all(|&theirs| ours >= theirs), "{ours} dB, {best:?} dB");
}

#[test]
fn fans_are_reconstructed_from_full_and_short_scans() {
    let truth = head(&[128, 128]);
    // The fan is ±19.9°.
    for arc in [TAU, 225.0_f64.to_radians()] {
        let count = (arc / PI * 180.0) as usize;
        let angles = evenly_spaced(count, arc).iter().map(|angle| angle + 0.3).collect();
        let scan = FanBeam { spacing: 1.5, ..FanBeam::new(angles, 185, 256.0, 128.0) };
        let scan = Scan2d::from(scan);
        let sinogram = integrals_2d(128, &scan);
        let operator = Tomography2d::new(&[1, 128, 128], scan).expect("a scan");
        let operator = operator.scaled(0.01).expect("a factor");
        let sinogram = sinogram.mapv(|value| value * 0.01);
        let image = operator.filtered_back_projection(&sinogram, Window::Ramp).expect("an image");
        let ours = psnr(&image, &truth);
        println!("over {arc:.2}: {ours:.2} dB");
        assert!(ours > 29.0, "{arc}: {ours} dB");
    }
}

#[test]
fn unevenly_spaced_views_give_a_disc_its_value() {
    const VALUE: f64 = 0.02;
    let radians = |degree: u32| f64::from(degree).to_radians();
    let centre = |scan: Scan2d, distance: fn(f64) -> f64| {
        let (views, bins) = (scan.views().len(), scan.bins());
        let sinogram = Array::from_shape_fn(vec![1, 1, views, bins], |i| {
            let across = distance(i[3] as f64 - (bins as f64 - 1.0) / 2.0);
            (2.0 * VALUE * (400.0 - across * across).max(0.0).sqrt()) as f32
        });
        let operator = Tomography2d::new(&[1, 64, 64], scan).expect("a scan");
        let image = operator.filtered_back_projection(&sinogram, Window::Hann).expect("an image");
        f64::from(image[[0, 0, 32, 32]])
    };
    let half = (0..90).chain((90..180).step_by(5)).map(radians).collect();
    let parallel = centre(ParallelBeam::new(half, 93).into(), |bin| bin);
    assert!((parallel - VALUE).abs() < 0.02 * VALUE, "{parallel}");
    let whole = (0..180).chain((180..360).step_by(10)).map(radians).collect();
    let fan =
        centre(FanBeam::new(whole, 129, 150.0, 50.0).into(), |bin| 150.0 * bin / bin.hypot(200.0));
    assert!((fan - VALUE).abs() < 0.02 * VALUE, "{fan}");
}

#[test]
fn a_scan_that_is_too_short_says_what_is_missing_and_shows_what_it_saw() {
    let disc = Array::from_shape_fn(vec![1, 1, 32, 32], |at| {
        f32::from((at[2] as f32 - 15.5).hypot(at[3] as f32 - 15.5) < 10.0)
    });
    let middle = |operator: &Tomography2d| {
        let measured = operator.forward(&disc).expect("a sinogram");
        let image = operator.filtered_back_projection(&measured, Window::Hann).expect("an image");
        image[[0, 0, 16, 16]]
    };
    let fan = |arc: f64| {
        let scan = FanBeam::new(evenly_spaced(90, arc), 64, 100.0, 50.0);
        Tomography2d::new(&[1, 32, 32], scan).expect("a scan")
    };
    assert_eq!(fan(TAU).missing_arc(), None);
    let short = fan(PI);
    let missing = short.missing_arc().expect("too short");
    // The fan is 31.5 bins to either side at a distance of 150.
    assert!((missing.needed - PI - 2.0 * (31.5_f64 / 150.0).atan()).abs() < 1e-9, "{missing:?}");
    assert!((missing.covered - PI * 89.0 / 90.0).abs() < 1e-9, "{missing:?}");
    // Half a turn sees all lines through the middle once, and lacks some beside it, whose share in the middle is negative.
    let (half, enough) = (middle(&short), middle(&fan(missing.needed + 0.1)));
    assert!((1.0..1.1).contains(&half), "{half}");
    assert!((enough - 1.0).abs() < 0.03, "{enough}");
    assert!((middle(&fan(TAU)) - 1.0).abs() < 0.03, "{}", middle(&fan(TAU)));
    let parallel = |arc: f64| {
        let scan = ParallelBeam::new(evenly_spaced(90, arc), 64);
        Tomography2d::new(&[1, 32, 32], scan).expect("a scan").missing_arc()
    };
    assert_eq!(parallel(PI), None);
    assert_eq!(parallel(PI / 2.0).map(|missing| missing.needed), Some(PI));
}

#[test]
fn the_method_of_feldkamp_is_at_least_as_good_as_that_of_rtk() {
    let truth = head(&[48, 48, 48]);
    let angles = evenly_spaced(120, TAU);
    let scan = ConeBeam { spacing: [1.5; 2], ..ConeBeam::new(angles, [56, 64], 120.0, 60.0) };
    let scan = Scan3d::from(scan);
    let projections = along_rays(&scan, |ray| integral(48, ray));
    let operator = Tomography3d::new(&[1, 48, 48, 48], scan).expect("a scan");
    let volume = operator.filtered_back_projection(&projections, Window::Ramp).expect("a volume");
    let (ours, theirs) = (psnr(&volume, &truth), number("psnr_fdk_rtk"));
    println!("{ours:.2} dB, RTK {theirs:.2} dB");
    // Both are the same method to the last digits, which rounding decides.
    assert!(ours >= theirs - 1e-3, "{ours} dB, {theirs} dB");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let mut random = fastrand::Rng::with_seed(7);
    let fan = FanBeam::new(turned(23, TAU), 50, 60.0, 30.0);
    let cone = Scan3d::from(ConeBeam::new(turned(23, TAU), [10, 12], 40.0, 20.0));
    let operators: [Box<dyn LinearPhysics>; 4] = [
        Box::new(Tomography2d::new(&[2, 40, 37], fan).expect("a scan")),
        Box::new(
            Tomography2d::new(&[2, 40, 37], ParallelBeam::new(turned(23, PI), 50)).expect("a scan"),
        ),
        Box::new(Tomography3d::new(&[1, 9, 10, 11], as_vectors(&cone)).expect("a scan")),
        Box::new(Tomography3d::new(&[1, 9, 10, 11], cone).expect("a scan")),
    ];
    for operator in &operators {
        let shape = [&[1], operator.image_shape()].concat();
        let image = Array::from_shape_fn(shape, |_| random.f32());
        let on = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
            pool.expect("a pool").install(|| {
                let measurement = operator.forward(&image).expect("a measurement");
                (operator.adjoint(&measurement).expect("an image"), measurement)
            })
        };
        assert_eq!(on(1), on(3));
    }
}

#[test]
fn a_normalised_operator_has_norm_one() {
    let scan = ParallelBeam::new(turned(30, PI), 48);
    let operator = Tomography2d::new(&[1, 32, 32], scan).expect("a scan");
    let operator = operator.normalised().expect("a norm");
    let mut random = fastrand::Rng::with_seed(8);
    let mut image = Array::from_shape_fn(vec![1, 1, 32, 32], |_| random.f32() - 0.5);
    let mut squared = 0.0_f64;
    for _ in 0..60 {
        image.mapv_inplace(|value| value / squared.max(1e-3) as f32);
        let before = norm(slice(&image));
        image = operator.normal(&image).expect("an image");
        squared = norm(slice(&image)) / before;
    }
    assert!((squared - 1.0).abs() < 1e-3, "{squared}");
}

#[test]
fn groups_of_views_measure_what_the_whole_scan_does() {
    let scan = FanBeam::new(turned(11, TAU), 30, 60.0, 30.0);
    let operator = Tomography2d::new(&[1, 16, 16], scan).expect("a scan").scaled(0.5).expect("1/2");
    let image = head(&[16, 16]);
    let whole = operator.forward(&image).expect("a sinogram");
    let parts = operator.split(3, Grouping::Interleaved).expect("groups");
    for (group, part) in parts.iter().enumerate() {
        let sinogram = part.forward(&image).expect("a sinogram");
        for (i, row) in (group..11).step_by(3).enumerate() {
            for bin in 0..30 {
                assert_eq!(sinogram[[0, 0, i, bin]], whole[[0, 0, row, bin]]);
            }
        }
    }
    assert!(operator.split(12, Grouping::Contiguous).is_err());
}

#[test]
fn scans_that_cannot_be_are_refused_with_what_was_given() {
    let refused = |result: Result<Tomography2d, Error>| result.expect_err("refused").to_string();
    let scan = ParallelBeam::new(vec![0.0], 8);
    let message = refused(Tomography2d::new(&[8, 8], scan.clone()));
    assert!(message.contains("[8, 8]"), "{message}");
    let message =
        refused(Tomography2d::new(&[1, 8, 8], ParallelBeam { spacing: -1.5, ..scan.clone() }));
    assert!(message.contains("-1.5"), "{message}");
    let message = refused(Tomography2d::new(&[1, 8, 8], ParallelBeam::new(vec![f64::NAN], 8)));
    assert!(message.contains("NaN"), "{message}");
    let message = refused(Tomography2d::new(&[1, 8, 8], ParallelBeam::new(Vec::new(), 8)));
    assert!(message.contains("0 views"), "{message}");
    let flat = View3d {
        rays: Rays::Along([1.0, 0.0, 0.0]),
        centre: [0.0; 3],
        u: [1.0, 0.0, 0.0],
        v: [0.0, 0.0, 1.0],
    };
    let flat = Scan3d::Views { views: vec![flat], detector: [4, 4] };
    let message = Tomography3d::new(&[1, 4, 4, 4], flat).expect_err("refused").to_string();
    assert!(message.contains("lie in its detector"), "{message}");
}
