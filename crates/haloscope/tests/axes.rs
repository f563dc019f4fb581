//! A denoiser of pictures along all axes of a volume: what it computes, its bits on ranks, its forecast, and what it refuses.

use haloscope::denoise::{Averaged, Axes, Denoiser, NetworkDenoiser, NoiseLevel};
use haloscope::distribute::distribute_with;
use haloscope::forecast::{Denoising, Forecast, PriorWork, Workload};
use haloscope::image::{Image, Space};
use haloscope::tiling::{ShardPlan, Strategy, Tiling};
use haloscope::{Array, Error};
use haloscope_comm::Context;
use haloscope_nn::engine::{EngineOptions, Grain};
use haloscope_nn::models::{Architecture, Drunet, Model};
use ndarray::{ArrayD, Axis, IxDyn};

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    ArrayD::from_shape_simple_fn(IxDyn(shape), || random.f32())
}

fn model(rank: usize) -> Model {
    let options = Drunet {
        rank,
        image_channels: 1,
        output_channels: 1,
        channels: [4, 4, 8, 8],
        blocks: 1,
        ..Drunet::default()
    };
    options.random(1).expect("valid")
}

fn network(rank: usize) -> NetworkDenoiser {
    NetworkDenoiser::new(model(rank), EngineOptions::default()).expect("aligned")
}

#[test]
fn it_is_the_mean_of_the_pictures_along_each_axis() {
    let (volume, map) = (random(&[2, 1, 9, 16, 21], 1), random(&[2, 1, 9, 16, 21], 2) * 0.2);
    let result =
        Averaged::new(network(2), Axes::All).denoise(&volume, &NoiseLevel::Map(map.clone()));
    let (result, network) = (result.expect("a volume"), network(2));
    let mut mean = ArrayD::<f64>::zeros(volume.raw_dim());
    for axis in [2, 3, 4].map(Axis) {
        for at in 0..volume.len_of(axis) {
            let picture = |volume: &Array| volume.index_axis(axis, at).to_owned();
            let level = NoiseLevel::Map(picture(&map));
            let denoised = network.denoise(&picture(&volume), &level).expect("a picture");
            let mut slice = mean.index_axis_mut(axis, at);
            slice += &denoised.mapv(|value| f64::from(value) / 3.0);
        }
    }
    let pairs = result.iter().zip(&mean);
    let difference = pairs.map(|(a, b)| (f64::from(*a) - b).abs()).fold(0.0, f64::max);
    let largest = mean.iter().fold(0.0_f64, |most, value| most.max(value.abs()));
    assert!(difference < 1e-6 * largest, "{difference} of {largest}");
}

/// One rank's network along all axes, without tiles, and the same on ranks in tiles or exact parts.
#[test]
fn bits_are_those_of_one_rank_on_any_number() {
    let volume = random(&[1, 1, 11, 24, 17], 3);
    let tiles = Tiling { patch: 16.into(), overlap: 4.into(), ..Tiling::new(Strategy::Overlap) };
    for tiling in [Tiling::new(Strategy::Exact), tiles, Tiling::default()] {
        let mut first: Option<Array> = None;
        for ranks in [1, 2, 3, 5, 8] {
            let (volume, tiling) = (volume.clone(), tiling.clone());
            let results = Context::threads(ranks, move |ctx| {
                let shared = ctx.share("network", || Ok::<_, Error>(network(2)))?;
                let dealt = distribute_with(shared, ctx, tiling.clone())?;
                Averaged::new(dealt, Axes::All).denoise(&volume, &0.1.into())
            });
            let results = results.expect("no rank fails");
            let first = first.get_or_insert_with(|| results[0].clone());
            for result in &results {
                let differing =
                    first.iter().zip(result).filter(|(a, b)| a.to_bits() != b.to_bits());
                assert_eq!(differing.count(), 0, "{ranks} ranks");
            }
        }
        if tiling.strategy == Strategy::Exact {
            let whole = Averaged::new(network(2), Axes::All)
                .denoise(&volume, &0.1.into())
                .expect("a volume");
            assert_eq!(first, Some(whole));
        }
    }
}

