//! Exact denoising on ranks: the bits of the untiled network on any number of them, the messages that were foretold, and
//! faults that end it.

mod mortal;
mod pnp;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haloscope::denoise::{Axes, Denoiser, NetworkDenoiser, NoiseLevel, Pass, denoiser_fn};
use haloscope::distribute::{ShardedNetwork, agree, distribute, distribute_with};
use haloscope::forecast::{Denoising, PriorWork, Workload};
use haloscope::image::{Image, Space};
use haloscope::solve::ProximalGradient;
use haloscope::tiling::{ShardPlan, Shards, Strategy, Tiles, Tiling};
use haloscope::{Array, Error};
use haloscope_comm::{Context, ContextOptions, Trace};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Builtin, Dncnn, Drunet, Model, Unet};
use ndarray::{ArrayD, IxDyn};
use pnp::Small;

fn image(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(3);
    ArrayD::from_shape_simple_fn(IxDyn(shape), || random.f32())
}

fn exact() -> Tiling {
    Tiling::new(Strategy::Exact)
}

fn small_drunet(channels: usize) -> Model {
    let (image_channels, output_channels) = (channels, channels);
    let drunet = Drunet {
        channels: [8, 12, 16, 24],
        blocks: 1,
        image_channels,
        output_channels,
        ..Drunet::default()
    };
    drunet.random(1).expect("valid")
}

/// Denoises on ranks, and returns the first rank's image.
fn on_ranks(
    ranks: usize,
    tiling: &Tiling,
    model: &Model,
    noisy: &Array,
    level: &NoiseLevel,
) -> Array {
    let (model, noisy, level) = (model.clone(), noisy.clone(), level.clone());
    let tiling = tiling.clone();
    let results = Context::threads(ranks, move |ctx| {
        let open = || NetworkDenoiser::new(model.clone(), EngineOptions::default());
        let denoiser = distribute_with(ctx.share("network", open)?, ctx, tiling.clone())?;
        denoiser.denoise(&noisy, &level)
    })
    .expect("no rank fails");
    assert!(results.iter().all(|image| *image == results[0]), "ranks differ");
    results.into_iter().next().expect("rank 0")
}

/// The grid that is chosen for so many ranks, and all others of as many parts that an image can be cut into.
fn grids(ranks: usize, model: &Model, shape: &[usize]) -> Vec<Shards> {
    let network = NetworkDenoiser::new(model.clone(), EngineOptions::default()).expect("aligned");
    let grains = network.grains(shape).expect("zero padding");
    let sides = shape.len() - 2;
    let divisors = |of: usize| (1..=of).filter(move |part| of.is_multiple_of(*part));
    let planes = divisors(ranks).filter(|planes| sides > 2 || *planes == 1);
    let grid = |(planes, rows): (usize, usize)| {
        let mut grid = vec![planes, rows, ranks / planes / rows];
        Shards::Grid(grid.split_off(3 - sides))
    };
    let all = planes.flat_map(|planes| divisors(ranks / planes).map(move |rows| (planes, rows)));
    let all = all.map(grid);
    let fits = |shards: &Shards| ShardPlan::with_shards(shape, &grains, shards, ranks).is_ok();
    [Shards::Auto].into_iter().chain(all.filter(fits)).collect()
}

/// Compares a network on ranks with the whole image, bit by bit.
fn check_bits(model: &Model, noisy: &Array, level: &NoiseLevel, ranks: &[usize]) {
    let whole = NetworkDenoiser::new(model.clone(), EngineOptions::default()).expect("aligned");
    let whole = whole.denoise(noisy, level).expect("it runs");
    for &ranks in ranks {
        for shards in grids(ranks, model, noisy.shape()) {
            let tiling = Tiling { shards: shards.clone(), ..exact() };
            let result = on_ranks(ranks, &tiling, model, noisy, level);
            let differing = result.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits());
            let (name, shape) = (model.network().name(), noisy.shape());
            assert_eq!(differing.count(), 0, "{name} on {shape:?}, {ranks} ranks, {shards:?}");
        }
    }
}

