//! Images in shards: every method gives the bits of a replicated image, whatever the grid and the number of ranks, and sends
//! what was foretold.

mod solvers;

use std::sync::Arc;

use haloscope::denoise::{Denoiser, NetworkDenoiser, TotalVariation};
use haloscope::distribute::{ShardedNetwork, ShardedStack, distribute};
use haloscope::fidelity::{Amplitude, Ball, Fidelities, L1, L2, Poisson};
use haloscope::image::{Image, Space, Sum};
use haloscope::metrics::{Border, Ssim, of_images, psnr};
use haloscope::noise::{Noise, NoiseSource};
use haloscope::physics::{Identity, Physics, Stack};
use haloscope::solve::{
    Backtracking, Checkpoints, Every, JobId, Prior, Problem, ProxPrimalDual, Start, State,
    Stopping, TotalVariationPrior, solve,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Digest, Error, Result};
use haloscope_comm::{Context, ElementKind, traffic};
use haloscope_nn::engine::{EngineOptions, Grain};
use haloscope_nn::models::{Architecture, Dncnn, Model};
use solvers::{CUTS, PROBLEMS, bits, methods, problem, run, space, stack, truth};

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn network() -> Model {
    Dncnn { depth: 3, channels: 8, image_channels: 2, ..Dncnn::default() }.random(2).expect("valid")
}

#[test]
fn every_method_has_the_bits_of_a_replicated_image() {
    let shape = [2, 22, 44];
    let truth = truth(&shape);
    for (name, operators) in PROBLEMS {
        let data = stack(operators, &shape).and_then(|stack| stack.forward(&truth)).expect("data");
        let variation: Arc<dyn Denoiser> =
            Arc::new(TotalVariation { iterations: 5, tolerance: 0.0 });
        let work = move |ctx: &Context, space: Option<&Arc<Space>>| {
            let stack = stack(operators, &shape)?;
            let problem = problem(ctx, space, stack, data.clone(), L2::default())?;
            run(&problem, &methods(&problem, &variation)?, &Start::Adjoint)
        };
        let image = truth.shape().to_vec();
        let expected = work(&Context::solo(), None).expect("replicated");
        let cuts = if name == "denoising" || name == "frames" { &CUTS[..] } else { &CUTS[..1] };
        for (steps, ranks) in cuts.iter().flat_map(|steps| RANKS.map(|ranks| (*steps, ranks))) {
            let (work, image) = (work.clone(), image.clone());
            let found =
                Context::threads(ranks, move |ctx| work(ctx, Some(&space(ctx, &image, steps)?)));
            for (found, expected) in found.expect("no rank fails")[0].iter().zip(&expected) {
                assert!(found == expected, "{name}, {}, {ranks} ranks, {steps:?}", found.0);
            }
        }
    }
}

#[test]
fn a_network_in_shards_has_the_bits_of_a_replicated_image() {
    let shape = [2, 30, 50];
    let truth = truth(&shape);
    let operators = PROBLEMS[2].1;
    let data = stack(operators, &shape).and_then(|stack| stack.forward(&truth)).expect("data");
    let open = || NetworkDenoiser::new(network(), EngineOptions::default());
    let image = truth.shape().to_vec();
    let whole: Arc<dyn Denoiser> = Arc::new(open().expect("a network"));
    let solo = Context::solo();
    let replicated = stack(operators, &shape)
        .and_then(|stack| problem(&solo, None, stack, data.clone(), L2::default()))
        .expect("a problem");
    let expected = methods(&replicated, &whole)
        .and_then(|methods| run(&replicated, &methods[..7], &Start::Zeros))
        .expect("replicated");
    let mut grains = open().and_then(|network| network.grains(&image)).expect("grains");
    // Multiples of the network's step that are multiples of 8.
    grains[1].step *= 8;
    for ranks in RANKS {
        let (image, grains, data) = (image.clone(), grains.clone(), data.clone());
        let found = Context::threads(ranks, move |ctx| {
            let space = Space::new(ctx, &ShardPlan::new(&image, &grains, ranks)?)?;
            let denoiser: Arc<dyn Denoiser> = Arc::new(ShardedNetwork::new(open()?, &space)?);
            let stack = stack(operators, &shape)?;
            let problem = problem(ctx, Some(&space), stack, data.clone(), L2::default())?;
            run(&problem, &methods(&problem, &denoiser)?[..7], &Start::Zeros)
        });
        for found in found.expect("no rank fails") {
            for (found, expected) in found.iter().zip(&expected) {
                assert!(found == expected, "{} on {ranks} ranks", found.0);
            }
        }
    }
}

