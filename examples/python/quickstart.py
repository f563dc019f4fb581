"""Three blurs of one image, spread over ranks: the quick start of the README, with its numbers.

    python examples/python/quickstart.py
    python examples/python/quickstart.py --ranks 3
    mpirun -n 3 python examples/python/quickstart.py        (a build with MPI)
"""

from __future__ import annotations

import argparse
import hashlib

import haloscope
import numpy as np
from haloscope import Context, distribute, kernels, metrics, models, optim, physics


def job(ctx: Context) -> None:
    # What the instruments do to an image: three blurs in different directions.
    image = haloscope.io.phantom.landscape(192, 256)
    blurs = [
        physics.Blur(
            kernels.gaussian((3.0, 1.0), angle),
            "circular",
            img_size=(3, 192, 256),
            noise_model=physics.GaussianNoise(sigma),
        )
        for angle, sigma in ((0.0, 0.03), (60.0, 0.05), (120.0, 0.04))
    ]

    # Each rank gets some of the operators.
    stack = distribute(physics.Stack(blurs), ctx)
    y = stack(image, seed=1)
    back = stack.A_adjoint(y)

    # Each rank denoises some of the tiles.
    tv = distribute(models.TV(), ctx, tiling_strategy="blend", patch_size=64, overlap=16)
    denoised = tv(image, 0.05)
    network = distribute(models.Network("builtin:color"), ctx, patch_size=256, overlap=64)
    by_network = network(image, 0.05)

    # How far an image is from the data, and where to go from there.
    fidelity = distribute(optim.L2(), ctx)
    loss = fidelity.fn(image, y, stack)
    gradient = fidelity.grad(image, y, stack)

    # The image that explains the data, with total variation as the prior.
    method = optim.FISTA(prior=optim.TVPrior(), lambda_reg=0.01, max_iter=20)
    found = method(y, stack).image

    if ctx.is_root:
        print(f"measurements  {[list(part.shape) for part in y]}")
        print(f"adjoint       {list(back.shape)}")
        print(f"denoised      {list(denoised.shape)}, norm {norm(denoised):.6f}")
        print(f"by a network  {list(by_network.shape)}, norm {norm(by_network):.6f}")
        print(f"loss          {loss:.6f}")
        print(f"gradient      {list(gradient.shape)}, norm {norm(gradient):.6f}")
        print(f"found         {list(found.shape)}, {metrics.psnr(found, image)[0]:.2f} dB")
        results = [*y, back, denoised, by_network, gradient, found]
        print(f"bits          {hashlib.sha256(b''.join(part.tobytes() for part in results)).hexdigest()[:32]}")


def norm(x: np.ndarray) -> float:
    return float(np.linalg.norm(np.asarray(x, np.float64)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1, help="thread ranks; under mpirun its processes are the ranks")
    haloscope.launch(job, parser.parse_args().ranks)
