//! A denoiser on any engine, and one that thread ranks share. A process of its own, because it counts what is allocated.

mod allocated;

use std::sync::Arc;
use std::time::Duration;

use haloscope::denoise::{Axes, Denoiser, NetworkDenoiser};
use haloscope::distribute::distribute_with;
use haloscope::forecast::{Denoising, PriorWork, Workload};
use haloscope::tiling::{Batch, Strategy, Tiling};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::{Engine, EngineOptions, EnginePlan, PlanMemory, PlanStep, Scratch};
use haloscope_nn::models::{Architecture, Drunet, Fdncnn};
use haloscope_nn::{Network, Shape, Tensor, run_reference};
use ndarray::{ArrayD, IxDyn};

/// The definition of the network's operations as an engine: one step, and nothing in common with the CPU's.
#[derive(Debug)]
struct Definition;

#[derive(Debug)]
struct Defined {
    network: Network,
    input: Shape,
    output: Shape,
    steps: Vec<PlanStep>,
}

impl Engine for Definition {
    fn name(&self) -> &'static str {
        "definition"
    }

    fn plan(
        &self,
        network: &Network,
        input: &Shape,
        _options: &EngineOptions,
    ) -> haloscope_nn::Result<Arc<dyn EnginePlan>> {
        let output = network.infer(input)?.swap_remove(network.output().index());
        let steps = vec![PlanStep::new(network.name().into(), "by definition".into(), 1.0)];
        Ok(Arc::new(Defined { network: network.clone(), input: input.clone(), output, steps }))
    }
}

impl EnginePlan for Defined {
    fn input_shape(&self) -> &Shape {
        &self.input
    }

    fn output_shape(&self) -> &Shape {
        &self.output
    }

    fn memory(&self) -> PlanMemory {
        PlanMemory { workspace: 1000, device: 1 << 40, ..PlanMemory::default() }
    }

    fn steps(&self) -> &[PlanStep] {
        &self.steps
    }

    fn scratch(&self) -> Scratch {
        Scratch::new(())
    }

    fn run_observed(
        &self,
        input: &[f32],
        output: &mut [f32],
        _scratch: &mut Scratch,
        observe: &mut dyn FnMut(&PlanStep, Duration),
    ) -> haloscope_nn::Result<()> {
        let input = Tensor::new(self.input.clone(), input.to_vec())?;
        output.copy_from_slice(run_reference(&self.network, &input)?.values());
        observe(&self.steps[0], Duration::from_millis(1));
        Ok(())
    }
}

fn image(shape: &[usize]) -> ArrayD<f32> {
    let mut next = 0.0;
    ArrayD::from_shape_simple_fn(IxDyn(shape), || {
        next = (next * 1.7 + 0.31_f32).fract();
        next
    })
}

#[test]
fn a_denoiser_runs_on_any_engine() {
    let model = Fdncnn { depth: 3, channels: 8, ..Fdncnn::default() }.random(1).expect("valid");
    let cpu = NetworkDenoiser::new(model.clone(), EngineOptions::default()).expect("aligned");
    let other = NetworkDenoiser::with_engine(model, Arc::new(Definition), EngineOptions::default());
    let other = other.expect("aligned");
    let image = image(&[2, 3, 12, 16]);
    let mut steps = Vec::new();
    let mut observe = |name: &str, _: Duration| steps.push(name.to_owned());
    let result = other.denoise_observed(&image, &0.1.into(), &mut observe).expect("it runs");
    let expected = cpu.denoise(&image, &0.1.into()).expect("it runs");
    let difference = (&result - &expected).mapv(f32::abs).fold(0.0, |a: f32, b| a.max(*b));
    assert!(difference < 1e-4, "{difference}");
    assert_eq!(steps, ["fdncnn"]);
    // What lies on a device is not the host's.
    assert_eq!(other.memory(&[1, 3, 12, 16]), Ok(Some(1000)));
}

#[test]
fn forecasts_tell_the_memory_of_a_device_apart() {
    let model = Fdncnn { depth: 3, channels: 8, ..Fdncnn::default() }.random(1).expect("valid");
    let denoiser =
        NetworkDenoiser::with_engine(model, Arc::new(Definition), EngineOptions::default());
    let denoiser = denoiser.expect("aligned");
    let forecast = |ranks| {
        let tiling = Tiling {
            patch: 16.into(),
            overlap: 4.into(),
            batch: Batch::AtMost(2),
            ..Tiling::new(Strategy::Overlap)
        };
        let prior = Denoising { denoiser: &denoiser, tiling, has_range: false, axes: Axes::Axial };
        let workload = Workload {
            image: vec![1, 3, 48, 64],
            measurements: vec![vec![3, 48, 64]],
            ranks,
            method: "pgd".parse().expect("a method"),
            inner_iterations: 0,
            subsets: 1,
            prior: PriorWork::Network(prior),
        };
        workload.forecast().expect("a forecast")
    };
    for ranks in [1, 2, 5] {
        let forecast = forecast(ranks);
        let window: usize = forecast.tiles.as_ref().expect("tiles").window().iter().product();
        for share in &forecast.ranks {
            // A last batch that is smaller has a plan of its own.
            let plans = if share.tiles > 2 && share.tiles % 2 == 1 { 2 } else { 1 };
            assert_eq!(share.memory.device, plans << 40);
            // Three colours and a map of the noise there, three colours back.
            assert_eq!(share.device_traffic, (4 * 7 * share.tiles * window) as u64);
            assert!(share.memory.total() < 1 << 30, "{:?}", share.memory);
        }
        assert!(forecast.largest_device_traffic() > 0);
        let most = forecast.ranks.iter().map(|share| share.memory.device).max();
        assert_eq!(Some(forecast.largest_device_memory()), most);
    }
}

#[test]
fn thread_ranks_that_share_a_denoiser_have_its_weights_once() {
    let drunet = Drunet { channels: [32, 64, 64, 128], blocks: 2, ..Drunet::default() };
    let model = drunet.random(1).expect("valid");
    let noisy = image(&[1, 3, 96, 80]);
    let tiling = Tiling { patch: 32.into(), overlap: 8.into(), ..Tiling::new(Strategy::Overlap) };
    let mut alone = None;
    for ranks in [1, 4] {
        let (model, noisy, tiling) = (model.clone(), noisy.clone(), tiling.clone());
        let before = allocated::live();
        let results = Context::threads(ranks, move |ctx| {
            let open = || NetworkDenoiser::new(model.clone(), EngineOptions::default());
            let network = ctx.share("network", open)?;
            let denoiser = distribute_with(network.clone(), ctx, tiling.clone())?;
            let result = denoiser.denoise(&noisy, &0.1.into())?;
            ctx.comm().barrier()?;
            let grown = allocated::live().saturating_sub(before);
            let memory = network.plan(&[1, 3, 48, 48])?.memory();
            ctx.comm().barrier()?;
            Ok::<_, haloscope::Error>((result, grown, memory))
        })
        .expect("no rank fails");
        let (result, grown, memory) = &results[0];
        let scratch = memory.activations + memory.workspace;
        // Up to three plans of a batch of tiles, of which each rank may have had a run; no second set of weights.
        assert!(memory.weights > 8 * scratch, "{memory:?}");
        assert!(*grown < memory.weights * 3 / 2 + ranks * 4 * scratch, "{grown} for {memory:?}");
        assert_eq!(alone.get_or_insert_with(|| result.clone()), result);
    }
}