fn forecast(image: &[usize], ranks: usize, tiling: &Tiling, axes: Axes) -> Forecast {
    let denoiser = network(2);
    let job = Workload {
        image: image.to_vec(),
        measurements: vec![image[1..].to_vec(); ranks],
        ranks,
        method: "pgd".parse().expect("a method"),
        inner_iterations: 0,
        subsets: 1,
        prior: PriorWork::Network(Denoising {
            denoiser: &denoiser,
            tiling: tiling.clone(),
            has_range: false,
            axes,
        }),
    };
    job.forecast().expect("a forecast")
}

#[test]
fn messages_are_foretold_to_the_byte_and_work_and_memory_are_counted() {
    let image = [1, 1, 11, 24, 17];
    let tiles = Tiling { patch: 16.into(), overlap: 4.into(), ..Tiling::new(Strategy::Overlap) };
    for tiling in [Tiling::new(Strategy::Exact), tiles] {
        for ranks in [1, 2, 3, 5] {
            let [axial, all] =
                [Axes::Axial, Axes::All].map(|axes| forecast(&image, ranks, &tiling, axes));
            let shared = tiling.clone();
            let sent = Context::threads(ranks, move |ctx| {
                let shared = distribute_with(network(2), ctx, shared.clone())?;
                let bytes = |denoiser: &dyn Denoiser| {
                    ctx.comm().reset_statistics();
                    denoiser.denoise(&random(&image, 4), &0.1.into())?;
                    Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
                };
                let axial = bytes(&shared)?;
                Ok::<_, Error>(bytes(&Averaged::new(shared, Axes::All))? - axial)
            });
            let more = all.ranks.iter().zip(&axial.ranks).map(|(a, b)| a.bytes_sent - b.bytes_sent);
            assert_eq!(more.collect::<Vec<_>>(), sent.expect("no rank fails"), "{ranks} ranks");
            // A turned volume, and the sum so far.
            let arrays = 2 * 4 * image.iter().product::<usize>();
            assert!(all.largest_memory() >= axial.largest_memory() + arrays);
            assert!((1.5..6.0).contains(&(all.flops / axial.flops)), "{ranks} ranks");
        }
    }
    let cube = [1, 1, 16, 16, 16];
    let exact = Tiling::new(Strategy::Exact);
    let [axial, all] = [Axes::Axial, Axes::All].map(|axes| forecast(&cube, 2, &exact, axes));
    assert_eq!((all.flops, all.largest_load()), (3.0 * axial.flops, 3.0 * axial.largest_load()));
    let memory =
        Averaged::new(network(2), Axes::All).memory(&cube).expect("planned").expect("known");
    assert_eq!(memory, network(2).memory(&cube).expect("planned").expect("known") + 2 * 4 * 4096);
}

#[test]
fn pictures_networks_of_volumes_and_shards_are_refused() {
    let refused = |denoiser: &dyn Denoiser, image: &[usize], words: &str| {
        let error = Axes::All.check(denoiser, image).expect_err(words).to_string();
        assert!(error.contains(words) && error.contains("axial"), "{error}");
        assert!(Axes::Axial.check(denoiser, image).is_ok());
    };
    refused(&network(2), &[1, 1, 8, 8], "2 sides");
    refused(&network(3), &[1, 1, 8, 8, 8], "sees volumes as a whole");
    assert!(Axes::All.check(&network(2), &[1, 1, 8, 8, 8]).is_ok());
    let error =
        Averaged::new(network(2), Axes::All).denoise(&random(&[1, 1, 8, 8], 1), &0.1.into());
    assert!(error.expect_err("a picture").to_string().contains("depth, height, width"));
    let errors = Context::threads(2, |ctx| {
        let shape = [1, 1, 8, 8, 8];
        let plan = ShardPlan::new(&shape, &[Grain { step: 1, last: 1 }; 3], ctx.size())?;
        let image = Image::cut(&Space::new(ctx, &plan)?, &random(&shape, 1))?;
        let denoised = Averaged::new(network(2), Axes::All).denoise_image(&image, &0.1.into());
        Ok::<_, Error>(denoised.expect_err("shards").to_string())
    });
    let errors = errors.expect("no rank fails");
    assert!(errors.iter().all(|error| error.contains("replicate the image")), "{errors:?}");
}
