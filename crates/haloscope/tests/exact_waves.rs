//! Exact denoising in bounded memory: networks that run in waves on parts of an image, which ranks have in columns, give the bits of
//! the untiled network, send what was foretold and hold what was foretold.

mod pnp;

use std::sync::Arc;

use haloscope::denoise::{Axes, Denoiser, NetworkDenoiser, NoiseLevel, Pass};
use haloscope::distribute::{ShardedNetwork, distribute, distribute_with};
use haloscope::forecast::{Denoising, Forecast, PriorWork, Workload};
use haloscope::image::{Image, Space};
use haloscope::solve::ProximalGradient;
use haloscope::tiling::{ShardPlan, Shards, Strategy, Tiles, Tiling};
use haloscope::{Array, Error, Result};
use haloscope_comm::{Context, Trace};
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::{Architecture, Dncnn, Drunet, Model, Unet};
use ndarray::{ArrayD, IxDyn};
use pnp::Small;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn image(shape: &[usize]) -> Array {
    let mut random = fastrand::Rng::with_seed(3);
    ArrayD::from_shape_simple_fn(IxDyn(shape), || random.f32())
}

fn open(model: &Model, memory_budget: Option<usize>) -> Result<NetworkDenoiser> {
    let options = EngineOptions { memory_budget, ..EngineOptions::default() };
    NetworkDenoiser::new(model.clone(), options)
}

fn drunet() -> Model {
    let drunet = Drunet { channels: [8, 12, 16, 24], blocks: 1, ..Drunet::default() };
    drunet.random(1).expect("valid")
}

fn dncnn() -> Model {
    Dncnn { depth: 4, channels: 8, ..Dncnn::default() }.random(2).expect("valid")
}

/// The least budget that waves keep on so many ranks: the one that the refusal of a byte names, with a little room.
fn tight(model: &Model, shape: &[usize], ranks: usize) -> usize {
    let network = open(model, Some(1)).expect("aligned");
    let parts = network.cut(shape, &Shards::Auto, ranks).expect("zero padding");
    let error = network.pass(&parts).expect_err("a byte").to_string();
    let mut words = error.split(' ').skip_while(|&word| word != "least").skip(1);
    let least: usize = words.next().and_then(|word| word.parse().ok()).expect(&error);
    least + least / 50
}

/// The parts of a network within a budget, which has to run in waves.
fn in_waves(network: &NetworkDenoiser, shape: &[usize], ranks: usize) -> (ShardPlan, Pass) {
    let parts = network.cut(shape, &Shards::Auto, ranks).expect("it fits");
    let pass = network.pass(&parts).expect("it fits");
    let grid = parts.grid();
    assert!(pass.band().is_some(), "{shape:?} on {ranks} ranks, {grid:?}");
    assert_eq!(grid[grid.len() - 2], 1, "{grid:?}");
    (parts, pass)
}

#[test]
fn any_number_of_ranks_gives_the_bits_of_the_untiled_network_in_waves() {
    // The engine fills ghosts with NaN before each round: what was not received would show.
    const { assert!(cfg!(debug_assertions), "tests are built with assertions") };
    let unet = Unet { channels: vec![8, 12, 16], ..Unet::default() }.random(4).expect("valid");
    let map = image(&[1, 1, 903, 155]) * 0.2;
    let mut most_parts = 0;
    for (model, noisy, level) in [
        (drunet(), image(&[1, 3, 1001, 299]), 0.1.into()),
        (drunet(), image(&[1, 3, 903, 155]), NoiseLevel::Map(map)),
        (dncnn(), image(&[2, 3, 801, 203]), NoiseLevel::PerImage(vec![0.05, 0.1])),
        // Channels one by one, and slices of a volume.
        (unet.clone(), image(&[1, 2, 700, 150]), 0.1.into()),
        (unet, image(&[1, 1, 3, 500, 101]), 0.1.into()),
    ] {
        let whole = open(&model, None).and_then(|network| network.denoise(&noisy, &level));
        let whole = whole.expect("it runs");
        for ranks in RANKS {
            let budget = tight(&model, noisy.shape(), ranks);
            let network = open(&model, Some(budget)).expect("aligned");
            let (parts, pass) = in_waves(&network, noisy.shape(), ranks);
            most_parts = most_parts.max(parts.count());
            let taken = (0..parts.count())
                .map(|part| network.shard(&parts, part, pass).expect("it fits").memory().total());
            assert!(taken.max().expect("one part") <= budget, "{ranks} ranks");
            let (model, noisy, level) = (model.clone(), noisy.clone(), level.clone());
            let shape = noisy.shape().to_vec();
            let results = Context::threads(ranks, move |ctx| {
                let network = ctx.share("network", || open(&model, Some(budget)))?;
                distribute(network, ctx)?.denoise(&noisy, &level)
            });
            for result in results.expect("no rank fails") {
                let differing =
                    result.iter().zip(&whole).filter(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differing.count(), 0, "{shape:?} on {ranks} ranks");
            }
        }
    }
    assert!(most_parts >= 5, "at most {most_parts} parts");
}

