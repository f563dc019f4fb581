//! Operators and denoisers over thread ranks give the bits of one rank, and fail together.

mod suite;

use std::sync::Arc;

use haloscope::denoise::{Denoiser, denoiser_fn};
use haloscope::distribute::{
    Assignment, Cutting, Dealing, DenoiserOptions, Factory, StackOptions, distribute,
    distribute_with,
};
use haloscope::physics::Physics;
use haloscope::tiling::{Strategy, Tiles, Tiling};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::Context;
use ndarray::Axis;
use suite::{Dense, noise};

#[test]
fn every_operation_has_the_same_bits_on_any_number_of_ranks() {
    let alone = suite::facts(&Context::solo()).expect("one rank");
    for ranks in [1, 2, 3, 5, 8] {
        let facts = Context::threads(ranks, suite::facts).expect("no rank fails");
        for (rank, facts) in facts.iter().enumerate() {
            assert_eq!(facts.len(), alone.len());
            for (fact, expected) in facts.iter().zip(&alone) {
                assert_eq!(fact, expected, "rank {rank} of {ranks}");
            }
        }
    }
}

/// Runs a body that must fail on 1, 2 and 3 ranks, and returns what the ranks say.
fn failures<F>(body: F) -> Vec<String>
where
    F: Fn(&Context) -> Result<()> + Clone + Send + Sync + 'static,
{
    let mut messages = Vec::new();
    for ranks in [1, 2, 3] {
        let body = body.clone();
        // Each rank reports its own error, instead of the first for all.
        let all = Context::threads(ranks, move |ctx| {
            Ok::<_, Error>(body(ctx).expect_err("bad input").to_string())
        });
        messages.extend(all.expect("no rank hangs or leaves"));
    }
    messages
}

fn assert_all_say(messages: &[String], words: &str) {
    assert!(messages.iter().all(|message| message.contains(words)), "{messages:?}");
}

#[test]
fn an_empty_list_is_refused() {
    assert_all_say(
        &failures(|ctx| distribute(Vec::<Arc<dyn Physics>>::new(), ctx).map(drop)),
        "there are no operators",
    );
    let none = |ctx: &Context| {
        distribute(Factory::new(0, |_, _, _| Err(Error::argument("never", "called"))), ctx)
            .map(drop)
    };
    assert_all_say(&failures(none), "there are no operators");
}

#[test]
fn a_factory_that_fails_on_one_rank_fails_on_all() {
    let messages = failures(|ctx| {
        let factory = Factory::new(3, |index, _, _| match index {
            1 => Err(Error::argument("blur", "kernel 1 is empty")),
            _ => Ok(Dense::operator(index, &[1, 4])),
        });
        distribute(factory, ctx).map(drop)
    });
    assert_all_say(&messages, "kernel 1 is empty");
}

#[test]
fn operators_for_images_of_different_shapes_are_refused() {
    let messages = failures(|ctx| {
        distribute(vec![Dense::operator(0, &[1, 4]), Dense::operator(1, &[1, 5])], ctx).map(drop)
    });
    assert_all_say(&messages, "the image of operator 1 has shape [1, 5]");
}

#[test]
fn images_and_measurements_that_do_not_fit_are_refused() {
    let stack = |ctx: &Context| {
        distribute((0..3).map(|i| Dense::operator(i, &[1, 4])).collect::<Vec<_>>(), ctx)
    };
    let messages = failures(move |ctx| stack(ctx)?.forward(&noise(&[1, 1, 5], 0)).map(drop));
    assert_all_say(&messages, "a batch of [1, 4] is expected");
    let messages = failures(move |ctx| {
        stack(ctx)?.adjoint(&Measurements::new(vec![noise(&[1, 1, 3], 0); 2])).map(drop)
    });
    assert_all_say(&messages, "2 measurements for 3 operators");
    // One operator's measurement is wrong: only its owner can see that.
    let messages = failures(move |ctx| {
        let stack = stack(ctx)?;
        let y = stack.forward(&noise(&[1, 1, 4], 0))?;
        let wrong = y.map(|index, part| match index {
            1 => Ok(noise(&[1, 1, 9], 0)),
            _ => Ok(part.clone()),
        })?;
        stack.adjoint(&wrong).map(drop)
    });
    assert_all_say(&messages, "the measurement of dense has shape [1, 1, 9]");
    // And here it is missing.
    let messages = failures(move |ctx| {
        let stack = stack(ctx)?;
        let some = Measurements::partial(3, [(0, noise(&[1, 1, 3], 0))])?;
        stack.adjoint(&some).map(drop)
    });
    assert!(
        messages.iter().all(|message| message.contains("is not on the rank that owns it")),
        "{messages:?}"
    );
}

