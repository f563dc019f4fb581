//! Operators that see the whole image, on images in shards: the same bits on any number of ranks, and a replicated image up to
//! rounding, for every method; what travels is what was foretold.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use haloscope::array::{distance, norm};
use haloscope::denoise::{Denoiser, TotalVariation};
use haloscope::distribute::{ShardedStack, back_project, back_project_shards, distribute};
use haloscope::fidelity::{Fidelities, Fidelity, L1, L2, Poisson};
use haloscope::image::{Image, Space, Sum};
use haloscope::physics::tomography::{
    ConeBeam, FanBeam, Grouping, ParallelBeam, ParallelBeam3d, Tomography2d, Tomography3d, Window,
    evenly_spaced, unit_factor,
};
use haloscope::physics::{
    Blur, Clipping, Compose, Identity, Matrix, Padding, Physics, Saturation, Stack, kernels,
};
use haloscope::solve::{
    Admm, Algorithm, Backtracking, Checkpoints, ConjugateGradient, DouglasRachford, Every, Fista,
    HalfQuadratic, JobId, Landweber, Plug, PrimalDual, Prior, Problem, Prox, ProxPrimalDual,
    ProximalGradient, Range, RedFixedPoint, RedGradient, Schedule, Start, State, Stopping,
    TotalVariationPrior, solve,
};
use haloscope::tiling::{ShardPlan, coarse_grains};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::{Context, ElementKind, traffic};
use haloscope_nn::engine::Grain;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

type Operators = fn() -> Result<Vec<Arc<dyn Physics>>>;

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32() * 2.0 - 1.0)
}

fn groups(scan: &Tomography2d, groups: usize) -> Result<Vec<Arc<dyn Physics>>> {
    let groups = scan.split(groups, Grouping::Interleaved)?;
    Ok(groups.into_iter().map(|group| Arc::new(group) as _).collect())
}

fn parallel() -> Result<Tomography2d> {
    let scan = ParallelBeam::new(evenly_spaced(13, PI), 53);
    Tomography2d::new(&[1, 33, 40], scan)?.scaled(0.1)
}

/// Matrices, views in the plane and in space, what is composed of them, and both kinds of operators in one stack.
const PROBLEMS: [(&str, Operators); 6] = [
    ("matrices", || {
        let matrix = |rows, seed| Matrix::new(&[2, 12, 17], &(random(&[rows, 408], seed) * 0.05));
        Ok(vec![Arc::new(matrix(90, 1)?), Arc::new(matrix(3, 2)?)])
    }),
    ("parallel beams in four groups", || groups(&parallel()?, 4)),
    ("fan beams", || {
        let fan = FanBeam { offset: 1.5, ..FanBeam::new(evenly_spaced(9, TAU), 40, 60.0, 25.0) };
        let scan = Tomography2d::with_pixels(&[2, 31, 24], [1.2, 0.8], fan)?;
        Ok(vec![Arc::new(scan.scaled(0.1)?)])
    }),
    ("blurred views and a blur", || {
        let kernel = kernels::uniform(&[1, 3])?;
        let blurred = |scan: Arc<dyn Physics>| -> Result<Arc<dyn Physics>> {
            let blur = Blur::new(scan.measurement_shape(), &kernel, Padding::Reflect)?;
            Ok(Arc::new(Compose::new(Arc::new(blur), scan)?))
        };
        let camera = Blur::new(&[1, 33, 40], &kernels::uniform(&[3, 5])?, Padding::Circular)?;
        let mut groups = groups(&parallel()?, 2)?.into_iter().map(blurred);
        let mut next = || groups.next().unwrap_or_else(|| Err(Error::argument("groups", "two")));
        let identity: Arc<dyn Physics> = Arc::new(Identity::new(&[1, 33, 40]));
        Ok(vec![next()?, Arc::new(camera), next()?, identity])
    }),
    ("parallel beams in space", || {
        let beam = ParallelBeam3d::new(evenly_spaced(5, PI), [9, 18]);
        Ok(vec![Arc::new(Tomography3d::new(&[1, 9, 12, 17], beam)?.scaled(0.1)?)])
    }),
    ("cone beams", || {
        let cone = |first| {
            let angles = evenly_spaced(6, TAU).into_iter().skip(first).step_by(2).collect();
            let beam = ConeBeam::new(angles, [16, 20], 50.0, 20.0);
            Tomography3d::new(&[1, 9, 12, 17], beam)?.scaled(0.1)
        };
        Ok(vec![Arc::new(cone(0)?), Arc::new(cone(1)?)])
    }),
];

