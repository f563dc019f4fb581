//! A request to stop ends methods, sums over operators, tiles and projectors where they are, with an error that says so, and
//! what comes after is as if it had never been.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haloscope::denoise::{Denoiser, TotalVariation, denoiser_fn};
use haloscope::distribute::{distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::least_squares::{
    LeastSquaresOptions, LinearSolver, NormOptions, pseudo_inverse, squared_norm,
};
use haloscope::physics::tomography::{
    ConeBeam, ParallelBeam, Rays, Scan3d, Tomography2d, Tomography3d, View3d, Window, evenly_spaced,
};
use haloscope::physics::{Blur, Identity, LinearPhysics, Padding, Physics, Stack, kernels};
use haloscope::solve::{Landweber, Problem, Start, State, Stopping, solve};
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Context, Error, Result, View};
use haloscope_nn::Stop;

/// Something that somebody asks to stop at its second call.
#[derive(Debug)]
struct Second {
    stop: Stop,
    calls: AtomicUsize,
    shape: Vec<usize>,
}

impl Second {
    fn new(stop: &Stop, shape: &[usize]) -> Self {
        Self { stop: stop.clone(), calls: AtomicUsize::new(0), shape: shape.to_vec() }
    }

    fn call(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) == 1 {
            self.stop.request();
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }
}

