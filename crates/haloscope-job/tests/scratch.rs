//! Jobs with `[memory] scratch`: the bits of memory, the bytes of the plan, and refusals before anything runs.
#![cfg(target_os = "linux")]

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haloscope::Array;
use haloscope::io::{self, WriteOptions};
use haloscope::solve::{METHODS, Priors};
use haloscope_comm::Context;
use haloscope_job::{Deviation, Event, FileDenoising, Job, JobBuilder, Observer};
use haloscope_nn::engine::EngineOptions;
use haloscope_scratch::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// What is open is of the whole process.
fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A volume of 5 MB, of which a limit of 125 MB has more than one piece.
const SIDES: [i64; 3] = [100, 112, 120];
const VIEWS: usize = 16;
const DETECTOR: [usize; 2] = [120, 150];
const LIMIT: &str = "125MB";

/// A folder with views that look like those of a ball.
fn scan() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let shape = vec![1, 1, VIEWS, DETECTOR[0], DETECTOR[1]];
    let views = Array::from_shape_fn(shape, |at| {
        let (v, u) = (at[3] as f32 - 60.0, at[4] as f32 - 75.0 + (at[2] as f32).sin());
        (2500.0 - v * v - u * u).max(0.0).sqrt() / 50.0
    });
    io::write(folder.path().join("views.npy"), &views, &WriteOptions::default()).expect("written");
    folder
}

fn cone(folder: &Path, groups: i64) -> JobBuilder {
    Job::builder()
        .folder(folder)
        .measurements(|it| it.set("files", "views.npy"))
        .image(|it| it.set("size", SIDES.to_vec()).set("channels", 1))
        .operator("cone-beam", |it| {
            it.set("angles", VIEWS as i64)
                .set("groups", groups)
                .set("source-distance", 300)
                .set("detector-distance", 100)
        })
}

/// A step that needs no norm.
fn step(keys: haloscope_job::Keys) -> haloscope_job::Keys {
    keys.set("step", 0.0005)
}

fn variation(job: JobBuilder) -> JobBuilder {
    job.prior("total-variation", |it| it.set("weight", 0.001))
}

#[cfg(feature = "builtin")]
fn gray(job: JobBuilder) -> JobBuilder {
    job.prior("network", |it| it.set("model", "builtin:gray").set("sigma", 0.05).set("scale", 1))
}

fn with_scratch(job: JobBuilder, folder: &Path) -> JobBuilder {
    let folder = folder.display().to_string();
    job.memory(|it| it.set("scratch", folder).set("limit", LIMIT))
}

/// The bits of a job on some ranks.
fn bits(job: JobBuilder, ranks: usize) -> String {
    let job = job.build().expect("a job");
    let run = move |ctx: &Context| Ok::<_, haloscope_job::Error>(job.run(ctx, &mut ())?.bits);
    Context::threads(ranks, run).expect("it runs").remove(0)
}

fn check(name: &str, job: &JobBuilder) {
    let scratch = tempfile::tempdir().expect("a folder");
    let expected = bits(job.clone(), 1);
    assert_eq!(bits(with_scratch(job.clone(), scratch.path()), 1), expected, "{name}");
    let left = std::fs::read_dir(scratch.path()).expect("a folder").count();
    assert_eq!(left, 0, "{name}");
}

#[test]
fn back_projection_has_the_bits_of_memory() {
    let (_turn, folder) = (alone(), scan());
    check("fdk", &cone(folder.path(), 1).solver("fdk", |it| it));
    check("fdk of groups", &cone(folder.path(), 3).solver("fdk", |it| it));
}

#[test]
fn total_variation_has_the_bits_of_memory() {
    let (_turn, folder) = (alone(), scan());
    let job = |groups| variation(cone(folder.path(), groups)).stop(|it| it.set("iterations", 2));
    check("primal-dual", &job(1).solver("primal-dual", step));
    let short = |job: JobBuilder| job.edit("prior", |it| it.set("iterations", 3));
    check("fista", &short(job(2)).solver("fista", step).start("fdk", |it| it));
    // Ranks that are threads share the folder.
    let scratch = tempfile::tempdir().expect("a folder");
    let job = job(2).solver("primal-dual", step);
    let expected = bits(job.clone(), 2);
    let job = with_scratch(job, scratch.path()).edit("memory", |it| it.set("limit", "170MB"));
    assert_eq!(bits(job, 2), expected);
}

