//! Scans of volumes in slabs: what travels is what lies in the shadow of a slab and is not its own, the bits are those of one rank, and
//! a replicated volume differs by rounding.

use std::f64::consts::{PI, TAU};
use std::sync::Arc;

use haloscope::array::{distance, norm};
use haloscope::distribute::{ShardedStack, back_project_shards};
use haloscope::image::{Image, Space};
use haloscope::physics::tomography::{
    ConeBeam, Grouping, ParallelBeam3d, Tomography3d, Window, evenly_spaced,
};
use haloscope::physics::{Physics, Scaled, Stack};
use haloscope::tiling::{ShardPlan, Shards};
use haloscope::{Array, Error, Measurements, Result};
use haloscope_comm::Context;
use haloscope_nn::engine::Grain;

const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

/// How a volume is scanned.
type Scan = fn() -> Result<Tomography3d>;

fn random(shape: &[usize], seed: u64) -> Array {
    let mut random = fastrand::Rng::with_seed(seed);
    Array::from_shape_simple_fn(shape, || random.f32() - 0.3)
}

/// Slabs of at least two planes, and more where they are few; blocks in a grid that is given.
fn plan(image: &[usize], shards: &Shards, ranks: usize) -> Result<ShardPlan> {
    let grain = |step| Grain { step, last: 1 };
    ShardPlan::with_shards(image, &[grain(2), grain(6), grain(8)], shards, ranks)
}

/// Rows of the detector are the planes of the volume.
fn parallel(depth: usize, width: usize) -> Result<Tomography3d> {
    let beam = ParallelBeam3d::new(evenly_spaced(5, PI), [depth, width + 4]);
    Tomography3d::new(&[1, depth, 12, width], beam)?.scaled(0.1)
}

/// The cone of the design: the source at three times the side of the volume, the detector at one and a half behind it.
fn cone(side: usize) -> Result<Tomography3d> {
    let (far, rows) = (3.0 * side as f64, 3 * side / 2 + 4);
    let beam = ConeBeam::new(evenly_spaced(6, TAU), [rows, rows], far, far / 2.0);
    Tomography3d::new(&[1, side, side, side], beam)?.scaled(0.1)
}

/// `AᵀA x`, a forward, and the bytes that this rank sent for them and should have.
fn normal(
    ctx: &Context,
    operators: Vec<Arc<dyn Physics>>,
    plan: &ShardPlan,
    image: &Array,
) -> Result<(Array, Vec<Array>, [u64; 2])> {
    let space = Space::new(ctx, plan)?;
    let foretold = ShardedStack::messages(&operators, plan, ctx.size())?[ctx.rank()];
    let physics = ShardedStack::new(Stack::new(operators)?, &space)?;
    let part = Image::cut(&space, image)?;
    let before = ctx.comm().statistics().total().bytes_sent;
    let measured = physics.forward(&part)?;
    let result = physics.adjoint(&measured)?;
    let sent = ctx.comm().statistics().total().bytes_sent - before;
    assert_eq!(sent, foretold.forward + foretold.adjoint);
    let whole = |(index, part): (usize, &Array)| {
        Image::sharded(&physics.measured()[index], part.clone())?.gather()
    };
    let measured = measured.iter().map(whole).collect::<Result<_>>()?;
    Ok((result.gather()?, measured, [foretold.forward, foretold.adjoint]))
}

fn near(found: &Array, expected: &Array, what: &str) {
    let values = |array: &Array| array.iter().copied().collect::<Vec<f32>>();
    let (found, expected) = (values(found), values(expected));
    let apart = distance(&found, &expected) / norm(&expected);
    assert!(apart <= 1e-6, "{what}: {apart:e}");
}

/// The bits on all ranks, in slabs and in blocks, and what each rank sends.
fn compare(
    name: &str,
    operators: impl Fn() -> Result<Vec<Arc<dyn Physics>>> + Clone + Send + Sync + 'static,
    grids: &[(usize, Shards)],
) -> Vec<Vec<[u64; 2]>> {
    let stack = operators().and_then(Stack::new).expect("operators");
    let image = random(&[&[2], stack.image_shape()].concat(), 1);
    let measured = stack.forward(&image).expect("a forward");
    let expected = stack.normal(&image).expect("a normal");
    let mut first: Option<(Array, Vec<Array>)> = None;
    let mut bytes = Vec::new();
    for (ranks, shards) in grids {
        let (ranks, shards) = (*ranks, shards.clone());
        let (operators, image) = (operators.clone(), image.clone());
        let found = Context::threads(ranks, move |ctx| {
            normal(ctx, operators()?, &plan(image.shape(), &shards, ranks)?, &image)
        });
        let found = found.expect("no rank fails");
        for (normal, measured, _) in &found {
            let (one, views) = first.get_or_insert_with(|| (normal.clone(), measured.clone()));
            assert!(normal == one && measured == views, "{name}: other bits on {ranks} ranks");
        }
        bytes.push(found.into_iter().map(|(.., bytes)| bytes).collect());
    }
    let (found, views) = first.expect("some ranks");
    near(&found, &expected, name);
    for ((_, expected), found) in measured.iter().zip(&views) {
        near(found, expected, name);
    }
    bytes
}

fn auto() -> Vec<(usize, Shards)> {
    RANKS.map(|ranks| (ranks, Shards::Auto)).to_vec()
}