impl Physics for Second {
    fn name(&self) -> &'static str {
        "second"
    }

    fn image_shape(&self) -> &[usize] {
        &self.shape
    }

    fn measurement_shape(&self) -> &[usize] {
        &self.shape
    }

    fn apply_forward(&self, _batch: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        self.call();
        for (index, (to, from)) in measurement.iter_mut().zip(image).enumerate() {
            *to = from * (1.0 + index as f32);
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Second {
    fn apply_adjoint(&self, _batch: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        for (index, (to, from)) in image.iter_mut().zip(measurement).enumerate() {
            *to = from * (1.0 + index as f32);
        }
        Ok(())
    }
}

fn ramp(shape: &[usize]) -> Array {
    let mut value = 0.0;
    Array::from_shape_simple_fn(shape, || {
        value += 0.37_f32;
        value.sin()
    })
}

#[test]
fn a_method_ends_before_the_iteration_that_comes() -> Result<()> {
    let frame: Arc<dyn Physics> = Arc::new(Identity::new(&[1, 8, 8]));
    let ctx = Context::solo();
    let physics = distribute(Stack::new(vec![frame])?, &ctx)?;
    let data = physics.forward(&ramp(&[1, 1, 8, 8]))?;
    let problem = Problem::new(physics, data, distribute(Fidelities::from(L2::default()), &ctx)?)?;
    let run = |stop: &Stop, at: usize| {
        let start = State::new(problem.start(&Start::Zeros)?);
        let stopping = Stopping { iterations: 5, ..Stopping::default() };
        let mut seen = 0;
        let outcome = stop.watch(|| {
            let mut watch = |record: &haloscope::solve::Record, _: &State| {
                seen = record.iteration;
                if seen == at {
                    stop.request();
                }
                Ok(ControlFlow::Continue(()))
            };
            let method = Landweber { step: 0.5, range: None };
            solve(&problem, &method, start, &stopping, Some(&mut watch))
        });
        Ok::<_, Error>((outcome.map(|outcome| outcome.state.image.into_local()), seen))
    };
    let (whole, iterations) = run(&Stop::default(), 9)?;
    assert_eq!(iterations, 5);
    let (outcome, iterations) = run(&Stop::default(), 2)?;
    assert_eq!((outcome, iterations), (Err(Error::Interrupted), 2));
    assert_eq!(run(&Stop::default(), 9)?.0, whole);
    Ok(())
}

#[test]
fn inner_iterations_end() {
    for method in [
        LinearSolver::ConjugateGradient,
        LinearSolver::Lsqr,
        LinearSolver::Minres,
        LinearSolver::Bicgstab,
    ] {
        let stop = Stop::default();
        let operator = Second::new(&Stop::default(), &[1, 40]);
        let steps = AtomicUsize::new(0);
        let watch = |_: &_| {
            if steps.fetch_add(1, Ordering::Relaxed) == 2 {
                stop.request();
            }
            ControlFlow::Continue(())
        };
        let options = LeastSquaresOptions {
            method,
            tolerance: 0.0,
            watch: Some(&watch),
            ..LeastSquaresOptions::default()
        };
        let result = stop.watch(|| pseudo_inverse(&operator, &ramp(&[1, 1, 40]), &options));
        assert_eq!(result, Err(Error::Interrupted), "{method}");
        assert_eq!(steps.into_inner(), 3, "{method}");
    }
}

#[test]
fn the_estimate_of_a_norm_ends() {
    let stop = Stop::default();
    let operator = Second::new(&stop, &[1, 40]);
    let options = NormOptions { tolerance: 0.0, ..NormOptions::default() };
    assert_eq!(stop.watch(|| squared_norm(&operator, &options)), Err(Error::Interrupted));
    assert_eq!(operator.calls(), 2);
}

#[test]
fn operators_and_tiles_that_are_left_are_left_out_on_all_ranks() -> Result<()> {
    for ranks in [1, 2, 3] {
        let outcomes = Context::threads(ranks, |ctx| {
            let stop = Stop::default();
            let operators: Vec<_> =
                (0..12).map(|_| Arc::new(Second::new(&stop, &[1, 8, 8]))).collect();
            let calls = || operators.iter().map(|operator| operator.calls()).sum::<usize>();
            let stack = operators.iter().map(|operator| operator.clone() as Arc<dyn Physics>);
            let stack = distribute(stack.collect::<Vec<_>>(), ctx)?;
            let image = ramp(&[1, 1, 8, 8]);
            // Each operator is asked once; the second call of one of them is the one that asks for the end.
            stop.watch(|| stack.forward(&image))?;
            let first = calls();
            let forward = stop.watch(|| stack.forward(&image));

            let counter = Arc::new(Second::new(&Stop::default(), &[1]));
            let tile_stop = counter.stop.clone();
            let counted = counter.clone();
            let tiles = denoiser_fn("tiles", move |image: &View, _: &_| {
                counted.call();
                Ok(image.to_owned())
            });
            let tiling =
                Tiling { patch: 8.into(), overlap: 0.into(), ..Tiling::new(Strategy::Overlap) };
            let tiles = distribute_with(tiles, ctx, tiling)?;
            let denoised = tile_stop.watch(|| tiles.denoise(&ramp(&[1, 1, 64, 64]), &0.1.into()));
            Ok::<_, Error>((first, calls() - first, forward, counter.calls(), denoised))
        })?;
        for (first, second, forward, tiles, denoised) in outcomes {
            assert_eq!((first, second), (12 / ranks, 1), "{ranks} ranks");
            assert_eq!(forward.map(|_| ()), Err(Error::Interrupted));
            assert_eq!(tiles, 2, "{ranks} ranks");
            assert_eq!(denoised.map(|_| ()), Err(Error::Interrupted));
        }
    }
    Ok(())
}

#[test]
fn total_variation_blurs_and_projectors_end() -> Result<()> {
    let angles = || evenly_spaced(9, std::f64::consts::PI);
    let flat = Tomography2d::new(&[1, 12, 12], ParallelBeam::new(angles(), 16))?;
    let cone = Tomography3d::new(&[1, 6, 8, 8], ConeBeam::new(angles(), [8, 10], 40.0, 20.0))?;
    let tilted = View3d {
        rays: Rays::Along([1.0, 0.3, 0.5]),
        centre: [0.0; 3],
        u: [0.0, 1.0, 0.2],
        v: [0.3, 0.0, 1.0],
    };
    let scan = Scan3d::Views { views: vec![tilted; 3], detector: [8, 8] };
    let oblique = Tomography3d::new(&[1, 6, 8, 8], scan)?;
    let blur = Blur::new(&[1, 300, 300], &kernels::uniform(&[5, 5])?, Padding::Circular)?;
    let operators: [&dyn LinearPhysics; 4] = [&flat, &cone, &oblique, &blur];
    for operator in operators {
        let image = ramp(&[&[1], operator.image_shape()].concat());
        let data = operator.forward(&image)?;
        let back = operator.adjoint(&data)?;
        let stop = Stop::default();
        stop.request();
        let name = operator.name();
        assert_eq!(stop.watch(|| operator.forward(&image)), Err(Error::Interrupted), "{name}");
        assert_eq!(stop.watch(|| operator.adjoint(&data)), Err(Error::Interrupted), "{name}");
        assert_eq!(operator.forward(&image)?, data);
        assert_eq!(operator.adjoint(&data)?, back);
    }
    let stop = Stop::default();
    stop.request();
    let image = ramp(&[1, 1, 12, 12]);
    let sinogram = flat.forward(&image)?;
    let back = || flat.filtered_back_projection(&sinogram, Window::Ramp);
    assert_eq!(stop.watch(back), Err(Error::Interrupted));
    assert!(back().is_ok());
    let variation = || TotalVariation::default().denoise(&image, &0.1.into());
    assert_eq!(stop.watch(variation), Err(Error::Interrupted));
    assert!(variation().is_ok());
    Ok(())
}