#[cfg(feature = "builtin")]
#[test]
fn denoisers_of_slices_have_the_bits_of_memory() {
    let (_turn, folder) = (alone(), scan());
    let job = || gray(cone(folder.path(), 1)).start("fdk", |it| it);
    check("pgd", &job().solver("pgd", step).stop(|it| it.set("iterations", 2)));
    let hqs = job().solver("hqs", |it| {
        it.set("levels", vec![0.1, 0.05]).set("noise", 0.02).set("inner-iterations", 3)
    });
    check("hqs", &hqs.stop(|it| it.set("iterations", 1)));
}

#[test]
fn every_method_has_the_bits_of_memory() {
    let (_turn, folder) = (alone(), scan());
    for method in METHODS {
        // Ordered subsets need more than one operator.
        let job = cone(folder.path(), 2);
        let job = match method.priors {
            Priors::None => job,
            _ => variation(job).edit("prior", |it| it.set("iterations", 2)),
        };
        let is_for_counts = !method.takes_fidelity("l2", true);
        let job = if is_for_counts { job.fidelity("poisson", |it| it) } else { job };
        let has = |name: &str| method.keys.iter().any(|key| key.name == name);
        let job = job.solver(method.name(), |mut it| {
            for (name, value) in [("step", 0.0005), ("penalty", 0.01), ("weight", 0.1)] {
                it = if has(name) { it.set(name, value) } else { it };
            }
            if has("levels") {
                it = it.set("levels", vec![0.1, 0.05]).set("noise", 0.02);
            }
            if has("inner-iterations") { it.set("inner-iterations", 2) } else { it }
        });
        let job = if method.is_direct() {
            job
        } else {
            job.start("adjoint", |it| it).stop(|it| it.set("iterations", 1))
        };
        check(method.name(), &job);
    }
}

#[cfg(feature = "builtin")]
#[test]
fn other_layouts_and_denoisers_have_the_bits_of_memory() {
    let (_turn, folder) = (alone(), scan());
    let scratch = tempfile::tempdir().expect("a folder");
    let job = || cone(folder.path(), 2).start("fdk", |it| it).stop(|it| it.set("iterations", 1));
    let sharded = variation(job()).solver("primal-dual", step);
    let sharded = sharded.edit("image", |it| it.set("layout", "sharded"));
    let all = gray(job()).edit("prior", |it| it.set("axes", "all")).solver("pgd", step);
    let rings = job().preparation(|it| it.set("rings", true)).solver("sirt", |it| it);
    // A network that sees the volume as a whole.
    let whole = job().prior("network", |it| {
        it.set("model", "random:dncnn:8:4").set("sigma", 0.05).set("scale", 1)
    });
    let whole = whole.solver("pgd", step);
    for (name, job, ranks) in
        [("sharded", sharded, 2), ("all axes", all, 1), ("rings", rings, 1), ("whole", whole, 1)]
    {
        let expected = bits(job.clone(), ranks);
        let job = with_scratch(job, scratch.path()).edit("memory", |it| it.set("limit", "400MB"));
        assert_eq!(bits(job, ranks), expected, "{name}");
    }
}

/// The bytes that this process has read from disks and written to them so far, without what was given up before it was written.
fn moved() -> Option<[u64; 2]> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    let field = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    Some([field("read_bytes:")?, field("write_bytes:")? - field("cancelled_write_bytes:")?])
}

/// What was moved at the end of each iteration.
#[derive(Default)]
struct Counted(Vec<[u64; 2]>);

impl Observer for Counted {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Iteration { .. } = event {
            self.0.extend(moved());
        }
    }
}

