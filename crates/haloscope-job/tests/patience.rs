//! What rank 0 does alone may take longer than the deadline of the calls between ranks: nothing of a run is lost to it.

use std::time::Duration;

use haloscope_comm::{Context, ContextOptions};
use haloscope_job::{Error, Job, Observer, Outcome};

/// Short, and long enough for threads that the system runs late.
const DEADLINE: Duration = Duration::from_secs(2);

/// An observer that takes its time with the result.
struct Slow(Context);

impl Observer for Slow {
    fn conclude(&mut self, _: &Outcome) -> haloscope::Result<()> {
        assert!(self.0.is_root());
        std::thread::sleep(2 * DEADLINE);
        Ok(())
    }
}

#[test]
fn a_result_that_takes_long_to_write_is_not_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let job = Job::builder()
        .folder(folder.path())
        .measurements(|it| it.set("phantom", "landscape").set("size", vec![24, 20]))
        .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.5))
        .prior("total-variation", |it| it.set("weight", 0.01))
        .solver("fista", |it| it)
        .stop(|it| it.set("iterations", 3))
        .output(|it| it.set("file", "image.npy"))
        .checkpoint(|it| it.set("folder", "checkpoints"))
        .build()
        .expect("a job");
    let options = ContextOptions { deadline: DEADLINE, ..ContextOptions::default() };
    let outcomes = options
        .threads(3, move |ctx| job.run(ctx, &mut Slow(ctx.clone())).map_err(Error::into_inner));
    let outcomes = outcomes.expect("no rank fails");
    assert!(outcomes.iter().all(|outcome| outcome.bits == outcomes[0].bits));
    assert_eq!(outcomes[0].files, [folder.path().join("image.npy")]);
    assert!(outcomes[0].files[0].exists() && !folder.path().join("checkpoints").exists());
}
