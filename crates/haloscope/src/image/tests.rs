use haloscope_comm::Context;
use haloscope_nn::engine::Grain;
use ndarray::IxDyn;

use super::*;
use crate::tiling::ShardPlan;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

fn array(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || (random.f32() - 0.5) * 10_f32.powi(random.i32(-6..6)))
}

/// Parts of any grid that may be cut at these steps.
fn space_of(ctx: &Context, shape: &[usize], steps: &[usize]) -> Result<Arc<Space>> {
    let grains: Vec<Grain> = steps.iter().map(|step| Grain { step: *step, last: 1 }).collect();
    Space::new(ctx, &ShardPlan::new(shape, &grains, ctx.size())?)
}

const CASES: [(&[usize], &[usize]); 5] = [
    (&[1, 3, 29, 45], &[1, 8]),
    (&[2, 1, 8, 70], &[1000, 16]),
    (&[1, 2, 37, 5], &[3, 8]),
    (&[1, 1, 5, 9, 17], &[1, 4, 8]),
    (&[1, 1, 3, 3], &[8, 8]),
];

fn numbers(a: &Image, b: &Image) -> Result<Vec<u64>> {
    let (low, high) = a.extremes()?;
    let sums = [a.dot(b)?, a.norm()?, a.distance(b)?, a.squared_norm()?];
    let ends = [f64::from(low), f64::from(high)];
    Ok(sums.iter().chain(&ends).map(|number| number.to_bits()).collect())
}

#[test]
fn sums_of_parts_have_the_bits_of_the_whole() {
    for (shape, steps) in CASES {
        let (a, b) = (array(shape, 1), array(shape, 2));
        let expected = numbers(&a.clone().into(), &b.clone().into()).expect("no ranks, no failure");
        for ranks in RANKS {
            let (a, b) = (a.clone(), b.clone());
            let found = Context::threads(ranks, move |ctx| {
                let space = space_of(ctx, shape, steps)?;
                numbers(&Image::cut(&space, &a)?, &Image::cut(&space, &b)?)
            });
            for found in found.expect("no rank fails") {
                assert_eq!(found, expected, "{shape:?} on {ranks} ranks");
            }
        }
    }
}

#[test]
fn parts_make_the_whole_and_are_changed_where_they_are() {
    for (shape, steps) in CASES {
        let (a, b) = (array(shape, 3), array(shape, 4));
        let mut expected = Image::from(a.clone());
        expected.add_scaled(0.3, &b.clone().into()).expect("one layout");
        expected.clamp(Some((-1.0, 1.0)));
        let expected = expected.whole().expect("replicated");
        for ranks in RANKS {
            let (a, b) = (a.clone(), b.clone());
            let found = Context::threads(ranks, move |ctx| {
                let space = space_of(ctx, shape, steps)?;
                let mut image = Image::cut(&space, &a)?;
                image.add_scaled(0.3, &Image::cut(&space, &b)?)?;
                image.clamp(Some((-1.0, 1.0)));
                assert_eq!(image.shape(), shape);
                assert!(image.whole().is_err());
                image.gather()
            });
            assert!(found.expect("no rank fails").iter().all(|found| found == expected));
        }
    }
}

#[test]
fn images_of_other_layouts_or_shapes_are_refused() {
    let whole = array(&[1, 1, 16, 16], 5);
    let error = Image::from(whole.clone()).dot(&array(&[1, 1, 16, 8], 5).into());
    assert!(error.expect_err("another shape").to_string().contains("[1, 1, 16, 8]"));
    let outcome = Context::threads(2, move |ctx| {
        let rows = Image::cut(&space_of(ctx, &[1, 1, 16, 16], &[8, 1000])?, &whole)?;
        let columns = Image::cut(&space_of(ctx, &[1, 1, 16, 16], &[1000, 8])?, &whole)?;
        let error = rows.clone().add_scaled(1.0, &columns).expect_err("other parts").to_string();
        assert!(error.contains("in shards"), "{error}");
        let error = rows.dot(&whole.clone().into()).expect_err("replicated").to_string();
        assert!(error.contains("replicated, of shape [1, 1, 16, 16]"), "{error}");
        let halves = [0..4, 4..16].map(|columns| vec![0..1, 0..1, 0..16, columns]).to_vec();
        let error =
            Space::of_regions(ctx, &[1, 1, 16, 16], halves).expect_err("cut at 4").to_string();
        assert!(error.contains("multiples of 8"), "{error}");
        Ok::<_, Error>(())
    });
    outcome.expect("no rank fails");
}

