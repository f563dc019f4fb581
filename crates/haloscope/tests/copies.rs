//! How many arrays of the image's size an iteration holds at once, of every method: an allocator counts the bytes. A test
//! that fails here has probably found a clone.

mod allocated;

use std::sync::Arc;

use haloscope::denoise::{TotalVariation, denoiser_fn};
use haloscope::distribute::{distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L1, L2, Poisson};
use haloscope::physics::{LinearPhysics, Physics};
use haloscope::solve::{
    Admm, Algorithm, Backtracking, ConjugateGradient, DouglasRachford, Fista, HalfQuadratic,
    Landweber, Plug, PrimalDual, Prior, Problem, ProxPrimalDual, ProximalGradient, Range,
    RedFixedPoint, RedGradient, Schedule, Start, State, Stopping, TotalVariationPrior, solve,
};
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Error, Result, View};
use haloscope_comm::Context;

const SHAPE: [usize; 3] = [2, 256, 256];
const IMAGE: usize = 4 * 2 * 256 * 256;

/// Weighted means of 16 × 16 pixels of both channels; without arrays of its own, so that what is counted is the method's. The
/// weights differ so much that conjugate gradients need all the iterations that they are given.
#[derive(Debug)]
struct Means(f32);

const BLOCK: usize = 16;

impl Means {
    fn weight(&self, index: usize) -> f32 {
        self.0 * (1 + place(index) * 7919 % 97) as f32 / 97.0
    }
}

impl Physics for Means {
    fn name(&self) -> &'static str {
        "means"
    }

    fn image_shape(&self) -> &[usize] {
        &SHAPE
    }

    fn measurement_shape(&self) -> &[usize] {
        &[1, 256 / BLOCK, 256 / BLOCK]
    }

    fn apply_forward(&self, _: usize, image: &[f32], measurement: &mut [f32]) -> Result<()> {
        measurement.fill(0.0);
        for (index, value) in image.iter().enumerate() {
            measurement[place(index)] += self.weight(index) * value;
        }
        Ok(())
    }

    fn as_linear(&self) -> Option<&dyn LinearPhysics> {
        Some(self)
    }
}

impl LinearPhysics for Means {
    fn apply_adjoint(&self, _: usize, measurement: &[f32], image: &mut [f32]) -> Result<()> {
        for (index, value) in image.iter_mut().enumerate() {
            *value = self.weight(index) * measurement[place(index)];
        }
        Ok(())
    }
}

/// The measured value that a pixel belongs to.
fn place(index: usize) -> usize {
    let (row, column) = (index / 256 % 256, index % 256);
    row / BLOCK * (256 / BLOCK) + column / BLOCK
}

fn problem(ctx: &Context, operators: usize, fidelity: Fidelities) -> Result<Problem> {
    let operator = |index: usize| Arc::new(Means(0.1 + 0.01 * index as f32)) as Arc<dyn Physics>;
    let physics = distribute((0..operators).map(operator).collect::<Vec<_>>(), ctx)?;
    let truth = Array::from_shape_fn(vec![1, 2, 256, 256], |at| (at[2] + at[3]) as f32 / 512.0);
    let data = physics.forward_terms(&truth)?.into_local()?;
    drop(truth);
    // All 33 inner iterations are taken, so that the residual is computed anew in the midst of them.
    Ok(Problem::new(physics, data, distribute(fidelity, ctx)?)?.with_inner(0.0, 33))
}

/// The images that two iterations take at most, with all that lasts between them.
fn images(
    ctx: &Context,
    operators: usize,
    fidelity: Fidelities,
    method: &dyn Algorithm,
    iterations: usize,
) -> Result<f64> {
    let before = allocated::live();
    let problem = problem(ctx, operators, fidelity)?;
    let start = State::new(problem.start(&Start::Zeros)?);
    // All ranks begin before one of them counts.
    haloscope_comm::Collectives::barrier(ctx.comm())?;
    allocated::forget();
    let stopping = Stopping { iterations, ..Stopping::default() };
    solve(&problem, method, start, &stopping, None)?;
    Ok((allocated::peak() - before) as f64 / IMAGE as f64)
}

/// A denoiser of the whole image, with a clamp if it is asked for: it takes its result and no more.
fn plug(clamp: bool) -> Plug {
    let range = if clamp { Range::Clamp(0.0, 1.0) } else { Range::AsIs };
    Plug::new(Arc::new(denoiser_fn("shrink", |image: &View, _| Ok(image * 0.9))), 0.1).range(range)
}

fn prior(clamp: bool) -> Arc<dyn Prior> {
    Arc::new(plug(clamp))
}

fn falling() -> Schedule {
    Schedule::falling(0.2, 0.05, 4, 0.03, 0.23).expect("a schedule")
}