#[test]
fn an_iteration_reads_and_writes_what_the_plan_says() {
    let (_turn, folder) = (alone(), scan());
    let scratch = tempfile::tempdir().expect("a folder");
    if moved().is_none()
        || haloscope_scratch::Folder::look(scratch.path()).is_ok_and(|it| it.is_memory)
    {
        println!("skipped: the bytes of this process on disks are not counted here");
        return;
    }
    let mut jobs = vec![
        ("primal-dual", variation(cone(folder.path(), 1)).solver("primal-dual", step)),
        ("primal-dual of groups", variation(cone(folder.path(), 2)).solver("primal-dual", step)),
    ];
    #[cfg(feature = "builtin")]
    jobs.push(("pgd", gray(cone(folder.path(), 1)).start("fdk", |it| it).solver("pgd", step)));
    for (name, job) in jobs {
        let job = with_scratch(job, scratch.path()).stop(|it| it.set("iterations", 3));
        let job = job.build().expect("a job");
        let plan = job.check(1).expect("it can be run").expected.scratch.expect("a folder");
        let planned = plan.traffic.expect("a forecast");
        let mut counted = Counted::default();
        job.run(&Context::solo(), &mut counted).expect("it runs");
        let [before, after] = [counted.0[1], counted.0[2]];
        for (what, planned, found) in [
            ("read", planned.read, after[0] - before[0]),
            ("written", planned.written, after[1] - before[1]),
        ] {
            let share = found as f64 / planned as f64;
            println!("{name}: {found} bytes {what}, {planned} planned ({share:.3})");
            // Small arrays have more pages at the ends of pieces, and the system reads ahead of what is asked for.
            assert!(
                (0.85..1.25).contains(&share),
                "{name}: {found} bytes {what}, {planned} planned"
            );
        }
    }
}

#[test]
fn what_cannot_be_is_refused_before_anything_runs() {
    let (_turn, folder) = (alone(), scan());
    let scratch = tempfile::tempdir().expect("a folder");
    let job = |place: String, limit: &str| {
        let job = variation(cone(folder.path(), 1)).solver("primal-dual", step);
        job.memory(|it| it.set("scratch", place).set("limit", limit))
    };
    let here = || scratch.path().display().to_string();
    let refused = |job: JobBuilder, words: &[&str]| {
        let job = job.stop(|it| it.set("iterations", 1)).build();
        let error = match job {
            Err(error) => error.to_string(),
            Ok(job) => {
                let error = job.check(1).expect_err("refused").to_string();
                let run = job.run(&Context::solo(), &mut ()).expect_err("refused").to_string();
                assert_eq!(run, error);
                error
            }
        };
        for word in words {
            assert!(error.contains(word), "{error}");
        }
        assert!(!error.contains('\n'), "{error}");
    };
    refused(job(format!("{}/missing", here()), LIMIT), &["no file can be made in", "missing"]);
    refused(job("views.npy".into(), LIMIT), &["no file can be made in", "views.npy"]);
    refused(job(here(), "66MB"), &["the limit is 66 MB", "needs a limit of about"]);
    refused(job(here(), "2GiB"), &["`2GiB`", "the units are"]);
    refused(
        variation(cone(folder.path(), 1))
            .solver("primal-dual", step)
            .memory(|it| it.set("limit", LIMIT)),
        &["`scratch`", "is missing"],
    );
    // More than any disk has.
    let large = job(here(), LIMIT).edit("image", |it| it.set("size", vec![60_000, 60_000, 60_000]));
    refused(large, &["needs about", "which has room for", "another folder"]);
    if Path::new("/dev/shm").is_dir() {
        let plan = job("/dev/shm".into(), LIMIT).build().expect("a job").check(1).expect("a plan");
        assert!(plan.warnings.iter().any(|words| words.contains("tmpfs")), "{:?}", plan.warnings);
    }
    let plan = job(here(), LIMIT).build().expect("a job").check(1).expect("a plan").to_string();
    for words in
        ["are free", "at most 125 MB", "read and", "written per iteration", "by writing 64 MB"]
    {
        assert!(plan.contains(words), "{plan}");
    }
}

