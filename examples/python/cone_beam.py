"""Cone-beam tomography of a volume on a laptop: groups of views are shared between ranks.

    python examples/python/cone_beam.py --size 64 --ranks 2
"""

from __future__ import annotations

import argparse

import haloscope
from haloscope import Context, distribute, metrics, optim, physics


def main(size: int, ranks: int) -> tuple[float, str]:
    volume = haloscope.io.phantom.shepp_logan((size, size, size))
    scan = physics.Tomography(
        (1, size, size, size),
        angles=size // 2,
        angular_range=(0, 360),
        geometry_type="conebeam",
        n_detector_pixels=(size * 3 // 2, size * 3 // 2),
        source_radius=4.0 * size,
        detector_radius=1.0 * size,
        noise_model=physics.GaussianNoise(0.2),
    )
    print(f"{scan.measurement_size[1]} views of {scan.measurement_size[2:]} pixels")

    def body(ctx: Context) -> tuple[float, str]:
        views = distribute(scan.split(max(4, ranks)), ctx, assignment="balanced")
        # Every rank keeps the views that it measures.
        y = views(volume, gather=False)
        method = optim.FISTA(prior=optim.TVPrior(n_it_max=20), lambda_reg=1.0, max_iter=15, clamp=(0.0, 2.0))
        result = method(y, views, x_gt=volume, x_init="zeros")
        return float(metrics.psnr(result.image, volume)[0]), result.digest

    found = haloscope.launch(body, ranks)[0]
    print(f"{found[0]:.2f} dB, bits {found[1]}")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--ranks", type=int, default=2)
    chosen = parser.parse_args()
    main(chosen.size, chosen.ranks)