#[test]
fn images_in_shards_have_the_bits_of_the_untiled_network_in_waves() {
    let (model, noisy) = (dncnn(), image(&[1, 3, 901, 203]));
    let whole = open(&model, None).and_then(|network| network.denoise(&noisy, &0.1.into()));
    let whole = whole.expect("it runs");
    for ranks in RANKS {
        let budget = tight(&model, noisy.shape(), ranks);
        let (model, noisy) = (model.clone(), noisy.clone());
        let results = Context::threads(ranks, move |ctx| {
            let network = Arc::new(open(&model, Some(budget))?);
            let (parts, _) = in_waves(&network, noisy.shape(), ranks);
            let space = Space::new(ctx, &parts)?;
            let denoiser = ShardedNetwork::new(network, &space)?;
            denoiser.denoise_image(&Image::cut(&space, &noisy)?, &0.1.into())?.gather()
        });
        for found in results.expect("no rank fails") {
            assert!(found == whole, "{ranks} ranks");
        }
    }
}

fn forecast(small: &Small, ranks: usize) -> Forecast {
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
            tiling: small.tiling.clone(),
            has_range: false,
            axes: Axes::Axial,
        }),
    };
    job.forecast().expect("a forecast")
}

#[test]
fn a_reconstruction_in_waves_sends_what_was_foretold_and_has_the_bits_of_one_at_once() {
    let free = Small { side: 400, tiling: Tiling::default(), ..Small::default() };
    let model = free.denoiser().expect("a network").model().clone();
    let mut bits: Option<Vec<u32>> = None;
    for ranks in RANKS {
        let budget = tight(&model, &[1, 3, 400, 400], ranks);
        for memory_budget in [None, Some(budget)] {
            let small = Small { memory_budget, ..free.clone() };
            let job = small.clone();
            let results = Context::threads(ranks, move |ctx| {
                let image = job.run(ctx, 2)?.state.image.into_local();
                Ok::<_, Error>((image, ctx.comm().statistics().total().bytes_sent))
            });
            let results = results.expect("no rank fails");
            let found: Vec<u32> = results[0].0.iter().map(|value| value.to_bits()).collect();
            assert!(*bits.get_or_insert_with(|| found.clone()) == found, "{ranks} ranks");
            let forecast = forecast(&small, ranks);
            assert_eq!(forecast.pass.band().is_some(), memory_budget.is_some(), "{ranks} ranks");
            let foretold = forecast.ranks.iter().map(|share| 2 * share.bytes_sent);
            let sent = results.iter().map(|(_, sent)| *sent);
            assert!(foretold.eq(sent), "{ranks} ranks, {memory_budget:?}");
        }
    }
}

