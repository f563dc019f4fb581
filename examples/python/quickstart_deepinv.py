"""The quick start in deepinv and in haloscope, and how far their values are apart; deepinv must be installed.

    python examples/python/quickstart_deepinv.py --ranks 3
"""

from __future__ import annotations

import argparse
from typing import Any

import deepinv
import deepinv.distributed
import haloscope
import numpy as np
import torch
from haloscope import Context, kernels, models, optim, physics

ANGLES = (0.0, 60.0, 120.0)
LEVEL = 0.05


def by_deepinv(image: torch.Tensor, network: torch.nn.Module) -> dict[str, Any]:
    blurs = [deepinv.physics.Blur(torch.from_numpy(kernels.gaussian((3.0, 1.0), angle)), padding="circular") for angle in ANGLES]
    with deepinv.distributed.DistributedContext(device_mode="cpu") as ctx, torch.no_grad():
        stack = deepinv.distributed.distribute(deepinv.physics.stack(*blurs), ctx)
        y = stack.A(image)
        denoiser = deepinv.distributed.distribute(network, ctx, type_object="denoiser", patch_size=256, overlap=64)
        fidelity = deepinv.distributed.distribute(deepinv.optim.L2(), ctx)
        return {
            "measurements": torch.cat(list(y)),
            "adjoint": stack.A_adjoint(y),
            "denoised": denoiser(image, LEVEL),
            "loss": fidelity.fn(image / 2, y, stack),
            "gradient": fidelity.grad(image / 2, y, stack),
        }


def by_haloscope(image: torch.Tensor, network: torch.nn.Module, ctx: Context) -> dict[str, Any]:
    size = tuple(image.shape[1:])
    blurs = [physics.Blur(kernels.gaussian((3.0, 1.0), angle), "circular", img_size=size) for angle in ANGLES]
    stack = haloscope.distribute(physics.stack(*blurs), ctx)
    y = stack.A(image)
    # deepinv mirrors the image at its edges; tiles stay inside of it here, unless told otherwise.
    denoiser = haloscope.distribute(models.Network(network), ctx, patch_size=256, overlap=64, border="reflect")
    fidelity = haloscope.distribute(optim.L2(), ctx)
    return {
        "measurements": torch.cat(list(y)),
        "adjoint": stack.A_adjoint(y),
        "denoised": denoiser(image, LEVEL),
        "loss": fidelity.fn(image / 2, y, stack),
        "gradient": fidelity.grad(image / 2, y, stack),
    }


def main(ranks: int) -> dict[str, float]:
    """The largest difference of each value, relative to its largest."""
    torch.manual_seed(0)
    image = torch.from_numpy(haloscope.io.phantom.landscape(512, 512))
    network = deepinv.models.DnCNN(3, 3, depth=5, nf=16, pretrained=None).eval()
    theirs = by_deepinv(image, network)
    ours = haloscope.launch(lambda ctx: by_haloscope(image, network, ctx), ranks)[0]
    gaps = {}
    for name, expected in theirs.items():
        found, known = np.asarray(ours[name]), np.asarray(expected)
        gaps[name] = float(np.abs(found - known).max() / np.abs(known).max())
        print(f"{name:<13} {list(found.shape)}, {gaps[name]:.1e} apart")
    return gaps


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=1, help="thread ranks of haloscope")
    main(parser.parse_args().ranks)
