//! Three blurs of one image, spread over ranks: the example of the README.
//!
//!     cargo run --release -p haloscope --example quickstart
//!     cargo run --release -p haloscope --example quickstart -- --ranks 3
//!     mpirun -n 3 target/release/examples/quickstart        (built with --features mpi)

use std::sync::Arc;

use haloscope::array::norm;
use haloscope::metrics::{mean, psnr};
use haloscope::phantom::landscape;
use haloscope::physics::{Blur, Padding, kernels};
use haloscope::prelude::*;

fn job(ctx: &Context) -> Result<()> {
    // What the instruments do to an image: three blurs in different directions.
    let image = landscape(192, 256)?;
    let blur = |angle| -> Result<Arc<dyn Physics>> {
        Ok(Arc::new(Blur::new(
            &[3, 192, 256],
            &kernels::gaussian(&[3.0, 1.0], angle)?,
            Padding::Circular,
        )?))
    };
    let stack = Stack::new(vec![blur(0.0)?, blur(60.0)?, blur(120.0)?])?;

    // Each rank gets some of the operators; what they measure may stay there.
    let physics = distribute(stack, ctx)?;
    let noise = [Noise::gaussian(0.03)?, Noise::gaussian(0.05)?, Noise::gaussian(0.04)?];
    let data = physics.measure(&image, &noise, 1)?;
    let back = physics.adjoint(&data)?;

    // Each rank denoises some of the tiles. A trained network is a `NetworkDenoiser`, used the same way.
    let tiling = Tiling { patch: 64.into(), overlap: 16.into(), ..Tiling::new(Strategy::Blend) };
    let denoiser = distribute_with(TotalVariation::default(), ctx, tiling)?;
    let denoised = denoiser.denoise(&image, &0.05.into())?;

    // How far an image is from the data, and where to go from there.
    let fidelity = distribute(Fidelities::from(L2::default()), ctx)?;
    let loss = fidelity.value(&physics, &image, &data)?;
    let gradient = fidelity.gradient(&physics, &image, &data)?;

    // The image that explains the data, with total variation as the prior.
    let problem = Problem::new(physics, data.clone(), fidelity)?;
    let prior = TotalVariationPrior { weight: 0.01, denoiser: TotalVariation::default() };
    let method = Fista { step: problem.step_size()?, prior: Arc::new(prior) };
    let start = State::new(problem.start(&Start::Adjoint)?);
    let stopping = Stopping { iterations: 20, ..Stopping::default() };
    let found = solve(&problem, &method, start, &stopping, None)?.state.image.into_whole()?;

    if ctx.is_root() {
        let shapes: Vec<_> = data.iter().map(|(_, part)| part.shape().to_vec()).collect();
        println!("measurements  {shapes:?}");
        println!("adjoint       {:?}", back.shape());
        println!(
            "denoised      {:?}, norm {:.6}",
            denoised.shape(),
            norm(denoised.as_slice().unwrap_or(&[]))
        );
        println!("loss          {loss:.6}");
        println!(
            "gradient      {:?}, norm {:.6}",
            gradient.shape(),
            norm(gradient.as_slice().unwrap_or(&[]))
        );
        println!("found         {:?}, {:.2} dB", found.shape(), mean(&psnr(&found, &image, 1.0)?));
    }
    Ok(())
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.iter().position(|argument| argument == "--ranks") {
        None => job(&Context::detect()?),
        Some(place) => {
            let ranks = arguments.get(place + 1).and_then(|ranks| ranks.parse().ok());
            let ranks = ranks.ok_or_else(|| Error::argument("--ranks", "a number is needed"))?;
            Context::threads(ranks, job).map(drop)
        }
    }
}