#[test]
fn bad_assignments_say_what_would_be_accepted() {
    let with = |assignment: Assignment| {
        failures(move |ctx| {
            let options =
                StackOptions { assignment: assignment.clone(), ..StackOptions::default() };
            distribute_with(vec![Dense::operator(0, &[1, 4])], ctx, options).map(drop)
        })
    };
    assert_all_say(&with(Assignment::Owners(vec![7])), "rank 7 as an owner");
    assert_all_say(&with(Assignment::Owners(vec![])), "0 owners for 1 operator");
    assert_all_say(&with(Assignment::Costs(vec![1.0, 2.0])), "2 costs for 1 operator");
    assert_all_say(&with(Assignment::Costs(vec![f64::NAN])), "NaN");
}

#[test]
fn a_denoiser_that_fails_on_one_tile_fails_on_all_ranks() {
    let messages = failures(|ctx| {
        let picky = denoiser_fn("picky", |image, _| {
            if image.iter().any(|value| *value > 0.5) {
                return Err(Error::argument("picky", "too bright"));
            }
            Ok(image.to_owned())
        });
        let tiling = Tiling { patch: 8.into(), ..Tiling::new(Strategy::Basic) };
        let mut image = Array::zeros(vec![1, 1, 32, 32]);
        image[[0, 0, 31, 31]] = 1.0;
        distribute_with(picky, ctx, tiling)?.denoise(&image, &0.1.into()).map(drop)
    });
    assert_all_say(&messages, "too bright");
}

#[test]
fn bad_tilings_and_levels_fail_on_all_ranks() {
    let copy = || denoiser_fn("copy", |image, _| Ok(image.to_owned()));
    let with = move |tiling: Tiling| {
        failures(move |ctx| {
            let options: DenoiserOptions = tiling.clone().into();
            let image = Array::zeros(vec![1, 1, 32, 32]);
            distribute_with(copy(), ctx, options)?.denoise(&image, &0.1.into()).map(drop)
        })
    };
    assert_all_say(&with(Tiling { patch: 0.into(), ..Tiling::default() }), "at least 1");
    assert_all_say(
        &with(Tiling { axes: Some(vec![5]), ..Tiling::default() }),
        "spatial axes 0 to 1",
    );
    let messages = failures(move |ctx| {
        let image = Array::zeros(vec![1, 1, 32, 32]);
        distribute(copy(), ctx)?.denoise(&image, &(-1.0).into()).map(drop)
    });
    assert_all_say(&messages, "not negative");
    let messages = failures(|ctx| {
        let shrink = denoiser_fn("shrink", |_, _| Ok(Array::zeros(vec![1, 1, 2, 2])));
        let image = Array::zeros(vec![1, 1, 32, 32]);
        distribute(shrink, ctx)?.denoise(&image, &0.1.into()).map(drop)
    });
    assert_all_say(&messages, "the result of shrink has shape [1, 1, 2, 2]");
}

/// The rows of an image, each a tile; what it contributes is its rows in reverse order.
#[derive(Debug)]
struct Rows([usize; 4]);

impl Tiles for Rows {
    fn count(&self) -> usize {
        self.0[2]
    }

    fn image_shape(&self) -> &[usize] {
        &self.0
    }

    fn extract(&self, image: &haloscope::View, tile: usize) -> Result<Array> {
        Ok(image.slice_axis(Axis(2), (tile..=tile).into()).to_owned())
    }

    fn finish(&self, result: Array, _tile: usize) -> Result<Array> {
        Ok(result)
    }

    fn part_len(&self, _tile: usize) -> usize {
        self.0[3]
    }

    fn place(&self, image: &mut [f32], part: &[f32], tile: usize) -> Result<()> {
        let [batch, channels, rows, columns] = self.0;
        for plane in 0..batch * channels {
            let to = (plane * rows + rows - 1 - tile) * columns;
            image[to..to + columns].copy_from_slice(&part[plane * columns..][..columns]);
        }
        Ok(())
    }

    /// The last rows are most of the work.
    fn cost(&self, tile: usize) -> f64 {
        (1 + tile) as f64
    }
}