#[test]
fn nothing_travels_where_rows_are_planes() {
    let groups = |depth, width| {
        move || -> Result<Vec<Arc<dyn Physics>>> {
            let groups = parallel(depth, width)?.split(2, Grouping::Interleaved)?;
            let scaled =
                |group| Ok(Arc::new(Scaled::new(2.0, Arc::new(group))?) as Arc<dyn Physics>);
            groups.into_iter().map(scaled).collect()
        }
    };
    let small = compare("planes", groups(16, 16), &auto());
    // The same on a larger volume: only agreements are left, which have no size.
    let large = compare("larger planes", groups(16, 32), &auto());
    assert_eq!(small, large);
    assert!(small.iter().flatten().flatten().all(|bytes| *bytes < 1000), "{small:?}");
    // Blocks beside each other share the rows of their slab, and slabs still do not.
    let grids = [(4, Shards::Grid(vec![2, 2, 1])), (8, Shards::Grid(vec![2, 2, 2]))];
    let blocks = compare("blocks", groups(16, 16), &grids);
    assert!(blocks.iter().flatten().all(|[forward, adjoint]| *forward > 1000 && *adjoint > 500));
}

#[test]
fn slabs_of_cone_beams_send_what_lies_in_the_shadow_of_others() {
    let operators = || Ok(vec![Arc::new(cone(16)?) as Arc<dyn Physics>]);
    let mut grids = auto();
    grids.push((4, Shards::Grid(vec![2, 1, 2])));
    compare("cones", operators, &grids);
    // At the sizes of the design, as far as they may be planned without the volume.
    let operators: Vec<Arc<dyn Physics>> = vec![Arc::new(cone(512).expect("a scan"))];
    let grain = |step| Grain { step, last: 1 };
    let shape = [1, 1, 512, 512, 512];
    let plan = ShardPlan::new(&shape, &[grain(32), grain(512), grain(512)], 16).expect("slabs");
    let traffic = ShardedStack::messages(&operators, &plan, 16).expect("it can be cut");
    let samples: usize = operators[0].measurement_shape().iter().product();
    let dealt = |bytes: f64| bytes * samples as f64 * 15.0 / 16.0;
    let most = |of: fn(&haloscope::distribute::RankTraffic) -> u64| {
        traffic.iter().map(of).max().expect("16 ranks") as f64
    };
    let (forward, adjoint) = (most(|it| it.forward), most(|it| it.adjoint));
    assert!(3.0 * forward < dealt(8.0), "{forward} of {}", dealt(8.0));
    assert!(2.0 * adjoint < dealt(4.0), "{adjoint} of {}", dealt(4.0));
    assert!(traffic.iter().all(|it| 3 * it.gathered < samples));
    assert_eq!(traffic.iter().map(|it| it.values).sum::<usize>(), samples);
}

#[test]
fn back_projections_of_slabs_have_the_bits_of_a_volume_and_send_rows_that_are_read() {
    let scans: [(&str, Scan); 2] = [("planes", || parallel(16, 16)), ("cones", || cone(16))];
    for (name, scan) in scans {
        let whole = scan().expect("a scan");
        let views = random(&[&[2], whole.measurement_shape()].concat(), 2);
        let expected = whole.filtered_back_projection(&views, Window::Hann).expect("a volume");
        let (mut grids, shape) = (auto(), [&[2], whole.image_shape()].concat());
        grids.push((4, Shards::Grid(vec![2, 2, 1])));
        for (ranks, shards) in grids {
            let is_slabs = shards == Shards::Auto;
            // To gather all views would take this much from a rank with an even share.
            let all = 4 * views.len() as u64 * (ranks as u64 - 1) / ranks as u64;
            let (views, shape) = (views.clone(), shape.clone());
            let found = Context::threads(ranks, move |ctx| {
                let groups = scan()?.split(3, Grouping::Interleaved)?;
                let groups = groups.into_iter().map(|group| Arc::new(group) as Arc<dyn Physics>);
                let space = Space::new(ctx, &plan(&shape, &shards, ranks)?)?;
                let physics = ShardedStack::new(Stack::new(groups.collect())?, &space)?;
                let own = (0..3).map(|group| {
                    let of_group: Vec<usize> = (group..views.shape()[2]).step_by(3).collect();
                    let all = views.select(ndarray::Axis(2), &of_group);
                    let part = Image::cut(&physics.measured()[group], &all)?;
                    Ok((group, part.into_local()))
                });
                let own = own.collect::<Result<Vec<_>>>()?;
                let data = Measurements::partial(3, own)?;
                let before = ctx.comm().statistics().total().bytes_sent;
                let part =
                    back_project_shards(&physics, &scan()?.back_projection(Window::Hann)?, &data)?;
                let sent = ctx.comm().statistics().total().bytes_sent - before;
                Ok::<_, Error>((part.gather()?, sent))
            });
            let found = found.expect("no rank fails");
            assert!(found.iter().all(|(volume, _)| *volume == expected), "{name}, {ranks} ranks");
            let most = found.iter().map(|(_, sent)| *sent).max().unwrap_or(0);
            match (name, is_slabs && ranks > 1) {
                (_, false) => (),
                ("planes", _) => assert!(most < 1000, "{most} on {ranks} ranks"),
                _ => assert!(most < all, "{most} of {all} on {ranks} ranks"),
            }
        }
    }
}
