//! A request to stop ends runs and planning, and what comes after is as if it had never been.

use haloscope_nn::engine::{Cpu, Engine, EngineOptions};
use haloscope_nn::models::{Architecture, Dncnn};
use haloscope_nn::{Error, Network, Shape, Stop};

fn network() -> Network {
    Dncnn { depth: 5, channels: 16, ..Dncnn::default() }
        .random(1)
        .expect("a small network")
        .network()
        .clone()
}

fn shape() -> Shape {
    Shape::new([1, 3, 40, 40]).expect("small")
}

#[test]
fn a_run_ends_after_the_layer_in_which_it_is_asked_to() {
    for threads in [1, 2] {
        let options = EngineOptions { threads, ..EngineOptions::default() };
        let plan = Cpu::default().plan(&network(), &shape(), &options).expect("a plan");
        let input = vec![0.5; shape().count()];
        let mut scratch = plan.scratch();
        let mut whole = vec![f32::NAN; plan.output_shape().count()];
        plan.run(&input, &mut whole, &mut scratch).expect("a run");
        assert!(plan.steps().len() > 3);

        let stop = Stop::default();
        let (mut layers, mut output) = (0, whole.clone());
        let result = stop.watch(|| {
            plan.run_observed(&input, &mut output, &mut scratch, &mut |_, _| {
                layers += 1;
                if layers == 2 {
                    stop.request();
                }
            })
        });
        assert_eq!((result, layers), (Err(Error::Interrupted), 2));

        let mut again = vec![f32::NAN; whole.len()];
        plan.run(&input, &mut again, &mut scratch).expect("nobody asked again");
        assert_eq!(again, whole);
    }
}

#[test]
fn planning_ends_and_leaves_no_half_made_weights_to_others() {
    let (engine, network, options) = (Cpu::default(), network(), EngineOptions::default());
    let stop = Stop::default();
    stop.request();
    let result = stop.watch(|| engine.plan(&network, &shape(), &options).map(|_| ()));
    assert_eq!(result, Err(Error::Interrupted));

    let run = |engine: &Cpu| {
        let plan = engine.plan(&network, &shape(), &options).expect("a plan");
        let mut output = vec![f32::NAN; plan.output_shape().count()];
        plan.run(&vec![0.5; shape().count()], &mut output, &mut plan.scratch()).expect("a run");
        output
    };
    assert_eq!(run(&engine), run(&Cpu::default()));
}
