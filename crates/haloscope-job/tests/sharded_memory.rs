//! No rank of a job in shards ever asks for as much memory as the image takes, from reading its data to writing its result and
//! its checkpoints: an allocator notes the largest request.

#[path = "../../haloscope/tests/allocated/mod.rs"]
mod allocated;

use haloscope::io::{self, WriteOptions};
use haloscope_comm::Context;
use haloscope_job::Job;

const SIDES: [usize; 2] = [1024, 1536];
const IMAGE: usize = 4 * 1024 * 1536;

/// A picture of blocks and one of stripes, which are 0 and 1.
fn write(folder: &std::path::Path) {
    let [height, width] = SIDES;
    let image = |value: &dyn Fn(usize, usize) -> usize| {
        haloscope::Array::from_shape_fn(vec![1, 1, height, width], |at| {
            (value(at[2], at[3]) % 2) as f32
        })
    };
    let frame = image(&|row, column| row / 20 + column / 30);
    let mask = image(&|row, column| row / 7 + column / 5);
    for (name, array) in [
        ("a.npy", &frame),
        ("b.tif", &frame),
        ("truth.nii", &frame),
        ("truth.png", &frame),
        ("start.npy", &frame),
        ("mask.npy", &mask),
        ("mask.png", &mask),
    ] {
        io::write(folder.join(name), array, &WriteOptions::default()).expect("written");
    }
}

/// The largest request of a run on eight ranks, in images.
fn largest(job: haloscope_job::JobBuilder, layout: &str) -> f64 {
    let job = job
        .edit("image", |it| it.set("layout", layout))
        .prior("total-variation", |it| it.set("weight", 0.01).set("iterations", 2))
        .solver("pgd", |it| it)
        .stop(|it| it.set("iterations", 2))
        .checkpoint(|it| it.set("folder", "checkpoints").set("iterations", 1))
        .output(|it| it.set("file", vec!["image.npy", "image.png"]))
        .build()
        .expect("a job")
        .resuming(haloscope_job::Resuming::Never);
    allocated::forget();
    let run = move |ctx: &Context| {
        job.run(ctx, &mut ()).map(drop).map_err(haloscope_job::Error::into_inner)
    };
    Context::threads(8, run).expect("no rank fails");
    allocated::largest() as f64 / IMAGE as f64
}

#[test]
fn no_rank_of_eight_has_an_array_of_the_images_size_from_file_to_file() {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path());
    let begin = || Job::builder().folder(folder.path());
    let deblurring = begin()
        .measurements(|it| it.set("files", vec!["a.npy", "b.tif"]))
        .operator("identity", |it| it)
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.0));
    // A truth, an image to start from and a mask, each of them read by region; streams are unpacked band by band.
    let inpainting = |mask: &str, truth: &str| {
        begin()
            .measurements(|it| it.set("files", vec!["a.npy"]))
            .operator("inpainting", |it| it.set("mask", mask))
            .truth(|it| it.set("file", truth))
            .start("file", |it| it.set("file", "start.npy"))
    };
    let simulated = begin()
        .measurements(|it| it.set("image", "truth.nii").set("seed", 3))
        .operator("inpainting", |it| it.set("missing", 0.4));
    // The last is what the choice finds by itself.
    let layouts = ["replicated", "sharded", "auto"];
    for (name, job, layouts) in [
        ("deblurring", deblurring, &layouts[..]),
        ("inpainting", inpainting("mask.npy", "truth.nii"), &layouts[..2]),
        ("inpainting, pictures", inpainting("mask.png", "truth.png"), &layouts[1..2]),
        ("a simulation", simulated, &layouts[1..2]),
    ] {
        for layout in layouts {
            let largest = largest(job.clone(), layout);
            println!("{name}, {layout}: the largest is {largest:.3} of the image");
            // A dual has two values for each pixel of an eighth of the image; a whole one shows that all of this is noticed.
            assert_eq!(largest >= 1.0, *layout == "replicated", "{name}, {layout}: {largest}");
        }
    }
}