fn truth(shape: &[usize]) -> Array {
    Array::from_shape_fn([&[1], shape].concat(), |at| {
        let last = shape.len();
        let smooth = (at[last - 1] as f32 * 0.3).sin() + (at[last] as f32 * 0.2).cos();
        0.5 + 0.2 * smooth + 0.01 * at[2] as f32
    })
}

/// An image in shards of a few small grains.
fn space(ctx: &Context, image: &[usize]) -> Result<Arc<Space>> {
    let mut grains = vec![Grain { step: 5, last: 2 }; image.len() - 2];
    grains[image.len() - 3].step = 8;
    let grains = coarse_grains(&image[2..], &grains);
    Space::new(ctx, &ShardPlan::new(image, &grains, ctx.size())?)
}

fn problem(
    ctx: &Context,
    space: Option<&Arc<Space>>,
    operators: Operators,
    data: Measurements,
    fidelity: impl Fidelity + 'static,
) -> Result<Problem> {
    let fidelity = distribute(Fidelities::from(fidelity), ctx)?;
    let stack = Stack::new(operators()?)?;
    let problem = match space {
        Some(space) => Problem::sharded(ShardedStack::new(stack, space)?, &data, fidelity)?,
        None => Problem::new(distribute(stack, ctx)?, data, fidelity)?,
    };
    Ok(problem.with_inner(1e-6, 4).with_prox(Prox::Iterative))
}

/// All methods with total variation or a denoiser, for squares.
fn methods(problem: &Problem) -> Result<Vec<Box<dyn Algorithm>>> {
    let step = problem.step_size()?;
    let denoiser = TotalVariation { iterations: 4, tolerance: 0.0 };
    let prior: Arc<dyn Prior> = Arc::new(TotalVariationPrior { weight: 0.02, denoiser });
    let denoiser: Arc<dyn Denoiser> = Arc::new(denoiser);
    let plug = Plug::new(denoiser, 0.05).range(Range::Normalise);
    let plugged: Arc<dyn Prior> = Arc::new(plug.clone().range(Range::Clamp(0.0, 1.0)));
    let range = Some((0.1, 0.9));
    Ok(vec![
        Box::new(ProximalGradient { step, prior: plugged.clone(), relaxation: Some(0.5) }),
        Box::new(Fista { step, prior: prior.clone() }),
        Box::new(HalfQuadratic {
            prior: plug.clone(),
            schedule: Schedule::falling(0.2, 0.02, 3, 0.05, 0.23)?,
        }),
        Box::new(Admm { step, prior: prior.clone() }),
        Box::new(DouglasRachford { step, prior: plugged.clone(), relaxation: 1.2 }),
        Box::new(RedGradient { step, weight: 0.1, prior: plugged }),
        Box::new(RedFixedPoint { weight: 0.3, prior: plug }),
        Box::new(PrimalDual { lipschitz: 0.99 / step, weight: 0.02, range }),
        Box::new(ConjugateGradient),
        Box::new(Landweber { step, range }),
    ])
}

/// Images and numbers by name.
type Facts = Vec<(String, Array, Vec<f64>)>;

/// What a few iterations make of a start, with the numbers of their records.
fn run(problem: &Problem, methods: &[Box<dyn Algorithm>], start: &Start) -> Result<Facts> {
    let mut results = Vec::new();
    for method in methods {
        let state = State::new(problem.start(start)?);
        let stopping = Stopping { iterations: 3, ..Stopping::default() };
        let outcome = solve(problem, &**method, state, &stopping, None)?;
        let numbers = outcome.records.iter().map(|record| record.data_term.unwrap_or(-1.0));
        results.push((method.name().to_owned(), outcome.state.image.gather()?, numbers.collect()));
    }
    Ok(results)
}