fn dncnn(depth: usize, channels: usize) -> Model {
    Dncnn { depth, channels, ..Dncnn::default() }.random(2).expect("valid")
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_the_untiled_network() {
    // The engine fills ghosts with NaN before each round: what was not received would show.
    const { assert!(cfg!(debug_assertions), "tests are built with assertions") };
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    let map = image(&[1, 1, 101, 203]) * 0.2;
    for (model, noisy, level) in [
        (small_drunet(3), image(&[1, 3, 203, 155]), 0.1.into()),
        (small_drunet(3), image(&[2, 3, 101, 203]), NoiseLevel::Map(map)),
        (dncnn(4, 8), image(&[1, 3, 61, 50]), NoiseLevel::PerImage(vec![0.05])),
        // Channels one by one, and slices of a volume.
        (unet.clone(), image(&[1, 3, 60, 100]), 0.1.into()),
        (unet, image(&[1, 1, 5, 50, 52]), 0.1.into()),
    ] {
        check_bits(&model, &noisy, &level, &[1, 2, 3, 5, 8]);
    }
}

/// The bytes that each of some ranks sends to denoise an image exactly, beside those of gathering it.
fn halo_bytes(ranks: usize, model: &Model, noisy: &Array) -> Vec<u64> {
    let network = NetworkDenoiser::new(model.clone(), EngineOptions::default()).expect("aligned");
    let parts = network.cut(noisy.shape(), &Shards::Auto, ranks).expect("it can be cut");
    let exchanges = network.exchanges(&parts, Pass::AtOnce).expect("it can be cut");
    exchanges.iter().map(|exchange| exchange.bytes_sent).collect()
}

#[test]
fn networks_for_volumes_have_the_bits_of_the_untiled_network() {
    let drunet = Drunet {
        rank: 3,
        channels: [8, 12, 16, 24],
        blocks: 1,
        image_channels: 1,
        output_channels: 1,
        ..Drunet::default()
    };
    let drunet = drunet.random(1).expect("valid");
    let dncnn = Dncnn { rank: 3, depth: 4, channels: 8, image_channels: 2, ..Dncnn::default() };
    let dncnn = dncnn.random(2).expect("valid");
    let unet = Unet { rank: 3, channels: vec![8, 12, 16], ..Unet::default() };
    let unet = unet.random(4).expect("valid");
    let map = image(&[1, 1, 35, 20, 24]) * 0.2;
    for (model, noisy, level) in [
        (&drunet, image(&[1, 1, 35, 20, 24]), NoiseLevel::Map(map)),
        // More ranks than slabs.
        (&drunet, image(&[1, 1, 12, 100, 53]), 0.1.into()),
        (&dncnn, image(&[2, 2, 11, 14, 20]), NoiseLevel::PerImage(vec![0.05, 0.1])),
        // Channels one by one.
        (&unet, image(&[1, 2, 18, 9, 50]), 0.1.into()),
    ] {
        check_bits(model, &noisy, &level, &[1, 2, 3, 5, 8]);
    }
    // Slabs in the middle have two neighbours. A plane of DRUNet costs the same wherever it is cut.
    let sent = halo_bytes(4, &drunet, &image(&[1, 1, 32, 20, 24]));
    assert_eq!(sent, [sent[0], 2 * sent[0], 2 * sent[0], sent[0]]);
}

#[test]
fn slices_that_are_denoised_one_by_one_need_no_halos_on_slabs() {
    let model = dncnn_gray();
    let noisy = image(&[1, 1, 8, 20, 24]);
    for ranks in [1, 2, 3, 5, 8] {
        assert!(halo_bytes(ranks, &model, &noisy).iter().all(|sent| *sent == 0), "{ranks} ranks");
        let (model, noisy) = (model.clone(), noisy.clone());
        let sent = Context::threads(ranks, move |ctx| {
            let open = || NetworkDenoiser::new(model.clone(), EngineOptions::default());
            let network = ctx.share("network", open)?;
            let plan = network.cut(noisy.shape(), &Shards::Auto, ranks)?;
            assert_eq!(plan.grid()[1..], [1, 1]);
            let space = Space::new(ctx, &plan)?;
            let parts = ShardedNetwork::new(network, &space)?;
            let part = Image::cut(&space, &noisy)?;
            let before = ctx.comm().statistics().total().bytes_sent;
            parts.denoise_image(&part, &0.1.into())?;
            Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent - before)
        });
        // All ranks agree to begin: some bytes for each, whatever the image.
        let sent = sent.expect("no rank fails");
        assert!(sent.iter().all(|sent| *sent < 100), "{sent:?}");
    }
    // More ranks than slices: the plane is cut as well, and only then something travels.
    let sent = halo_bytes(16, &model, &image(&[1, 1, 8, 24, 24]));
    assert!(sent.len() == 16 && sent.iter().all(|sent| *sent > 0), "{sent:?}");
}

