//! Volumes with `image = "sharded"` and networks of three dimensions: the bits of a replicated volume on any number of ranks, on slabs
//! and on blocks, and the bytes that the plan says.

mod layouts;

use haloscope::Result;
use haloscope::io::{self, WriteOptions};
use haloscope_job::{Job, JobBuilder};
use layouts::{RANKS, run, sharded};

fn simulated(sides: [i64; 3]) -> JobBuilder {
    Job::builder().measurements(|it| {
        it.set("phantom", "shepp-logan")
            .set("size", sides.to_vec())
            .set("noise", JobBuilder::keys().set("gaussian", 0.05))
            .set("seed", 3)
    })
}

fn with_network(job: JobBuilder, model: &str) -> JobBuilder {
    job.prior("network", |it| it.set("model", model))
        .solver("pgd", |it| it)
        .stop(|it| it.set("iterations", 2))
}

#[test]
fn networks_of_three_dimensions_have_the_bits_of_a_replicated_volume() {
    let denoising = |sides| simulated(sides).operator("identity", |it| it);
    let inpainting =
        simulated([10, 18, 24]).operator("inpainting", |it| it.set("missing", 0.4).set("seed", 2));
    for (name, job) in [
        ("drunet", with_network(denoising([35, 12, 20]), "random:drunet:8-12-16-24:1")),
        ("dncnn", with_network(inpainting, "random:dncnn:8:4")),
        // More ranks than slabs of the network's grain.
        ("unet", with_network(denoising([12, 20, 40]), "random:unet:8-12-16")),
    ] {
        let replicated = job.clone().build().expect("a job");
        let whole = run(&replicated, 1).remove(0);
        let job = sharded(job).build().expect("a job");
        for ranks in RANKS {
            let outcomes = run(&job, ranks);
            assert!(outcomes.iter().all(|one| one.bits == whole.bits), "{name}, {ranks} ranks");
            let parts: usize = outcomes.iter().map(|outcome| outcome.image().len()).sum();
            assert_eq!(parts, whole.image().len(), "{name}: each voxel is on one rank");
        }
        // Exact denoising of replicated volumes, too.
        assert_eq!(run(&replicated, 3)[0].bits, whole.bits, "{name}");
    }
}

#[test]
fn slabs_come_first_and_grids_may_be_given() {
    let job =
        with_network(simulated([32, 24, 24]).operator("identity", |it| it), "random:dncnn:8:4");
    let job = |grid: Option<Vec<i64>>| {
        let sharded = sharded(job.clone());
        let sharded = match grid {
            Some(grid) => sharded.edit("image", |it| it.set("shards", grid)),
            None => sharded,
        };
        sharded.build().expect("a job")
    };
    let slabs = run(&job(None), 4);
    assert_eq!(slabs[3].image().shape(), [1, 1, 8, 24, 24]);
    let blocks = run(&job(Some(vec![2, 2, 1])), 4);
    assert_eq!(blocks[3].image().shape()[..3], [1, 1, 16]);
    assert_eq!(slabs[0].bits, blocks[0].bits);
}

/// Data that were measured, because comparisons with a truth would add their own messages.
#[test]
fn the_plan_of_a_volume_says_what_travels() -> Result<()> {
    let folder = tempfile::tempdir().expect("a folder");
    let volume = haloscope::Array::from_shape_fn(vec![1, 1, 35, 12, 20], |at| {
        ((at[2] * 7 + at[3] * 3 + at[4]) % 11) as f32 / 11.0
    });
    io::write(folder.path().join("volume.npy"), &volume, &WriteOptions::default())?;
    let job = Job::builder()
        .folder(folder.path())
        .measurements(|it| it.set("files", vec!["volume.npy"]))
        .operator("identity", |it| it);
    // The second one denoises slices one by one.
    let models = ["random:drunet:8-12-16-24:1", "builtin:gray"];
    for model in &models[..if cfg!(feature = "builtin") { 2 } else { 1 }] {
        let job = sharded(with_network(job.clone(), model)).build()?;
        for ranks in RANKS {
            let plan = job.check(ranks)?;
            let outcome = run(&job, ranks).remove(0);
            let foretold = plan.expected.forecast.bytes_sent() * outcome.iterations() as u64;
            assert_eq!(outcome.bytes_moved, foretold, "{model}, {ranks} ranks");
            let text = plan.to_string();
            // Slices do not see each other.
            assert_eq!(text.contains("halos"), ranks > 1 && *model != "builtin:gray", "{text}");
        }
    }
    Ok(())
}
