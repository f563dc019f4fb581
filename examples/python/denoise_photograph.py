"""Denoise a photograph of many megapixels in tiles, with a known amount of memory.

    python examples/python/denoise_photograph.py noisy.png clean.png --sigma 0.1
    python examples/python/denoise_photograph.py --size 4096          (a drawn photograph with noise)
"""

from __future__ import annotations

import argparse
import time

import haloscope
from haloscope import metrics, models, physics


def main(source: str | None, target: str | None, sigma: float, size: int) -> float:
    truth = None if source else haloscope.io.phantom.landscape(size, size * 3 // 2)
    noisy = haloscope.io.read(source) if source else physics.GaussianNoise(sigma)(truth)

    network = models.Network("builtin:color" if noisy.shape[1] == 3 else "builtin:gray")
    with haloscope.Context() as ctx:
        tiled = haloscope.distribute(network, ctx, patch_size=256, overlap=64)
        plan = tiled.plan(noisy.shape)
        memory = network.memory((1, noisy.shape[1], *plan.window)) or 0
        megapixels = noisy.shape[-1] * noisy.shape[-2] / 1e6
        print(f"{megapixels:.1f} megapixels: {plan!r}, {memory / 1e6:.0f} MB for a tile")
        begin = time.perf_counter()
        clean = tiled(noisy, sigma)
    print(f"{megapixels / (time.perf_counter() - begin):.2f} megapixels per second")
    if target:
        haloscope.io.write(target, clean)
    if truth is None:
        return 0.0
    before, after = metrics.psnr(noisy, truth)[0], metrics.psnr(clean, truth)[0]
    print(f"{before:.2f} dB before, {after:.2f} dB after")
    return float(after - before)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", nargs="?")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--sigma", type=float, default=0.1)
    parser.add_argument("--size", type=int, default=2048)
    chosen = parser.parse_args()
    main(chosen.source, chosen.target, chosen.sigma, chosen.size)