#[test]
fn the_built_in_denoisers_have_the_bits_of_the_untiled_network() {
    for channels in [1, 3] {
        let model = Builtin::for_image(channels, 2).model().expect("built in");
        check_bits(&model, &image(&[1, channels, 53, 70]), &0.1.into(), &[2, 3, 8]);
    }
}

#[test]
fn networks_of_full_width_have_the_bits_of_the_untiled_network() {
    let drunet = Drunet { blocks: 1, ..Drunet::default() }.random(1).expect("valid");
    check_bits(&drunet, &image(&[1, 3, 106, 51]), &0.1.into(), &[2]);
    check_bits(&dncnn(20, 64), &image(&[1, 3, 27, 50]), &0.1.into(), &[3]);
    let unet = Unet::default().random(4).expect("valid");
    let channels = unet.image_channels();
    check_bits(&unet, &image(&[1, channels, 100, 43]), &0.1.into(), &[2]);
}

/// Sides from 1 to 400: a few for each remainder of 8, or all of them if `HALOSCOPE_SIZES` is `all`.
#[test]
fn every_size_has_the_bits_of_the_untiled_network() {
    let is_thorough = std::env::var("HALOSCOPE_SIZES").is_ok_and(|sizes| sizes == "all");
    let drunet = Drunet {
        channels: [4, 4, 4, 4],
        blocks: 1,
        image_channels: 1,
        output_channels: 1,
        ..Drunet::default()
    };
    let unet = Unet { channels: vec![4, 6, 8], ..Unet::default() };
    let models = [drunet.random(5).expect("valid"), dncnn_gray(), unet.random(7).expect("valid")];
    let quick = |rest: usize| [(1 + rest, 113 - rest), (96 + rest, 9 + rest), (193 + rest, 48)];
    let sizes: Vec<(usize, usize)> = if is_thorough {
        (1..=400).flat_map(|side| [(side, 401 - side), (side, 57)]).collect()
    } else {
        (0..8).flat_map(quick).collect()
    };
    for (index, (height, width)) in sizes.into_iter().enumerate() {
        let ranks = [2, 3, 5, 8][index % 4];
        for model in &models {
            check_bits(model, &image(&[1, 1, height, width]), &0.1.into(), &[ranks]);
        }
    }
}

fn dncnn_gray() -> Model {
    let dncnn = Dncnn { depth: 3, channels: 4, image_channels: 1, ..Dncnn::default() };
    dncnn.random(6).expect("valid")
}