/// Poisson by backtracking, and fidelities that have a prox only, by their duals.
#[test]
fn other_fidelities_have_the_bits_of_a_replicated_image() {
    let shape = [1, 19, 33];
    let truth = truth(&shape);
    let operators = PROBLEMS[5].1;
    let data = stack(operators, &shape).and_then(|stack| stack.forward(&truth)).expect("data");
    let work = move |ctx: &Context, space: Option<&Arc<Space>>| -> Result<Vec<_>> {
        let stack = || stack(operators, &shape);
        let mut all = Vec::new();
        let poisson = problem(ctx, space, stack()?, data.clone(), Poisson::new(0.01, 0.1)?)?;
        let prior: Arc<dyn Prior> = Arc::new(TotalVariationPrior {
            weight: 0.01,
            denoiser: TotalVariation { iterations: 5, tolerance: 0.0 },
        });
        let backtracking = Backtracking {
            first_step: poisson.first_step()?,
            prior,
            relaxation: None,
            accelerated: true,
            range: Some((0.0, 2.0)),
            name: "fista",
        };
        all.extend(run(&poisson, &[Box::new(backtracking)], &Start::Zeros)?);
        let problems = [
            problem(ctx, space, stack()?, data.clone(), L1)?,
            problem(ctx, space, stack()?, data.clone(), Ball::new(0.5)?)?,
            problem(ctx, space, stack()?, data.clone(), Amplitude)?,
        ];
        for problem in problems {
            let squared_norm = problem.squared_norm()?;
            let dual = ProxPrimalDual { squared_norm, weight: 0.02, step: 0.3, range: None };
            all.extend(run(&problem, &[Box::new(dual)], &Start::Zeros)?);
            let value = problem.value(&problem.start(&Start::Adjoint)?)?;
            all.push(("value".to_owned(), Vec::new(), vec![value.to_bits()]));
        }
        Ok(all)
    };
    let expected = work(&Context::solo(), None).expect("replicated");
    for ranks in RANKS {
        let (work, image) = (work.clone(), truth.shape().to_vec());
        let found =
            Context::threads(ranks, move |ctx| work(ctx, Some(&space(ctx, &image, CUTS[0])?)));
        for (found, expected) in found.expect("no rank fails")[0].iter().zip(&expected) {
            assert!(found == expected, "{} on {ranks} ranks", found.0);
        }
    }
}

/// Starts, of a batch and on more ranks than there are parts.
#[test]
fn starts_have_the_bits_of_a_replicated_image() {
    let shape = [1, 5, 17];
    let one = truth(&shape);
    let other = one.mapv(|value| 1.0 - value);
    let both =
        ndarray::concatenate(ndarray::Axis(0), &[one.view(), other.view()]).expect("a batch");
    for (name, operators) in PROBLEMS {
        let data = stack(operators, &shape).and_then(|stack| stack.forward(&both)).expect("data");
        let both = both.clone();
        let image = both.shape().to_vec();
        let work = move |ctx: &Context, space: Option<&Arc<Space>>| -> Result<Vec<_>> {
            let stack = stack(operators, &shape)?;
            let problem = problem(ctx, space, stack, data.clone(), L2::default())?;
            let starts = [
                Start::Zeros,
                Start::Adjoint,
                Start::PseudoInverse(4),
                Start::Filled,
                Start::Image(both.clone().into()),
            ];
            starts.iter().map(|start| Ok(bits(&problem.start(start)?.gather()?))).collect()
        };
        let expected = work(&Context::solo(), None).expect("replicated");
        for ranks in RANKS {
            let (work, image) = (work.clone(), image.clone());
            let found = Context::threads(ranks, move |ctx| {
                work(ctx, Some(&space(ctx, &image, [1000, 8])?))
            });
            let found = found.expect("no rank fails");
            let is_closed_form = name == "circular" || name == "super-resolution";
            for (index, (found, expected)) in found[0].iter().zip(&expected).enumerate() {
                // A pseudo-inverse by Fourier transforms needs the whole image.
                if !(is_closed_form && index == 2) {
                    assert!(found == expected, "{name}, start {index}, {ranks} ranks");
                }
            }
        }
    }
}

