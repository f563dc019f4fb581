"""Deblur with DPIR, and compare with deepinv where it is installed: the same network, operator and levels.

    python examples/python/deblur_dpir.py --size 256
"""

from __future__ import annotations

import argparse
import importlib.util
import time

import haloscope
from haloscope import kernels, metrics, models, optim, physics


def main(size: int) -> float:
    image = haloscope.io.phantom.landscape(size, size)
    noise = physics.GaussianNoise(0.03)
    blur = physics.Blur(kernels.gaussian(2.0), "circular", img_size=(3, size, size), noise_model=noise)
    y = blur(image)
    network = models.Network("builtin:color")
    begin = time.perf_counter()
    dpir = optim.HQS(prior=network, sigma_denoiser=(49 / 255, 0.03), noise=0.03, max_iter=8)
    found = dpir(y, blur, x_gt=image).image
    seconds = time.perf_counter() - begin
    gained = metrics.psnr(found, image)[0] - metrics.psnr(y, image)[0]
    print(f"haloscope                     {metrics.psnr(found, image)[0]:.2f} dB in {seconds:.2f} s")

    if importlib.util.find_spec("deepinv") is None:
        print("skipped: deepinv is not installed")
        return float(gained)
    import deepinv
    import torch
    from haloscope.deepinv import HaloscopeDenoiser, HaloscopePhysics

    data = torch.from_numpy(y)
    begin = time.perf_counter()
    with torch.no_grad():
        theirs = deepinv.optim.DPIR(sigma=0.03, denoiser=HaloscopeDenoiser(network))(data, HaloscopePhysics(blur))
    print(f"deepinv's DPIR, our parts     {metrics.psnr(theirs, image)[0]:.2f} dB in {time.perf_counter() - begin:.2f} s")
    return float(gained)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=256)
    main(parser.parse_args().size)