#[test]
fn the_default_is_exact_and_a_trace_has_every_exchange() {
    const RANKS: usize = 4;
    let shape = [1, 3, 101, 155];
    let noisy = image(&shape);
    let network = NetworkDenoiser::new(small_drunet(3), EngineOptions::default()).expect("aligned");
    let whole = network.denoise(&noisy, &0.1.into()).expect("it runs");
    let shards = ShardPlan::new(&shape, &network.grains(&shape).expect("zero padding"), RANKS);
    let shards = shards.expect("it fits");
    let foretold = network.exchanges(&shards, Pass::AtOnce).expect("zero padding");
    assert!(shards.count() > 2);
    let results = Context::threads(RANKS, move |ctx| {
        let traced = ctx.traced(Trace::new());
        let network = NetworkDenoiser::new(small_drunet(3), EngineOptions::default())?;
        let denoiser = distribute(network, &traced)?;
        let choice = denoiser.choice(noisy.shape())?.expect("no tiles of another kind");
        assert!(choice.is_exact() && choice.reason.contains("no more than"), "{choice:?}");
        let result = denoiser.denoise(&noisy, &0.1.into())?;
        let events = traced.trace().expect("it is traced").events();
        Ok::<_, Error>((result, events))
    })
    .expect("no rank fails");
    for (rank, (result, events)) in results.into_iter().enumerate() {
        assert_eq!(result, whole);
        let halos: Vec<_> = events.iter().filter(|event| event.name == "halo").collect();
        let bytes = |event: &&haloscope_comm::Event| {
            let of = |(name, value): &(&str, f64)| (*name == "bytes").then_some(*value as u64);
            event.details.iter().find_map(of)
        };
        let sent: u64 = halos.iter().filter_map(bytes).sum();
        let own = foretold.get(rank).copied().unwrap_or_default();
        assert_eq!((halos.len(), sent), (own.rounds, own.bytes_sent), "rank {rank}");
    }
}