#[test]
fn a_gradient_sends_what_was_foretold() {
    let shape = [2, 22, 44];
    let truth = truth(&shape);
    let operators = PROBLEMS[5].1;
    let data = stack(operators, &shape).and_then(|stack| stack.forward(&truth)).expect("data");
    for ranks in RANKS {
        let (truth, data) = (truth.clone(), data.clone());
        let outcome = Context::threads(ranks, move |ctx| {
            let space = space(ctx, truth.shape(), CUTS[0])?;
            let physics = ShardedStack::new(stack(operators, &shape)?, &space)?;
            let (forward, adjoint): (Vec<u64>, Vec<u64>) = (0..ranks)
                .map(|rank| (physics.forward_bytes(rank), physics.adjoint_bytes(rank)))
                .unzip();
            let count = physics.len();
            let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
            let problem = Problem::sharded(physics, &data, fidelity)?;
            let image = Image::cut(&space, &truth)?;
            let before = ctx.comm().statistics().total().bytes_sent;
            problem.value_and_gradient(&image)?;
            let sent = ctx.comm().statistics().total().bytes_sent - before;
            let sums = traffic::all_reduce(ElementKind::U64, count * Sum::WORDS, ranks);
            let rank = ctx.rank();
            assert_eq!(sent, forward[rank] + adjoint[rank] + sums[rank], "rank {rank} of {ranks}");
            Ok::<_, Error>(())
        });
        outcome.expect("no rank fails");
    }
}

#[test]
fn what_shards_cannot_serve_is_refused_with_what_can() {
    let outcome = Context::threads(2, |ctx| {
        let space = space(ctx, &[1, 1, 8, 32], [8, 8])?;
        let stack = || Stack::new(vec![Arc::new(Identity::new(&[1, 8, 32])) as Arc<dyn Physics>]);
        let physics = ShardedStack::new(stack()?, &space)?;
        let error = physics.forward(&Array::zeros(vec![1, 1, 8, 32]).into());
        let error = error.expect_err("a replicated image").to_string();
        assert!(error.contains("cut the image as the operators are"), "{error}");
        let network = NetworkDenoiser::new(network(), EngineOptions::default())?;
        let grains = [Grain { step: 5, last: 1 }, Grain { step: 1000, last: 1 }];
        let coarse = Space::new(ctx, &ShardPlan::new(&[1, 2, 10, 32], &grains, 2)?)?;
        let error = ShardedNetwork::new(network, &coarse).expect_err("cut at 5").to_string();
        assert!(error.contains("cuts at multiples of"), "{error}");
        Ok::<_, Error>(())
    });
    outcome.expect("no rank fails");
}

#[test]
fn metrics_of_parts_are_those_of_the_whole() {
    for shape in [&[2, 23, 45][..], &[1, 9, 12, 26]] {
        let mut random = fastrand::Rng::with_seed(5);
        let mut draw = || Array::from_shape_simple_fn([&[2], shape].concat(), || random.f32());
        let (image, reference) = (draw(), draw());
        let borders = [Border::Reflect, Border::Inside];
        // The window of eleven does not fit in nine slices.
        let borders = if shape.len() == 4 { &borders[..1] } else { &borders[..] };
        let settings: Vec<Ssim> = borders
            .iter()
            .map(|border| Ssim::new(1.0).expect("a range").with_border(*border))
            .collect();
        let work = move |image: &Image, reference: &Image| -> Result<Vec<u64>> {
            let mut all = of_images::psnr(image, reference, 1.0)?;
            for ssim in &settings {
                all.extend(of_images::ssim(ssim, image, reference)?);
            }
            Ok(all.iter().map(|value| value.to_bits()).collect())
        };
        let expected = work(&image.clone().into(), &reference.clone().into()).expect("replicated");
        assert_eq!(expected[0], psnr(&image, &reference, 1.0).expect("one shape")[0].to_bits());
        for ranks in RANKS {
            let (work, image, reference) = (work.clone(), image.clone(), reference.clone());
            let found = Context::threads(ranks, move |ctx| {
                let mut grains = vec![Grain { step: 2, last: 1 }; shape.len() - 1];
                grains[shape.len() - 2].step = 8;
                let space = Space::new(ctx, &ShardPlan::new(image.shape(), &grains, ranks)?)?;
                work(&Image::cut(&space, &image)?, &Image::cut(&space, &reference)?)
            });
            for found in found.expect("no rank fails") {
                assert_eq!(found, expected, "{shape:?} on {ranks} ranks");
            }
        }
    }
}