/// What it is called, the method, its fidelity, and the images that it holds with one operator and with several.
type Case = (&'static str, Box<dyn Algorithm>, Fidelities, [f64; 2]);

/// What each method holds at most. `f` is the image with its gradient: one array, and another if there are several operators.
#[test]
fn an_iteration_holds_as_few_images_as_its_mathematics_needs() {
    let squares = || Fidelities::from(L2::default());
    let variation = || -> Arc<dyn Prior> {
        let denoiser = TotalVariation { iterations: 3, tolerance: 0.0 };
        Arc::new(TotalVariationPrior { weight: 0.05, denoiser })
    };
    let mut cases: Vec<Case> = Vec::new();
    for clamp in [false, true] {
        let (step, prior, plug) = (0.01, || prior(clamp), || plug(clamp));
        let range = clamp.then_some((0.0, 1.0));
        let mut add = |what, method: Box<dyn Algorithm>, counts| {
            cases.push((what, method, squares(), counts));
        };
        // The image; the point where the prior is taken, which was the gradient; what the prior makes of it.
        let pgd = ProximalGradient { step, prior: prior(), relaxation: None };
        add("pgd", Box::new(pgd.clone()), [3.0, 3.0]);
        add("relaxed pgd", Box::new(ProximalGradient { relaxation: Some(1.0), ..pgd }), [4.0, 4.0]);
        // The point ahead is there while the gradient is computed, and not while the prior is.
        add("fista", Box::new(Fista { step, prior: prior() }), [3.0, 4.0]);
        // The image, which is where the prox is taken; Aᵀy; and of conjugate gradients the image, the best one, the residual, the
        // direction, and what it is mapped to.
        let hqs = HalfQuadratic { prior: plug(), schedule: falling() };
        add("hqs", Box::new(hqs), [7.0, 8.0]);
        // With another place where the prox is taken, and the dual.
        add("admm", Box::new(Admm { step: 100.0, prior: prior() }), [9.0, 10.0]);
        let drs = DouglasRachford { step: 100.0, prior: prior(), relaxation: 1.0 };
        add("drs", Box::new(drs), [8.0, 9.0]);
        let red = RedGradient { step, weight: 0.1, prior: prior() };
        add("red", Box::new(red), [3.0, 4.0]);
        let red = RedFixedPoint { weight: 0.01, prior: plug() };
        add("red-fixed-point", Box::new(red), [8.0, 9.0]);
        // The image, the next, the dual of two axes, where the dual goes, and its lengths, which channels share.
        let primal_dual = PrimalDual { lipschitz: 3.0, weight: 0.05, range };
        add("primal-dual", Box::new(primal_dual), [5.5, 5.5]);
        add("landweber", Box::new(Landweber { step, range }), [2.0, 3.0]);
        add("cg", Box::new(ConjugateGradient), [4.0, 5.0]);
        // Two duals and their lengths, the point, two estimates; and the image.
        let tv = ProximalGradient { step, prior: variation(), relaxation: None };
        add("pgd with total variation", Box::new(tv), [8.5, 8.5]);
        let counts = Fidelities::from(Poisson::new(0.1, 1.0).expect("a fidelity"));
        for (accelerated, expected) in [(false, [4.0, 4.0]), (true, [5.0, 5.0])] {
            let steps = Backtracking {
                first_step: 0.1,
                prior: prior(),
                relaxation: None,
                accelerated,
                range,
                name: "test",
            };
            cases.push(("backtracking", Box::new(steps), counts.clone(), expected));
        }
        let duals = ProxPrimalDual { squared_norm: 1.0, weight: 0.1, step, range };
        cases.push(("prox-primal-dual", Box::new(duals), Fidelities::from(L1), [5.0, 5.0]));
    }
    let mut wrong = Vec::new();
    for (what, method, fidelity, expected) in &cases {
        for (operators, expected) in [1, 3].into_iter().zip(expected) {
            // Momentum begins after a few iterations of backtracking.
            let iterations = if *what == "backtracking" { 12 } else { 2 };
            let ctx = Context::solo();
            let found = images(&ctx, operators, fidelity.clone(), &**method, iterations);
            let found = found.expect("it runs");
            println!("{what}, {operators} operators: {found:.2} images");
            // Measurements, kernels of closures and lists of pieces are small.
            if !(expected - 0.1..=expected + 0.2).contains(&found) {
                wrong
                    .push(format!("{what} with {operators} operators: {found:.2}, not {expected}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");

    // However many operators a rank has, two of their terms at most are there at once. Ranks are threads here, so it is the sum of
    // theirs, with an image on its way where one is ahead of another.
    for ranks in [2, 3] {
        let sums = Context::threads(ranks, |ctx| {
            let pgd = ProximalGradient { step: 0.1, prior: prior(false), relaxation: None };
            let pgd = images(ctx, 8, Fidelities::from(L2::default()), &pgd, 2)?;
            haloscope_comm::Collectives::barrier(ctx.comm())?;
            let hqs = HalfQuadratic { prior: plug(false), schedule: falling() };
            Ok::<_, Error>((pgd, images(ctx, 8, Fidelities::from(L2::default()), &hqs, 2)?))
        });
        let (pgd, hqs) = sums.expect("no rank fails").remove(0);
        println!("{ranks} ranks: {pgd:.2} images for pgd, {hqs:.2} for hqs");
        assert!(pgd <= ranks as f64 * 6.0, "{ranks} ranks: {pgd}");
        assert!(hqs <= ranks as f64 * 10.0, "{ranks} ranks: {hqs}");
    }

    // A denoiser in tiles: where ranks send them to each other, they are there beside the image that they become.
    let tiling = Tiling { patch: 64.into(), overlap: 8.into(), ..Tiling::new(Strategy::Overlap) };
    for ranks in [1, 2, 3] {
        let tiling = tiling.clone();
        let sums = Context::threads(ranks, move |ctx| {
            let halve = denoiser_fn("halve", |image: &View, _| Ok(image * 0.5));
            let denoiser = distribute_with(halve, ctx, tiling.clone())?;
            let plug = Plug::new(Arc::new(denoiser), 0.1).range(Range::Clamp(0.0, 1.0));
            let pgd = ProximalGradient { step: 0.1, prior: Arc::new(plug), relaxation: None };
            images(ctx, 1, Fidelities::from(L2::default()), &pgd, 2)
        });
        let found = sums.expect("no rank fails").remove(0);
        println!("{ranks} ranks with tiles: {found:.2} images for pgd");
        // An only rank has no tiles beside the image but those of one batch.
        let most = if ranks == 1 { 3.6 } else { ranks as f64 * 5.0 };
        assert!(found <= most, "{ranks} ranks: {found}");
    }
}