#[test]
fn a_grid_for_other_ranks_is_refused_on_all_of_them() {
    let errors = Context::threads(3, |ctx| {
        let network = NetworkDenoiser::new(small_drunet(1), EngineOptions::default())?;
        let tiling = Tiling { shards: Shards::Grid(vec![2, 2]), ..Tiling::default() };
        let denoiser = distribute_with(network, ctx, tiling)?;
        let error = denoiser.denoise(&image(&[1, 1, 300, 40]), &0.1.into());
        Ok::<_, Error>(error.expect_err("four parts").to_string())
    });
    for error in errors.expect("no rank fails") {
        let words = "[2, 2] are 4 parts for 3 ranks; grids that fit: [3, 1]";
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_reconstruction_sends_what_was_foretold_and_computes_nothing_twice() {
    let small = Small { tiling: exact(), ..Small::default() };
    let mut images: Option<Vec<u32>> = None;
    for ranks in [1, 2, 3, 5] {
        let job = small.clone();
        let results = Context::threads(ranks, move |ctx| {
            let image = job.run(ctx, 2)?.state.image.into_local();
            Ok::<_, Error>((image, ctx.comm().statistics().total().bytes_sent))
        })
        .expect("no rank fails");
        let bits: Vec<u32> = results[0].0.iter().map(|value| value.to_bits()).collect();
        assert_eq!(*images.get_or_insert_with(|| bits.clone()), bits, "{ranks} ranks");
        let denoiser = small.denoiser().expect("a network");
        let shape = vec![3, small.side, small.side];
        let job = Workload {
            image: [&[1], &shape[..]].concat(),
            measurements: vec![shape; small.operators],
            ranks,
            method: ProximalGradient::METHOD,
            inner_iterations: 0,
            subsets: 1,
            prior: PriorWork::Network(Denoising {
                denoiser: &denoiser,
                tiling: exact(),
                has_range: false,
                axes: Axes::Axial,
            }),
        };
        let forecast = job.forecast().expect("a forecast");
        let foretold: Vec<u64> = forecast.ranks.iter().map(|share| 2 * share.bytes_sent).collect();
        let sent: Vec<u64> = results.iter().map(|(_, sent)| *sent).collect();
        assert_eq!(foretold, sent, "{ranks} ranks");
        let whole = denoiser.plan(&[1, 3, small.side, small.side]).expect("any size").flops();
        assert!((forecast.flops - whole).abs() <= 1e-6 * whole, "{ranks} ranks");
        assert!(forecast.tiles.is_none() && forecast.shards.is_some());
    }
}

#[test]
fn a_rank_that_dies_between_two_layers_ends_the_others() {
    let begin = Instant::now();
    let options = ContextOptions { deadline: Duration::from_secs(30), ..ContextOptions::default() };
    let error = options
        .threads(3, |ctx| {
            let network = NetworkDenoiser::new(small_drunet(1), EngineOptions::default())?;
            let denoiser = distribute_with(network, ctx, exact())?;
            let noisy = image(&[1, 1, 300, 40]);
            // Rank 1 takes part in the agreement, and is gone when the others want its rows.
            if ctx.rank() == 1 {
                agree(ctx, Ok(()))?;
                return Err(Error::argument("rank 1", "the power is out"));
            }
            denoiser.denoise(&noisy, &0.1.into())?;
            Ok::<_, Error>(())
        })
        .expect_err("a rank is gone");
    assert!(error.to_string().contains("the power is out"), "{error}");
    assert!(begin.elapsed() < Duration::from_secs(29), "the others waited for the deadline");
}

/// How a rank ends in the middle of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Death {
    Panic,
    /// It stays away until the others have given up.
    Stall,
}

/// What the ranks other than rank 1 say when that one ends after some rounds.
fn last_words(death: Death, rounds: usize) -> Vec<String> {
    const RANKS: usize = 3;
    let deadline = Duration::from_secs(if death == Death::Stall { 5 } else { 300 });
    let options = ContextOptions { deadline, ..ContextOptions::default() };
    let words = Arc::new(Mutex::new(Vec::new()));
    let said = words.clone();
    let whole = options.threads(RANKS, move |ctx| {
        let (noisy, level) = (image(&[1, 1, 300, 40]), 0.1.into());
        let network = mortal::network()?;
        let denoiser = distribute_with(network.clone(), ctx, exact())?;
        if ctx.rank() != 1 {
            let outcome = denoiser.denoise(&noisy, &level).map(drop);
            let reason = outcome.as_ref().expect_err("rank 1 is gone").to_string();
            said.lock().expect("nobody panics with it").push(reason);
            return outcome;
        }
        let die = || {
            assert!(death == Death::Stall, "the power is out");
            while said.lock().expect("nobody panics with it").len() < RANKS - 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        mortal::denoise_and_die(ctx, &network, &noisy, &level, (rounds, &die))
    });
    assert!(whole.is_err(), "{death:?}");
    let words = words.lock().expect("nobody panics with it").clone();
    assert_eq!(words.len(), RANKS - 1);
    words
}

#[test]
fn a_rank_that_panics_inside_a_round_is_named_by_all_others_at_once() {
    for rounds in [0, 1, 7] {
        for words in last_words(Death::Panic, rounds) {
            assert!(words.contains("rank 1 panicked: the power is out"), "{rounds}: {words}");
        }
    }
}

#[test]
fn a_rank_that_stays_away_from_a_round_is_named_at_the_deadline() {
    for words in last_words(Death::Stall, 5) {
        assert!(words.contains("rank 1 did not arrive within"), "{words}");
        assert!(words.contains("exchange"), "{words}");
    }
}

#[test]
fn what_cannot_be_exact_is_refused_on_all_ranks() {
    let errors = Context::threads(2, |ctx| {
        let mean = denoiser_fn("mean", |image, _| Ok(image.to_owned()));
        let mut errors = Vec::new();
        let denoiser = distribute_with(mean, ctx, exact())?;
        errors.push(denoiser.denoise(&image(&[1, 1, 8, 8]), &0.1.into()).expect_err("no network"));
        let network = NetworkDenoiser::new(small_drunet(1), EngineOptions::default())?;
        let denoiser = distribute_with(network, ctx, exact())?;
        let mut bad = image(&[1, 1, 200, 40]);
        bad[[0, 0, 199, 3]] = f32::NAN;
        errors.push(denoiser.denoise(&bad, &0.1.into()).expect_err("not finite"));
        let good = image(&[1, 1, 200, 40]);
        errors.push(denoiser.denoise(&good, &(-1.0).into()).expect_err("no level"));
        // The ranks are still together.
        denoiser.denoise(&good, &0.1.into())?;
        Ok::<_, Error>(errors.iter().map(ToString::to_string).collect::<Vec<_>>())
    })
    .expect("no rank fails");
    for errors in errors {
        assert!(errors[0].contains("`exact` for mean, which is no network"), "{errors:?}");
        assert!(errors[1].contains("element 7963"), "{errors:?}");
        assert!(errors[2].contains("not negative"), "{errors:?}");
    }
}