#[test]
fn results_and_checkpoints_on_the_same_disk_are_planned() {
    let (_turn, folder) = (alone(), tempfile::tempdir().expect("a folder"));
    let plan = |checkpoints: bool| {
        let job = Job::builder()
            .folder(folder.path())
            .measurements(|it| {
                it.set("phantom", "shepp-logan").set("size", vec![64, 64, 64]).set("points", 1)
            })
            .operator("identity", |it| it)
            .output(|it| it.set("file", "found.npy"));
        let job = with_scratch(variation(job).solver("pgd", step), folder.path());
        let job = if checkpoints {
            job.checkpoint(|it| it.set("iterations", 1).set("keep", 2).set("folder", "kept"))
        } else {
            job
        };
        let plan = job.build().expect("a job").check(1).expect("a plan");
        plan.expected.scratch.expect("a scratch folder")
    };
    let image = 4 * 64 * 64 * 64;
    assert_eq!(plan(false).saved_bytes, image);
    let found = plan(true);
    // Two that are kept and one that is written, each with the image.
    assert_eq!(found.saved_bytes, image + 3 * image);
    let words = found.describe();
    assert!(words.contains("for results and checkpoints"), "{words}");
    // What an earlier run left is replaced.
    std::fs::create_dir_all(folder.path().join("kept")).expect("a folder");
    let old = folder.path().join("kept/iteration-0000007.checkpoint");
    std::fs::write(old, vec![0; 1000]).expect("a file");
    assert_eq!(plan(true).saved_bytes, found.saved_bytes - 1000);
    // They are removed when a new one is complete, however many they are.
    let many = folder.path().join("kept/iteration-0000008.checkpoint");
    std::fs::write(&many, vec![0; 3 * image as usize]).expect("a file");
    assert_eq!(plan(true).saved_bytes, image + image);
    std::fs::remove_file(many).expect("a file");
    // Other files stay, and a result of an earlier run until the new one is complete.
    std::fs::write(folder.path().join("kept/notes"), vec![0; 500]).expect("a file");
    std::fs::write(folder.path().join("found.npy"), vec![0; 500]).expect("a file");
    assert_eq!(plan(true).saved_bytes, found.saved_bytes - 1000);
}

#[test]
fn a_picture_denoised_with_a_scratch_folder_has_the_bytes_of_memory() {
    let _turn = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let input = folder.path().join("in.npy");
    let image = Array::from_shape_fn(vec![1, 3, 1500, 96], |at| {
        (at[1] + at[2] * at[3] % 97) as f32 / 100.0
    });
    io::write(&input, &image, &WriteOptions::default()).expect("written");
    let denoising = |name: &str, budget: Option<usize>, scratch: Option<&Path>| {
        let threads = 1;
        let engine = EngineOptions { threads, memory_budget: budget, ..EngineOptions::default() };
        let output = folder.path().join(name);
        FileDenoising {
            model: Some("drunet:16-32-64-64:1".parse().expect("a model")),
            engine,
            scratch: scratch.map(Path::to_owned),
            ..FileDenoising::new(&input, output, Deviation::OfWhite(0.1))
        }
    };
    let whole = denoising("whole.npy", None, None).run(&mut ()).expect("it runs");
    assert_eq!((whole.waves, whole.scratch_bytes), (0, None));
    let budget = Some(whole.memory_whole_bytes / 3);
    let apart = denoising("apart.npy", budget, Some(folder.path())).run(&mut ()).expect("it runs");
    assert!(apart.by_bands && apart.waves > 1, "{apart:?}");
    assert!(apart.scratch_bytes.is_some_and(|bytes| bytes > 0), "{apart:?}");
    assert!(Some(apart.memory_predicted_bytes) <= budget.map(|bytes| bytes / 4 * 3), "{apart:?}");
    let read = |name: &str| std::fs::read(folder.path().join(name)).expect("a result");
    assert!(read("whole.npy") == read("apart.npy"));

    let missing = folder.path().join("none");
    let error = denoising("no.npy", budget, Some(&missing)).check().expect_err("no folder");
    assert!(error.to_string().contains("scratch: no file can be made in"), "{error}");
}
