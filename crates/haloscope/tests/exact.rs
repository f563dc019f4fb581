//! Exact denoising on ranks: the bits of the untiled network on any number of them, the messages that were foretold, and
//! faults that end it.

mod pnp;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haloscope::denoise::{Denoiser, NetworkDenoiser, NoiseLevel, denoiser_fn};
use haloscope::distribute::{agree, distribute_with};
use haloscope::forecast::{Denoising, PriorWork, Workload};
use haloscope::solve::ProximalGradient;
use haloscope::tiling::{ShardPlan, Strategy, Tiles, Tiling};
use haloscope::{Array, Error};
use haloscope_comm::{Collectives, Context, ContextOptions};
use haloscope_nn::engine::{EngineOptions, Faces, Halo, Round};
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

/// Denoises on ranks, and returns the first rank's image and the bytes that each rank has sent.
fn on_ranks(ranks: usize, model: &Model, noisy: &Array, level: &NoiseLevel) -> (Array, Vec<u64>) {
    let (model, noisy, level) = (model.clone(), noisy.clone(), level.clone());
    let results = Context::threads(ranks, move |ctx| {
        let open = || NetworkDenoiser::new(model.clone(), EngineOptions::default());
        let denoiser = distribute_with(ctx.share("network", open)?, ctx, exact())?;
        let first = denoiser.denoise(&noisy, &level)?;
        let before = ctx.comm().statistics().total().bytes_sent;
        assert_eq!(denoiser.denoise(&noisy, &level)?, first, "a second image differs");
        Ok::<_, Error>((first, ctx.comm().statistics().total().bytes_sent - before))
    })
    .expect("no rank fails");
    let sent = results.iter().map(|(_, sent)| *sent).collect();
    assert!(results.iter().all(|(image, _)| *image == results[0].0), "ranks differ");
    (results.into_iter().next().expect("rank 0").0, sent)
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_the_untiled_network() {
    let dncnn = Dncnn { depth: 4, channels: 8, ..Dncnn::default() }.random(2).expect("valid");
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    let map = image(&[1, 1, 101, 203]) * 0.2;
    for (model, noisy, level) in [
        (small_drunet(3), image(&[1, 3, 203, 155]), 0.1.into()),
        (small_drunet(3), image(&[2, 3, 101, 203]), NoiseLevel::Map(map)),
        (dncnn, image(&[1, 3, 61, 50]), NoiseLevel::PerImage(vec![0.05])),
        // Channels one by one, and slices of a volume.
        (unet.clone(), image(&[1, 3, 60, 100]), 0.1.into()),
        (unet, image(&[1, 1, 5, 50, 52]), 0.1.into()),
        (Builtin::for_channels(3).model().expect("built in"), image(&[1, 3, 64, 70]), 0.1.into()),
    ] {
        let whole = NetworkDenoiser::new(model.clone(), EngineOptions::default()).expect("aligned");
        let whole = whole.denoise(&noisy, &level).expect("it runs");
        for ranks in [1, 2, 3, 5, 8] {
            let (result, _) = on_ranks(ranks, &model, &noisy, &level);
            let differing = result.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits());
            assert_eq!(differing.count(), 0, "{} on {ranks} ranks", model.network().name());
        }
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
            prior: PriorWork::Network(Denoising {
                denoiser: &denoiser,
                tiling: exact(),
                has_range: false,
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

/// A halo over ranks that fails after some rounds.
struct Mortal<'a> {
    ctx: &'a Context,
    shards: &'a ShardPlan,
    rounds: usize,
    die: &'a dyn Fn(),
}

impl Halo for Mortal<'_> {
    fn exchange(&mut self, round: &Round, faces: Faces<'_>) -> Result<(), String> {
        let Some(left) = self.rounds.checked_sub(1) else {
            (self.die)();
            return Err("the power is out".into());
        };
        self.rounds = left;
        let neighbour = |side| self.shards.neighbour(self.ctx.rank(), round.axis, side);
        let sent = faces.sent.into_iter().enumerate();
        let sends: Vec<(usize, &[f32])> = sent
            .filter(|(_, face)| !face.is_empty())
            .filter_map(|(side, face)| Some((neighbour(side)?, face)))
            .collect();
        let received = faces.received.into_iter().enumerate();
        let mut receives: Vec<(usize, &mut [f32])> = received
            .filter(|(_, face)| !face.is_empty())
            .filter_map(|(side, face)| Some((neighbour(side)?, face)))
            .collect();
        self.ctx.comm().exchange(&sends, &mut receives).map_err(|error| error.to_string())
    }
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
        let network = Arc::new(NetworkDenoiser::new(small_drunet(1), EngineOptions::default())?);
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
        let shards = ShardPlan::new(noisy.shape(), &network.grains(noisy.shape())?, RANKS)?;
        assert_eq!(shards.grid(), [RANKS, 1]);
        let shard = network.shard(noisy.shape(), &shards.region(1))?;
        assert!(rounds < shard.halo().rounds().len());
        // As the others do before they begin.
        agree(ctx, Ok(()))?;
        let mut halo = Mortal { ctx, shards: &shards, rounds, die: &die };
        shard.denoise(&shards.extract(&noisy, 1)?, &level, &mut halo, &mut |_, _| ()).map(drop)
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
