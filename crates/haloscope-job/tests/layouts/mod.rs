//! Small jobs for images in any layout.
#![allow(dead_code)]

use haloscope_comm::Context;
use haloscope_job::{Event, Job, JobBuilder, Observer, Outcome};

pub(crate) const RANKS: [usize; 5] = [1, 2, 3, 5, 8];

pub(crate) fn run(job: &Job, ranks: usize) -> Vec<Outcome> {
    let job = job.clone();
    Context::threads(ranks, move |ctx| job.run(ctx, &mut ())).expect("no rank fails")
}

pub(crate) fn sharded(job: JobBuilder) -> JobBuilder {
    job.edit("image", |it| it.set("layout", "sharded"))
}

pub(crate) fn simulated(sides: [i64; 2]) -> JobBuilder {
    Job::builder().measurements(|it| {
        it.set("phantom", "landscape")
            .set("size", sides.to_vec())
            .set("noise", JobBuilder::keys().set("gaussian", 0.05))
            .set("seed", 3)
    })
}

pub(crate) fn variation(job: JobBuilder, method: &str) -> JobBuilder {
    job.prior("total-variation", |it| it.set("weight", 0.02).set("clamp", vec![0, 1]))
        .solver(method, |it| it)
        .stop(|it| it.set("iterations", 4))
}

pub(crate) fn network(job: JobBuilder) -> JobBuilder {
    job.prior("network", |it| it.set("model", "random:dncnn:8:4"))
        .stop(|it| it.set("iterations", 3))
}

/// Denoising, inpainting, deblurring and super-resolution, with total variation and with a network.
pub(crate) fn jobs() -> Vec<(&'static str, JobBuilder)> {
    let denoising = || simulated([44, 50]).operator("identity", |it| it);
    let inpainting =
        || simulated([44, 50]).operator("inpainting", |it| it.set("missing", 0.4).set("seed", 2));
    let deblurring = || {
        simulated([44, 50])
            .operator("blur", |it| it.set("kernel", "gaussian").set("sigma", 1.2))
            .operator("blur", |it| it.set("kernel", "uniform").set("size", 3))
    };
    let zooming = || {
        simulated([44, 52])
            .operator("downsampling", |it| it.set("factor", 2).set("filter", "gaussian"))
    };
    let hqs = |job: JobBuilder| {
        network(job).solver("hqs", |it| it.set("levels", vec![0.2, 0.05]).set("noise", 0.05))
    };
    vec![
        ("denoising, fista", variation(denoising(), "fista")),
        ("denoising, hqs", hqs(denoising())),
        (
            "denoising, hqs with the noise that is found",
            network(denoising()).solver("hqs", |it| it.set("levels", vec![0.2, 0.05])),
        ),
        ("inpainting, pgd", variation(inpainting(), "pgd")),
        ("inpainting, hqs", hqs(inpainting())),
        ("deblurring, primal-dual", variation(deblurring(), "primal-dual")),
        ("deblurring, network", network(deblurring()).solver("pgd", |it| it)),
        ("super-resolution, fista", variation(zooming(), "fista")),
        ("super-resolution, network", network(zooming()).solver("fista", |it| it)),
    ]
}

/// Stops after some iterations.
pub(crate) struct Stopper(pub(crate) usize);

impl Observer for Stopper {
    fn event(&mut self, event: Event<'_>) {
        if let Event::Iteration { .. } = event {
            self.0 = self.0.saturating_sub(1);
        }
    }

    fn stop(&mut self) -> Option<u8> {
        (self.0 == 0).then_some(7)
    }
}