fn bits(facts: &Facts) -> Vec<(Vec<u32>, Vec<u64>)> {
    let of = |(_, image, numbers): &(String, Array, Vec<f64>)| {
        let image = image.iter().map(|value| value.to_bits()).collect();
        (image, numbers.iter().map(|number| number.to_bits()).collect())
    };
    facts.iter().map(of).collect()
}

fn values(array: &Array) -> &[f32] {
    array.as_slice().expect("standard layout")
}

fn assert_near(what: &str, found: &Array, expected: &Array, tolerance: f64) {
    let apart = distance(values(found), values(expected)) / norm(values(expected));
    assert!(apart <= tolerance, "{what}: {apart:e}");
}

/// Runs `work` in shards on all numbers of ranks, which must have the same bits, and once on a replicated image, which differs
/// by rounding.
fn compare(
    name: &str,
    image: &[usize],
    tolerance: f64,
    work: impl Fn(&Context, Option<&Arc<Space>>) -> Result<Facts> + Clone + Send + Sync + 'static,
) {
    let replicated = work(&Context::solo(), None).expect("replicated");
    let mut first: Option<Facts> = None;
    for ranks in RANKS {
        let (work, image) = (work.clone(), image.to_vec());
        let found = Context::threads(ranks, move |ctx| work(ctx, Some(&space(ctx, &image)?)));
        for found in found.expect("no rank fails") {
            let first = first.get_or_insert_with(|| found.clone());
            for ((found, first), (what, ..)) in bits(&found).iter().zip(bits(first)).zip(&found[..])
            {
                assert!(*found == first, "{name}, {what}: other bits on {ranks} ranks");
            }
        }
    }
    for (found, expected) in first.iter().flatten().zip(&replicated) {
        let what = format!("{name}, {}", found.0);
        assert_near(&what, &found.1, &expected.1, tolerance);
        for (found, expected) in found.2.iter().zip(&expected.2) {
            // Near the solution a value is a small difference of large numbers.
            let apart = (found / expected - 1.0).abs();
            assert!(apart <= 10.0 * tolerance, "{what}: {found}, apart by {apart:e}");
        }
    }
}

#[test]
fn every_method_has_one_result_on_any_number_of_ranks() {
    for (name, operators) in PROBLEMS {
        let stack = operators().and_then(Stack::new).expect("operators");
        let truth = truth(stack.image_shape());
        // With noise, so that residuals are not rounding alone.
        let mut data = stack.forward(&truth).expect("data");
        data.iter_mut().for_each(|(_, part)| *part += &(random(part.shape(), 6) * 0.1));
        compare(name, truth.shape(), 1e-6, move |ctx, space| {
            let problem = problem(ctx, space, operators, data.clone(), L2::default())?;
            run(&problem, &methods(&problem)?, &Start::Adjoint)
        });
    }
}

/// One forward, adjoint, value and gradient are as near to those of a replicated image as rounding allows.
#[test]
fn operators_differ_from_those_on_a_replicated_image_by_rounding() {
    for (name, operators) in PROBLEMS {
        let stack = operators().and_then(Stack::new).expect("operators");
        let truth = truth(stack.image_shape());
        let data = stack.forward(&random(truth.shape(), 3)).expect("data");
        let image = truth.shape().to_vec();
        compare(name, &image, 1e-6, move |ctx, space| {
            let problem = problem(ctx, space, operators, data.clone(), L2::default())?;
            let at = problem.start(&Start::Image(truth.clone().into()))?;
            let (value, gradient) = problem.value_and_gradient(&at)?;
            let norm = problem.squared_norm()?;
            let starts = [Start::Adjoint, Start::PseudoInverse(2), Start::Zeros];
            let mut facts = vec![
                ("gradient".to_owned(), gradient.gather()?, vec![value, problem.value(&at)?]),
                ("adjoint".to_owned(), problem.adjoint()?.gather()?, vec![norm]),
                ("prox".to_owned(), problem.prox(&at, 0.7 / norm)?.gather()?, Vec::new()),
            ];
            for (index, start) in starts[..2].iter().enumerate() {
                facts.push((format!("start {index}"), problem.start(start)?.gather()?, vec![]));
            }
            assert_eq!(problem.start(&starts[2])?.norm()?, 0.0);
            Ok(facts)
        });
    }
}