/// Windows with random margins, periodic and not, against the whole array.
#[test]
fn windows_show_what_other_ranks_have() {
    for (case, (shape, steps)) in CASES.into_iter().enumerate() {
        let whole = array(shape, 6);
        for ranks in RANKS {
            let whole = whole.clone();
            let outcome = Context::threads(ranks, move |ctx| {
                let space = space_of(ctx, shape, steps)?;
                let mut random = fastrand::Rng::with_seed((case * 10 + ranks) as u64);
                let mut needed = Vec::new();
                for is_periodic in [true, false] {
                    let window = |region: &Region| {
                        let reach = |(axis, range): (usize, &Range<usize>)| {
                            let (start, end) = (range.start as isize, range.end as isize);
                            let mut margin = || random.isize(0..2 * shape[axis] as isize);
                            if axis < 2 || range.is_empty() {
                                return start..end;
                            }
                            let (start, end) = (start - margin(), end + margin());
                            let side = shape[axis] as isize;
                            if is_periodic { start..end } else { start.max(0)..end.min(side) }
                        };
                        region.iter().enumerate().map(reach).collect()
                    };
                    let windows = space.regions().iter().map(window).collect();
                    needed.push(Needed { space: space.clone(), windows });
                }
                let part = Image::cut(&space, &whole)?;
                let before = ctx.comm().statistics().total().bytes_sent;
                let plan = WindowPlan::new(ctx, &needed);
                let windows = plan.gather(&[part.local(), part.local()])?;
                let sent = ctx.comm().statistics().total().bytes_sent - before;
                assert_eq!(sent, WindowPlan::bytes_sent(&needed, ctx.rank()));
                for (window, needed) in windows.iter().zip(&needed) {
                    let begin = &needed.windows[ctx.rank()];
                    for (at, value) in window.indexed_iter() {
                        let source: Vec<usize> = (0..shape.len())
                            .map(|axis| {
                                let place = begin[axis].start + at[axis] as isize;
                                place.rem_euclid(shape[axis] as isize) as usize
                            })
                            .collect();
                        assert_eq!(*value, whole[IxDyn(&source)], "{at:?}");
                    }
                }
                Ok::<_, Error>(())
            });
            outcome.expect("no rank fails");
        }
    }
}

/// As many elements as the array has are not the array if some are there twice.
#[test]
fn parts_that_overlap_or_leave_gaps_are_no_space() {
    let refused = Context::threads(2, |ctx| {
        let whole = [1, 1, 4, 8];
        let rows = |rows: Range<usize>| vec![0..1, 0..1, rows, 0..8];
        let error = |regions| Space::of_regions(ctx, &whole, regions).expect_err("refused");
        let found = [
            error(vec![rows(0..2), rows(1..3)]).to_string(),
            error(vec![rows(0..2), rows(4..6)]).to_string(),
            error(vec![rows(0..2), rows(2..3)]).to_string(),
            error(vec![rows(0..4)]).to_string(),
        ];
        Space::of_regions(ctx, &whole, vec![rows(0..1), rows(1..4)])?;
        Space::of_regions(ctx, &whole, vec![rows(0..4), rows(0..0)])?;
        Ok::<_, Error>(found)
    });
    let words = ["in two of them", "not within", "24 of its 32", "1 parts for 2 ranks"];
    for (found, words) in refused.expect("no rank fails")[0].iter().zip(words) {
        assert!(found.contains(words), "{found}");
    }
}