#[test]
fn a_trace_has_every_exchange_of_every_wave() {
    const PARTS: usize = 3;
    let (model, noisy) = (dncnn(), image(&[1, 3, 600, 160]));
    let budget = tight(&model, noisy.shape(), PARTS);
    let network = open(&model, Some(budget)).expect("aligned");
    let (parts, pass) = in_waves(&network, noisy.shape(), PARTS);
    let foretold = network.exchanges(&parts, pass).expect("columns");
    let at_once = network.exchanges(&parts, Pass::AtOnce).expect("columns");
    let results = Context::threads(PARTS, move |ctx| {
        let traced = ctx.traced(Trace::new());
        let denoiser = distribute(open(&model, Some(budget))?, &traced)?;
        denoiser.denoise(&noisy, &0.1.into())?;
        Ok::<_, Error>(traced.trace().expect("it is traced").events())
    });
    for (rank, events) in results.expect("no rank fails").into_iter().enumerate() {
        let halos: Vec<_> = events.iter().filter(|event| event.name == "halo").collect();
        let bytes = |event: &&haloscope_comm::Event| {
            let of = |(name, value): &(&str, f64)| (*name == "bytes").then_some(*value as u64);
            event.details.iter().find_map(of)
        };
        let sent: u64 = halos.iter().filter_map(bytes).sum();
        let own = foretold[rank];
        assert_eq!((halos.len(), sent), (own.rounds, own.bytes_sent), "rank {rank}");
        // Each row travels once, as if all of them did at once.
        assert_eq!(own.bytes_sent, at_once[rank].bytes_sent, "rank {rank}");
        assert!(own.rounds > 3 * at_once[rank].rounds, "rank {rank}");
    }
}

#[test]
fn a_grid_or_a_budget_that_waves_cannot_have_is_refused_with_what_works() {
    let shape = [1, 3, 800, 200];
    let budget = tight(&dncnn(), &shape, 4);
    let errors = Context::threads(4, move |ctx| {
        let (model, noisy) = (dncnn(), image(&shape));
        let mut errors = Vec::new();
        for (grid, memory_budget) in [([2, 2], budget), ([1, 4], 1000), ([4, 1], budget)] {
            let shards = Shards::Grid(grid.to_vec());
            let tiling = Tiling { shards, ..Tiling::new(Strategy::Exact) };
            let denoiser = distribute_with(open(&model, Some(memory_budget))?, ctx, tiling)?;
            let error = denoiser.denoise(&noisy, &0.1.into()).expect_err("refused");
            errors.push(error.to_string());
        }
        // The same without a budget runs at once.
        let tiling = Tiling { shards: Shards::Grid(vec![2, 2]), ..Tiling::new(Strategy::Exact) };
        distribute_with(open(&model, None)?, ctx, tiling)?.denoise(&noisy, &0.1.into())?;
        Ok::<_, Error>(errors)
    });
    for errors in errors.expect("no rank fails") {
        assert!(errors[0].contains("a grid of [1, 4]"), "{errors:?}");
        assert!(errors[1].contains("at least") && errors[1].contains("more ranks"), "{errors:?}");
        assert!(errors[2].contains("[4, 1]") && errors[2].contains("[1, 4]"), "{errors:?}");
    }
}

#[test]
fn parts_of_large_images_run_in_waves_without_a_budget_and_small_ones_at_once() {
    let model = Drunet::default().random(1).expect("valid");
    let network = open(&model, None).expect("aligned");
    let pass = |side: usize, ranks| {
        let parts = network.cut(&[1, 3, side, side], &Shards::Auto, ranks).expect("it fits");
        (parts.grid(), network.pass(&parts).expect("no budget").band())
    };
    assert_eq!(pass(2048, 1), (vec![1, 1], None));
    assert_eq!(pass(8192, 64).1, None);
    let (grid, band) = pass(8192, 1);
    assert!(grid == [1, 1] && band.is_some_and(|band| band <= 192), "{band:?}");
    let (grid, band) = pass(8192, 4);
    assert!(grid == [1, 4] && band.is_some(), "{grid:?} {band:?}");
    // Threads do not matter, so that ranks agree that have other numbers of them.
    let options = EngineOptions { threads: 7, ..EngineOptions::default() };
    let other = NetworkDenoiser::new(model.clone(), options).expect("aligned");
    let parts = other.cut(&[1, 3, 8192, 8192], &Shards::Auto, 4).expect("it fits");
    assert_eq!((parts.grid(), other.pass(&parts).expect("no budget").band()), (grid, band));
}