/// ⟨A x, y⟩ = ⟨x, Aᵀ y⟩, of a batch.
#[test]
fn adjoints_in_shards_are_adjoint() {
    for (name, operators) in PROBLEMS {
        let stack = operators().and_then(Stack::new).expect("operators");
        let shape = [&[2], stack.image_shape()].concat();
        for ranks in RANKS {
            let shape = shape.clone();
            let outcome = Context::threads(ranks, move |ctx| {
                let space = space(ctx, &shape)?;
                let physics = ShardedStack::new(Stack::new(operators()?)?, &space)?;
                let x = Image::cut(&space, &random(&shape, 4))?;
                let ax = physics.forward(&x)?;
                let mut parts = Vec::new();
                let (mut left, mut size) = (0.0, 0.0);
                for (index, part) in ax.iter() {
                    let measured = &physics.measured()[index];
                    let y = random(measured.whole(), 5 + index as u64);
                    let (ax, y) =
                        (Image::sharded(measured, part.clone())?, Image::cut(measured, &y)?);
                    left += ax.dot(&y)?;
                    size += ax.norm()? * y.norm()?;
                    parts.push((index, y.into_local()));
                }
                let y = Measurements::partial(physics.len(), parts)?;
                let right = x.dot(&physics.adjoint(&y)?)?;
                assert!((left - right).abs() <= 1e-6 * size, "{name}: {left} and {right}");
                Ok::<_, Error>(())
            });
            outcome.expect("no rank fails");
        }
    }
}

/// Counts by backtracking, and absolute deviations by their duals, which stop on three ranks and resume on others.
#[test]
fn other_fidelities_and_checkpoints_have_one_result() {
    let operators = PROBLEMS[1].1;
    let stack = operators().and_then(Stack::new).expect("operators");
    let truth = truth(stack.image_shape());
    let data = stack.forward(&truth).expect("data");
    let own = data.clone();
    compare("counts and deviations", truth.shape(), 1e-6, move |ctx, space| {
        let poisson = problem(ctx, space, operators, own.clone(), Poisson::new(0.01, 0.1)?)?;
        let denoiser = TotalVariation { iterations: 5, tolerance: 0.0 };
        let backtracking = Backtracking {
            first_step: poisson.first_step()?,
            prior: Arc::new(TotalVariationPrior { weight: 0.01, denoiser }),
            relaxation: None,
            accelerated: true,
            range: Some((0.0, 2.0)),
            name: "fista",
        };
        let mut all = run(&poisson, &[Box::new(backtracking)], &Start::Zeros)?;
        let problem = problem(ctx, space, operators, own.clone(), L1)?;
        let squared_norm = problem.squared_norm()?;
        let dual = ProxPrimalDual { squared_norm, weight: 0.02, step: 0.3, range: None };
        all.extend(run(&problem, &[Box::new(dual)], &Start::Zeros)?);
        Ok(all)
    });
    let folder = tempfile::tempdir().expect("a folder");
    let (path, job, image) =
        (folder.path().to_owned(), JobId::new("views", b""), truth.shape().to_vec());
    let iterate = move |ctx: &Context, folder: &str, saved: bool, to: usize| -> Result<Array> {
        let space = space(ctx, &image)?;
        let problem = problem(ctx, Some(&space), operators, data.clone(), L1)?;
        let squared_norm = problem.squared_norm()?;
        let method = ProxPrimalDual { squared_norm, weight: 0.02, step: 0.3, range: None };
        let mut checkpoints = Checkpoints::new(path.join(folder), Every::default())?;
        let state = if saved {
            let physics = ShardedStack::new(Stack::new(operators()?)?, &space)?;
            checkpoints.load_shards(ctx, &job, &physics)?.expect("it is there").state
        } else {
            State::new(problem.start(&Start::Zeros)?)
        };
        let stopping = Stopping { iterations: to, ..Stopping::default() };
        let state = solve(&problem, &method, state, &stopping, None)?.state;
        checkpoints.save_together(ctx, &state, &job)?;
        state.image.gather()
    };
    let straight = iterate(&Context::solo(), "straight", false, 5).expect("all at once");
    let half = iterate.clone();
    Context::threads(3, move |ctx| half(ctx, "stopped", false, 2)).expect("no rank fails");
    let found = Context::threads(5, move |ctx| iterate(ctx, "stopped", true, 5));
    assert!(found.expect("no rank fails").iter().all(|found| *found == straight));
}

