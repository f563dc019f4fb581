//! No rank of a reconstruction in shards ever asks for as much memory as the image takes: an allocator notes the largest request.

mod allocated;

use std::sync::Arc;

use haloscope::denoise::TotalVariation;
use haloscope::distribute::{ShardedStack, distribute};
use haloscope::fidelity::{Fidelities, L2};
use haloscope::image::{Image, Space};
use haloscope::physics::{Blur, BlurMethod, Padding, Physics, Stack};
use haloscope::solve::{
    Admm, Algorithm, ConjugateGradient, Fista, PrimalDual, Problem, Start, State, Stopping,
    TotalVariationPrior, solve,
};
use haloscope::tiling::ShardPlan;
use haloscope::{Array, Error};
use haloscope_comm::{Collectives, Context};
use haloscope_nn::engine::Grain;

const SHAPE: [usize; 3] = [1, 512, 512];
const IMAGE: usize = 4 * 512 * 512;

#[test]
fn no_rank_of_eight_has_an_array_of_the_images_size() {
    let kernel = Array::from_elem(vec![1, 1, 5, 5], 0.04);
    let largest = Context::threads(8, move |ctx| {
        let grain = Grain { step: 8, last: 1 };
        let plan = ShardPlan::new(&[1, 1, 512, 512], &[grain, grain], 8)?;
        let space = Space::new(ctx, &plan)?;
        let blur = Blur::with_method(&SHAPE, &kernel, Padding::Reflect, BlurMethod::Direct)?;
        let blur: Arc<dyn Physics> = Arc::new(blur);
        let physics = ShardedStack::new(Stack::new(vec![blur.clone(), blur])?, &space)?;
        // From here on, what no rank has is never made.
        ctx.comm().barrier()?;
        allocated::forget();
        ctx.comm().barrier()?;
        let own = space.own().clone();
        let truth = Array::from_shape_fn(space.own_shape(), |at| {
            (((own[2].start + at[2]) / 20 + (own[3].start + at[3]) / 30) % 2) as f32
        });
        let data = physics.forward(&Image::sharded(&space, truth)?)?;
        let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
        let problem = Problem::sharded(physics, &data, fidelity)?;
        let step = problem.step_size()?;
        let denoiser = TotalVariation { iterations: 3, tolerance: 0.0 };
        let prior = Arc::new(TotalVariationPrior { weight: 0.01, denoiser });
        let methods: [Box<dyn Algorithm>; 4] = [
            Box::new(Fista { step, prior: prior.clone() }),
            Box::new(Admm { step, prior }),
            Box::new(PrimalDual { lipschitz: 0.99 / step, weight: 0.01, range: None }),
            Box::new(ConjugateGradient),
        ];
        for method in methods {
            let state = State::new(problem.start(&Start::Adjoint)?);
            let stopping = Stopping { iterations: 2, ..Stopping::default() };
            solve(&problem, &*method, state, &stopping, None)?;
        }
        ctx.comm().barrier()?;
        Ok::<_, Error>(allocated::largest())
    });
    let largest = largest.expect("no rank fails")[0];
    // A dual has two values for each pixel of an eighth of the image, and what lies around it.
    assert!(largest > IMAGE / 8 && largest < IMAGE / 2, "{largest} of {IMAGE}");
}
