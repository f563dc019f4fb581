//! Forecasts of messages are held against runs, to the byte. Those of memory are in `forecast_memory.rs`.

mod pnp;

use haloscope::denoise::{Axes, Denoiser, TotalVariation};
use haloscope::distribute::DistributedTotalVariation;
use haloscope::forecast::{Denoising, Forecast, PriorWork, Workload};
use haloscope::solve::{ConjugateGradient, METHODS};
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Error};
use haloscope_comm::Context;
use pnp::Small;

fn forecast(small: &Small, ranks: usize) -> Forecast {
    let denoiser = small.denoiser().expect("a network");
    let shape = vec![3, small.side, small.side];
    let job = Workload {
        image: [&[1], &shape[..]].concat(),
        measurements: vec![shape; small.operators],
        ranks,
        method: small.method,
        inner_iterations: small.inner_iterations,
        subsets: small.method.subsets(None, small.operators),
        prior: match small.method {
            method if method.takes_no_prior() => PriorWork::None,
            method if method.takes_network() && small.has_network => {
                PriorWork::Network(Denoising {
                    denoiser: &denoiser,
                    tiling: small.tiling.clone(),
                    has_range: small.clamp.is_some(),
                    axes: Axes::Axial,
                })
            }
            _ => PriorWork::TotalVariation {
                denoiser: TotalVariation::default(),
                has_range: small.clamp.is_some(),
            },
        },
    };
    job.forecast().expect("a forecast")
}

/// The bytes that each rank sends in these iterations.
fn sent(small: &Small, ranks: usize, iterations: usize) -> Vec<u64> {
    let job = small.clone();
    Context::threads(ranks, move |ctx| {
        job.run(ctx, iterations)?;
        Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
    })
    .expect("no rank fails")
}

#[test]
fn messages_are_foretold_to_the_byte() {
    let small = Small::default();
    let tiny = Small { side: 24, operators: 2, ..small.clone() };
    let whole = Small {
        tiling: Tiling { patch: 64.into(), ..Tiling::new(Strategy::Overlap) },
        ..small.clone()
    };
    for small in [small, tiny, whole] {
        for (ranks, iterations) in [(1, 1), (2, 1), (3, 2), (5, 1)] {
            let foretold = forecast(&small, ranks);
            let foretold = foretold.ranks.iter().map(|share| share.bytes_sent * iterations as u64);
            assert_eq!(foretold.collect::<Vec<_>>(), sent(&small, ranks, iterations), "{small:?}");
        }
    }
}

#[test]
fn messages_of_every_method_are_foretold_or_bounded() {
    let clamps = [None, Some((0.0, 1.0))];
    let methods = METHODS.iter().copied().filter(|method| !method.is_direct());
    for (method, clamp) in methods.flat_map(|method| clamps.map(|clamp| (method, clamp))) {
        let small = Small { method, clamp, ..Small::default() };
        // The first step of conjugate gradients has more to do than the others.
        let first =
            if method == ConjugateGradient::METHOD { sent(&small, 3, 1) } else { vec![0; 3] };
        let second = sent(&small, 3, 2);
        for (rank, share) in forecast(&small, 3).ranks.iter().enumerate() {
            let iterations = if first[rank] > 0 { 1 } else { 2 };
            let (foretold, sent) = (iterations * share.bytes_sent, second[rank] - first[rank]);
            let is_right = if method.has_prox() {
                (foretold / 2..=foretold).contains(&sent)
            } else {
                foretold == sent
            };
            assert!(is_right, "{method} on rank {rank}: {foretold} foretold, {sent} sent");
        }
    }
}

/// Many operators on few ranks are added up in rounds; total variation is shared. What it sends depends on when it stops.
#[test]
fn messages_of_many_operators_and_of_shared_total_variation_are_foretold() {
    for (operators, ranks) in [(7, 2), (7, 3), (8, 8), (2, 5)] {
        let small = Small { side: 32, operators, ..Small::default() };
        let foretold = forecast(&small, ranks).ranks.into_iter().map(|share| share.bytes_sent);
        assert_eq!(foretold.collect::<Vec<_>>(), sent(&small, ranks, 1), "{operators}, {ranks}");
    }
    for ranks in [1, 2, 3, 5] {
        let small = Small { side: 32, has_network: false, ..Small::default() };
        let foretold = forecast(&small, ranks);
        for (share, sent) in foretold.ranks.iter().zip(sent(&small, ranks, 1)) {
            assert!(sent <= share.bytes_sent, "{ranks} ranks: {sent} of {}", share.bytes_sent);
        }
        // A number of iterations that is reached.
        let job = |iterations: usize| TotalVariation { iterations, tolerance: 0.0 };
        for iterations in [0, 1, 2, 7] {
            let image = vec![2, 3, 9, 8];
            let foretold = |iterations: usize| {
                let job = Workload {
                    image: image.clone(),
                    measurements: vec![vec![3, 9, 8]; ranks],
                    ranks,
                    method: "pgd".parse().expect("a method"),
                    inner_iterations: 0,
                    subsets: 1,
                    prior: match iterations {
                        usize::MAX => PriorWork::None,
                        iterations => PriorWork::TotalVariation {
                            denoiser: job(iterations),
                            has_range: false,
                        },
                    },
                };
                let forecast = job.forecast().expect("a forecast");
                forecast.ranks.iter().map(|share| share.bytes_sent).collect::<Vec<_>>()
            };
            let shape = image.clone();
            let sent = Context::threads(ranks, move |ctx| {
                let denoiser = DistributedTotalVariation::new(job(iterations), ctx)?;
                let noisy = Array::from_shape_fn(shape.clone(), |at| (at[2] * at[3] % 3) as f32);
                ctx.comm().reset_statistics();
                denoiser.denoise(&noisy, &0.3.into())?;
                Ok::<_, Error>(ctx.comm().statistics().total().bytes_sent)
            });
            let without = foretold(usize::MAX);
            let more =
                foretold(iterations).iter().zip(&without).map(|(a, b)| a - b).collect::<Vec<_>>();
            assert_eq!(
                more,
                sent.expect("no rank fails"),
                "{ranks} ranks, {iterations} iterations"
            );
        }
    }
}