#[test]
fn what_travels_is_foretold_to_the_byte() {
    for (name, operators) in PROBLEMS {
        let stack = operators().and_then(Stack::new).expect("operators");
        let truth = truth(stack.image_shape());
        let data = stack.forward(&truth).expect("data");
        for ranks in RANKS {
            let (truth, data) = (truth.clone(), data.clone());
            let outcome = Context::threads(ranks, move |ctx| {
                let space = space(ctx, truth.shape())?;
                let grains = {
                    let mut grains = vec![Grain { step: 5, last: 2 }; truth.ndim() - 2];
                    grains[truth.ndim() - 3].step = 8;
                    coarse_grains(&truth.shape()[2..], &grains)
                };
                let plan = ShardPlan::new(truth.shape(), &grains, ranks)?;
                let foretold = ShardedStack::messages(&operators()?, &plan, ranks)?[ctx.rank()];
                let physics = ShardedStack::new(Stack::new(operators()?)?, &space)?;
                let (rank, count) = (ctx.rank(), physics.len());
                assert_eq!(foretold.forward, physics.forward_bytes(rank));
                assert_eq!(foretold.adjoint, physics.adjoint_bytes(rank));
                let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
                let problem = Problem::sharded(physics, &data, fidelity)?;
                let held: usize = problem.data().iter().map(|(_, part)| part.len()).sum();
                assert_eq!(foretold.values, held);
                let image = Image::cut(&space, &truth)?;
                let before = ctx.comm().statistics().total().bytes_sent;
                problem.value_and_gradient(&image)?;
                let sent = ctx.comm().statistics().total().bytes_sent - before;
                let sums = traffic::all_reduce(ElementKind::U64, count * Sum::WORDS, ranks);
                let expected = foretold.forward + foretold.adjoint + sums[rank];
                assert_eq!(sent, expected, "{name}: rank {rank} of {ranks}");
                Ok::<_, Error>(())
            });
            outcome.expect("no rank fails");
        }
    }
}

/// Filtered back-projection is computed pixel by pixel, and has the bits of a replicated image.
#[test]
fn filtered_back_projections_have_the_bits_of_a_replicated_image() {
    let stack = || groups(&parallel()?, 4).and_then(Stack::new);
    let data = stack().and_then(|stack| stack.forward(&truth(&[1, 33, 40]))).expect("views");
    let plan = || parallel()?.back_projection(Window::Hann);
    let expected = distribute(stack().expect("a scan"), &Context::solo())
        .and_then(|stack| back_project(&stack, &plan()?, &data))
        .expect("an image");
    for ranks in RANKS {
        let data = data.clone();
        let found = Context::threads(ranks, move |ctx| {
            let physics = ShardedStack::new(stack()?, &space(ctx, &[1, 1, 33, 40])?)?;
            let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
            let problem = Problem::sharded(physics.clone(), &data, fidelity)?;
            back_project_shards(&physics, &plan()?, problem.data())?.gather()
        });
        assert!(found.expect("no rank fails").iter().all(|found| *found == expected), "{ranks}");
    }
    let cone = || {
        let beam = ConeBeam::new(evenly_spaced(6, TAU), [16, 20], 50.0, 20.0);
        Tomography3d::new(&[1, 9, 12, 17], beam)
    };
    let views = random(&[1, 1, 6, 16, 20], 8);
    let expected = cone()
        .and_then(|cone| cone.filtered_back_projection(&views, Window::Ramp))
        .expect("an image");
    let found = Context::threads(5, move |ctx| {
        let cone = cone()?;
        let plan = cone.back_projection(Window::Ramp)?;
        let stack = Stack::new(vec![Arc::new(cone)])?;
        let physics = ShardedStack::new(stack, &space(ctx, &[1, 1, 9, 12, 17])?)?;
        let own = Image::cut(&physics.measured()[0], &views)?.into_local();
        let data = Measurements::partial(1, [(0, own)])?;
        back_project_shards(&physics, &plan, &data)?.gather()
    });
    assert!(found.expect("no rank fails").iter().all(|found| *found == expected));
}