/// What the first rank has goes to all parts; their digest and their noise are those of the whole.
#[test]
fn scattered_images_have_the_digest_and_the_noise_of_the_whole() {
    for shape in [&[2, 23, 45][..], &[1, 9, 12, 26]] {
        let whole = Array::from_shape_fn([&[2], shape].concat(), |at| {
            (at[0] * 7 + at[2] * 50 + at[3]) as f32 / 400.0
        });
        let source = NoiseSource { seed: 4, operator: 3 };
        let mut noisy = whole.clone();
        Noise::poisson_gaussian(0.1, 0.2).and_then(|it| it.add(&mut noisy, source)).expect("noise");
        for ranks in RANKS {
            let (whole, noisy) = (whole.clone(), noisy.clone());
            let outcome = Context::threads(ranks, move |ctx| {
                let mut grains = vec![Grain { step: 2, last: 1 }; shape.len() - 1];
                grains[shape.len() - 2].step = 8;
                let space = Space::new(ctx, &ShardPlan::new(whole.shape(), &grains, ranks)?)?;
                let part = Image::scatter(&space, ctx.is_root().then_some(&*whole))?;
                assert_eq!(part, Image::cut(&space, &whole)?);
                assert_eq!(part.digest()?, Digest::of(&whole).value());
                let mut part = part.into_local();
                let place = (space.whole(), &space.own()[..]);
                Noise::poisson_gaussian(0.1, 0.2)?.add_to_part(&mut part, place, source)?;
                assert_eq!(Image::sharded(&space, part)?, Image::cut(&space, &noisy)?);
                Ok::<_, Error>(())
            });
            outcome.expect("no rank fails");
        }
    }
}

/// A state that three ranks save in parts is read by five, and by one that has all of it.
#[test]
fn states_in_shards_resume_on_other_ranks_and_in_the_other_layout() {
    let shape = [2, 22, 44];
    let truth = truth(&shape);
    let operators = PROBLEMS[5].1;
    let data = stack(operators, &shape).and_then(|stack| stack.forward(&truth)).expect("data");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let job = JobId::new("shards", b"");
    let iterate = move |ctx: &Context, space: Option<&Arc<Space>>, from: Option<State>, to| {
        let problem = problem(ctx, space, stack(operators, &shape)?, data.clone(), L1)?;
        let squared_norm = problem.squared_norm()?;
        let method = ProxPrimalDual { squared_norm, weight: 0.02, step: 0.3, range: None };
        let begin = || problem.start(&Start::Adjoint).map(State::new);
        let state = from.map_or_else(begin, Ok)?;
        let stopping = Stopping { iterations: to, ..Stopping::default() };
        Ok::<_, Error>(solve(&problem, &method, state, &stopping, None)?.state)
    };
    let expected = iterate(&Context::solo(), None, None, 5).expect("replicated").image;
    let expected = expected.into_whole().expect("replicated");
    let image = truth.shape().to_vec();
    let (first, saved, name) = (iterate.clone(), path.clone(), job.clone());
    let cut = image.clone();
    let outcome = Context::threads(3, move |ctx| {
        let state = first(ctx, Some(&space(ctx, &cut, CUTS[0])?), None, 2)?;
        Checkpoints::new(&saved, Every::default())?.save_together(ctx, &state, &name)
    });
    outcome.expect("no rank fails");
    for ranks in [1, 5, 8] {
        let (iterate, path, job, image) =
            (iterate.clone(), path.clone(), job.clone(), image.clone());
        let found = Context::threads(ranks, move |ctx| {
            let mut checkpoints = Checkpoints::new(&path, Every::default())?;
            if ctx.size() == 1 {
                let found = checkpoints.load_latest(ctx, &job)?.expect("it is there");
                return iterate(ctx, None, Some(found.state), 5)?.image.gather();
            }
            let space = space(ctx, &image, CUTS[0])?;
            let physics = ShardedStack::new(stack(operators, &shape)?, &space)?;
            let found = checkpoints.load_shards(ctx, &job, &physics)?.expect("it is there");
            iterate(ctx, Some(&space), Some(found.state), 5)?.image.gather()
        });
        for found in found.expect("no rank fails") {
            assert!(bits(&found) == bits(&expected), "{ranks} ranks");
        }
    }
}
