//! Plug-and-play reproduces deepinv's iterates (`fixtures/make_plug_and_play.py`), on any number of ranks.

use std::path::PathBuf;
use std::sync::Arc;

use haloscope::denoise::NetworkDenoiser;
use haloscope::distribute::{distribute, distribute_with};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::physics::{Blur, Padding, Physics};
use haloscope::solve::{Plug, Problem, ProximalGradient, State, Stopping, solve};
use haloscope::tiling::{Strategy, Tiling};
use haloscope::{Array, Error, Measurements};
use haloscope_comm::Context;
use haloscope_nn::engine::EngineOptions;
use haloscope_nn::models::Model;
use haloscope_nn::weights::Limits;
use haloscope_nn::{StateDict, Tensor};
use ndarray::{ArrayD, IxDyn};

fn array(tensor: &Tensor) -> Array {
    ArrayD::from_shape_vec(IxDyn(tensor.shape().sizes()), tensor.values().to_vec())
        .expect("its shape")
}

/// The distances from deepinv's iterates 1, 5 and 20 on each rank, relative to their norms.
fn errors(tensors: &Arc<StateDict>, name: &'static str, level: f32, ranks: usize) -> Vec<Vec<f32>> {
    let tensors = tensors.clone();
    let errors = Context::threads(ranks, move |ctx| {
        let get = |name: &str| array(tensors.get(name).expect("a tensor"));
        let blur = |index: usize| -> Result<Arc<dyn Physics>, Error> {
            let kernel = get(&format!("kernel {index}"));
            Ok(Arc::new(Blur::new(&[3, 40, 56], &kernel, Padding::Circular)?))
        };
        let physics = distribute(vec![blur(0)?, blur(1)?, blur(2)?], ctx)?;
        let data = Measurements::new((0..3).map(|index| get(&format!("data {index}"))).collect());
        let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
        let problem = Problem::new(physics, data, fidelity)?;

        let model = Model::recognize(&tensors.section(name))?;
        let network = NetworkDenoiser::new(model, EngineOptions::default())?;
        // One tile is the whole image.
        let tiling = Tiling { patch: 64.into(), ..Tiling::new(Strategy::Basic) };
        let denoiser = distribute_with(network, ctx, tiling)?;
        let prior = Arc::new(Plug::new(Arc::new(denoiser), level));
        let algorithm = ProximalGradient { step: 0.5, prior, relaxation: None };
        let mut state = State::new(get("start"));
        let mut errors = Vec::new();
        for iterations in [1, 5, 20] {
            let stopping = Stopping { iterations, ..Stopping::default() };
            state = solve(&problem, &algorithm, state, &stopping, None)?.state;
            let expected = get(&format!("{name} iterate {iterations}"));
            let distance =
                (state.image.local() - &expected).mapv(|value| value * value).sum().sqrt();
            errors.push(distance / expected.mapv(|value| value * value).sum().sqrt());
        }
        Ok::<_, Error>(errors)
    });
    errors.expect("no rank fails")
}

#[test]
fn iterates_are_those_of_deepinv() {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/plug_and_play.safetensors");
    let tensors = Arc::new(StateDict::open(path, &Limits::default()).expect("fixture"));
    for name in ["dncnn", "drunet"] {
        for ranks in [1, 2, 3] {
            let errors = errors(&tensors, name, 0.05, ranks);
            let within = errors.iter().flatten().all(|error| *error < 1e-4);
            assert!(within, "{name} on {ranks} ranks: {errors:?}");
        }
    }
    // The level matters, where the network knows of it.
    assert!(errors(&tensors, "drunet", 0.06, 1)[0].iter().all(|error| *error > 1e-4));
}
