//! What lies in a scratch folder and is visited in pieces has the bits of what is in memory.
#![cfg(target_os = "linux")]

use std::f64::consts::TAU;
use std::sync::{Arc, Mutex, PoisonError};

use haloscope::denoise::{Denoiser, TotalVariation};
use haloscope::distribute::{back_project, distribute};
use haloscope::physics::tomography::{
    ConeBeam, Grouping, ParallelBeam3d, Scan3d, Tomography3d, Window, evenly_spaced,
};
use haloscope::physics::{LinearPhysics, Physics, Stack};
use haloscope::{Array, Digest, Image, Measurements};
use haloscope_comm::Context;
use haloscope_scratch::{Allocator, Options, Scratch};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Pieces of some planes of the volumes here, which have 33 × 26 × 41 voxels.
fn open(folder: &tempfile::TempDir) -> Scratch {
    let limits =
        Options { threshold: 1 << 15, piece: 1 << 15, ..Options::new(folder.path(), 1 << 34) };
    Scratch::open(&limits).expect("a scratch")
}

fn noise(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32() - 0.3)
}

/// The digest of what `make` makes, in memory and in files; some of it was in files.
fn check(what: &str, make: impl Fn() -> Array) {
    // What is open is of the whole process.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let expected = Digest::of(&make()).value();
    let folder = tempfile::tempdir().expect("a folder");
    let scratch = open(&folder);
    let found = make();
    assert_eq!(Digest::of(&found).value(), expected, "{what}");
    assert!(scratch.usage().peak > found.len() as u64 * 4, "{what}: {:?}", scratch.usage());
    drop((found, scratch));
}

const VOLUME: [usize; 4] = [1, 33, 26, 41];

fn scans() -> Vec<(&'static str, Scan3d)> {
    let cone = ConeBeam::new(evenly_spaced(21, TAU), [28, 37], 120.0, 40.0);
    // So near that some rays are steeper than 45°, which the general projector measures.
    let steep = ConeBeam::new(evenly_spaced(5, TAU), [90, 37], 25.0, 5.0);
    let parallel = ParallelBeam3d::new(evenly_spaced(9, TAU / 2.0), [33, 45]);
    vec![("cone", cone.into()), ("steep", steep.into()), ("parallel", parallel.into())]
}

#[test]
fn projectors_and_their_adjoints() {
    for (name, scan) in scans() {
        let operator = Tomography3d::new(&VOLUME, scan).expect("an operator");
        assert_eq!(operator.is_upright(), name != "steep");
        check(name, || {
            let volume = noise(&[&[2], &VOLUME[..]].concat(), 1);
            operator.forward(&volume).expect("measured")
        });
        let measured = [&[2], operator.measurement_shape()].concat();
        check(name, || operator.adjoint(&noise(&measured, 2)).expect("an image"));
        check(name, || operator.normal(&noise(&[&[1], &VOLUME[..]].concat(), 3)).expect("both"));
    }
}

#[test]
fn filtered_back_projection_of_groups() {
    let (_, scan) = scans().remove(0);
    let whole = Tomography3d::new(&VOLUME, scan).expect("an operator");
    for groups in [1, 4] {
        let parts = whole.split(groups, Grouping::Interleaved).expect("groups");
        let parts: Vec<Arc<dyn Physics>> =
            parts.into_iter().map(|part| Arc::new(part) as _).collect();
        check("fdk", || {
            let stack = distribute(Stack::new(parts.clone()).expect("a stack"), &Context::solo());
            let stack = stack.expect("on one rank");
            let data: Vec<Array> = (0..groups)
                .map(|group| {
                    let shape = [&[1], parts[group].measurement_shape()].concat();
                    noise(&shape, group as u64)
                })
                .collect();
            let data = Measurements::new(data);
            let plan = whole.back_projection(Window::Hann).expect("a plan");
            back_project(&stack, &plan, &data).expect("an image")
        });
    }
}

#[test]
fn total_variation_of_volumes_and_batches() {
    let denoiser = TotalVariation { iterations: 12, tolerance: 1e-9 };
    for shape in
        [&[1, 1, 33, 26, 41][..], &[2, 1, 20, 30, 22], &[1, 3, 17, 20, 33], &[1, 1, 200, 130]]
    {
        check("tv", || denoiser.denoise(&noise(shape, 4), &0.2.into()).expect("denoised"));
    }
}

#[test]
fn arithmetic_and_sums_of_images() {
    check("arithmetic", || {
        let mut image = Image::from(noise(&[1, 1, 29, 31, 37], 5));
        let other = Image::from(noise(&[1, 1, 29, 31, 37], 6));
        let copy = image.clone();
        assert_eq!(copy, image);
        image.add_scaled(0.3, &other).expect("one layout");
        image.scale_and_add(-0.7, &copy).expect("one layout");
        image.clamp(Some((-0.4, 0.5)));
        image.scale(1.7);
        image.update_from_two((&copy, &other), |to, a, b| *to += a * b).expect("one layout");
        let numbers = [
            image.dot(&other).expect("a sum"),
            image.norm().expect("a sum"),
            image.distance(&copy).expect("a sum"),
            f64::from(image.extremes().expect("some").1),
        ];
        let mut all = image.into_local();
        for (to, number) in all.iter_mut().zip(numbers) {
            *to = number as f32;
        }
        all
    });
}