#[test]
fn tiles_of_a_strategy_of_ones_own_are_shared_and_put_together() {
    let shape = [2, 3, 11, 7];
    for ranks in [1, 2, 3, 5, 8, 16] {
        let results = Context::threads(ranks, move |ctx| {
            let double = denoiser_fn("double", |image, _| Ok(image * 2.0));
            let cutting = Cutting::Custom(Arc::new(Rows(shape)), 4);
            let options = DenoiserOptions { cutting, dealing: Dealing::Blocks };
            let denoiser = distribute_with(double, ctx, options)?;
            let image = noise(&shape, 3);
            let own = denoiser.denoise_local(&image, &0.1.into())?.parts.len();
            Ok::<_, Error>((own, denoiser.denoise(&image, &0.1.into())?))
        });
        let results = results.expect("no rank fails");
        let mut expected = noise(&shape, 3) * 2.0;
        expected.invert_axis(Axis(2));
        assert!(results.iter().all(|(_, result)| *result == expected), "{ranks} ranks");
        let tiles: Vec<usize> = results.iter().map(|(own, _)| *own).collect();
        assert_eq!(tiles.iter().sum::<usize>(), 11, "{tiles:?}");
        assert!(ranks == 1 || tiles[0] > tiles[ranks - 1], "{tiles:?}");
    }
}

#[test]
fn the_denoiser_moves_half_of_what_an_all_reduce_would() {
    for (ranks, shape) in [
        (2, [1, 3, 256, 192]),
        (3, [1, 3, 256, 192]),
        (4, [1, 3, 256, 192]),
        (4, [1, 3, 2048, 2048]),
    ] {
        let bytes = 4 * shape.iter().product::<usize>() as u64;
        let sent = Context::threads(ranks, move |ctx| {
            let copy = denoiser_fn("copy", |image, _| Ok(image.to_owned()));
            let tiling =
                Tiling { patch: 64.into(), overlap: 16.into(), ..Tiling::new(Strategy::Overlap) };
            let denoiser = distribute_with(copy, ctx, tiling)?;
            let image = noise(&shape, 1);
            denoiser.denoise(&image, &0.1.into())?;
            ctx.comm().reset_statistics();
            denoiser.denoise(&image, &0.1.into())?;
            Ok::<_, Error>(ctx.comm().statistics().total())
        });
        let sent = sent.expect("no rank fails");
        let received: u64 = sent.iter().map(|cost| cost.bytes_received).sum();
        // Each rank receives the pixels that it has not computed, and a byte of agreement.
        let n = ranks as u64;
        assert_eq!(received, bytes * (n - 1) + n * (n - 1), "{ranks} ranks");
        let all_reduce = 2 * bytes * (n - 1);
        assert!(
            2 * received <= all_reduce + all_reduce / 100,
            "{ranks} ranks: {received} of {all_reduce}"
        );
    }
}

#[test]
fn sums_over_operators_move_what_the_documentation_says() {
    let shape = [1, 64, 96];
    let bytes = 4 * shape.iter().product::<usize>() as u64;
    for ranks in [2_usize, 3, 4] {
        let costs = Context::threads(ranks, move |ctx| {
            let operators: Vec<Arc<dyn Physics>> = (0..5)
                .map(|_| Arc::new(haloscope::physics::Identity::new(&shape)) as Arc<dyn Physics>)
                .collect();
            let stack = distribute(operators, ctx)?;
            let y = stack.forward_terms(&noise(&[1, 1, 64, 96], 1))?.into_local()?;
            ctx.comm().reset_statistics();
            stack.adjoint(&y)?;
            Ok::<_, Error>((stack.local_indices().len() as u64, ctx.comm().statistics().total()))
        });
        for (own, cost) in costs.expect("no rank fails") {
            let n = ranks as u64;
            let most = bytes * (n - 1) / n * own + bytes * (n - 1) / n;
            // Agreement and the indices of the terms come on top.
            assert!(
                cost.bytes_sent <= most + 64 * n * n,
                "{ranks} ranks: {} of {most}",
                cost.bytes_sent
            );
            assert!(
                cost.bytes_sent + 64 * n * n >= most,
                "{ranks} ranks: {} of {most}",
                cost.bytes_sent
            );
        }
    }
}

#[test]
fn ranks_know_their_part_of_the_work() {
    let image = [1, 3, 32, 32];
    for (ranks, first) in [(1, 4), (2, 2), (3, 2), (5, 1)] {
        let works = Context::threads(ranks, move |ctx| {
            let same = denoiser_fn("same", |image, _| Ok(image.to_owned()));
            let tiling =
                Tiling { patch: 16.into(), overlap: 4.into(), ..Tiling::new(Strategy::Overlap) };
            Arc::new(distribute_with(same, ctx, tiling)?).work(&image)
        });
        let works = works.expect("no rank fails");
        // Four tiles that keep 16² of the 20² that they see, as they need no overlap at the edges.
        assert_eq!(works.iter().map(|work| work.computed).sum::<u64>(), 4 * 20 * 20);
        assert_eq!(works.iter().map(|work| work.kept).sum::<u64>(), 32 * 32);
        assert_eq!(works[0].computed, first * 20 * 20);
    }
    let alone = denoiser_fn("same", |image, _| Ok(image.to_owned())).work(&image);
    assert_eq!(alone.expect("all of it").computed, 32 * 32);
}