#[test]
fn a_projector_in_shards_is_scaled_to_the_norm_of_a_replicated_one() {
    let expected = unit_factor(&parallel().expect("a scan")).expect("a factor");
    let mut first = None;
    for ranks in RANKS {
        let found = Context::threads(ranks, |ctx| {
            let stack = Stack::new(groups(&parallel()?, 4)?)?;
            unit_factor(&ShardedStack::new(stack, &space(ctx, &[1, 1, 33, 40])?)?)
        });
        for found in found.expect("no rank fails") {
            assert_eq!(found.to_bits(), *first.get_or_insert(found.to_bits()), "{ranks} ranks");
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} and {expected}");
        }
    }
}

/// Signs that cancel what an operator gives make no unit; the greatest sample of the image itself does.
#[test]
fn what_signs_do_not_show_is_added_up_all_the_same() {
    let image = Array::from_shape_vec(vec![1, 1, 1, 2], vec![3.0, 4e-3]).expect("two values");
    let outcome = Context::threads(3, move |ctx| {
        let rows = [[1.0, 1.0], [1.0, -1.0]].map(|row| {
            let row = Array::from_shape_vec(vec![1, 2], row.to_vec()).expect("a row");
            Matrix::new(&[1, 1, 2], &row).map(|row| Arc::new(row) as Arc<dyn Physics>)
        });
        let rows = rows.into_iter().collect::<Result<Vec<_>>>()?;
        let space = space(ctx, image.shape())?;
        let physics = ShardedStack::new(Stack::new(rows)?, &space)?;
        let measured = physics.forward(&Image::cut(&space, &image)?)?;
        let sums: Vec<f32> = measured.iter().flat_map(|(_, part)| part.clone()).collect();
        Ok::<_, Error>(sums)
    });
    // Each measurement is on one rank.
    let mut sums = outcome.expect("no rank fails").concat();
    sums.sort_by(f32::total_cmp);
    assert_eq!(sums, [3.0 - 4e-3, 3.0 + 4e-3]);
}

#[test]
fn what_cannot_be_added_up_or_cut_is_refused_on_all_ranks() {
    let outcome = Context::threads(3, |ctx| {
        let shape = [1, 1, 33, 40];
        let space = space(ctx, &shape)?;
        let physics = ShardedStack::new(Stack::new(groups(&parallel()?, 2)?)?, &space)?;
        let mut image = Array::ones(shape.to_vec());
        image[[0, 0, 30, 3]] = f32::NAN;
        let error = physics.forward(&Image::cut(&space, &image)?).expect_err("no number");
        assert!(error.to_string().contains("finite ones can"), "{error}");
        let saturation = Saturation::new(&[1, 33, 40], 1.0, Clipping::Hard)?;
        let error = ShardedStack::new(Stack::new(vec![Arc::new(saturation)])?, &space);
        let error = error.expect_err("it is not linear").to_string();
        assert!(error.contains("saturation is not linear"), "{error}");
        assert!(error.contains("use a replicated image"), "{error}");
        let fine = [Grain { step: 1, last: 1 }; 2];
        let image = [1, 1, 330, 40];
        let space = Space::new(ctx, &ShardPlan::new(&image, &fine, 3)?)?;
        let scan = ParallelBeam::new(evenly_spaced(2, PI), 9);
        let scan = Tomography2d::new(&[1, 330, 40], scan)?;
        let error = ShardedStack::new(Stack::new(vec![Arc::new(scan)])?, &space);
        let error = error.expect_err("many grains").to_string();
        assert!(error.contains("1650 grains") && error.contains("coarse_grains"), "{error}");
        Ok::<_, Error>(())
    });
    outcome.expect("no rank fails");
}
