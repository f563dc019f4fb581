"""deepinv's PGD and DPIR with haloscope's denoiser and operators, against deepinv alone; and tomography of a slice.

Both take turns and use all cores; the best of each is kept. The weights are random: times do not depend on them.

    python bench/python_deepinv.py --side 256 --rounds 2
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import deepinv
import haloscope
import torch
from haloscope import models, physics
from haloscope.deepinv import HaloscopeDenoiser, HaloscopePhysics


def compare(case: str, rounds: int, parts: dict[str, Callable[[], Any]]) -> None:
    times: dict[str, list[float]] = {name: [] for name in parts}
    results = {}
    for _ in range(rounds):
        for name, run in parts.items():
            begin = time.perf_counter()
            with torch.no_grad():
                results[name] = run()
            times[name].append(time.perf_counter() - begin)
    best = {name: round(min(all_times), 4) for name, all_times in times.items()}
    theirs, ours = (torch.as_tensor(results[name]) for name in ("deepinv", "haloscope"))
    gap = float((ours.reshape(-1) - theirs.reshape(-1)).abs().max() / theirs.abs().max()) if case != "tomography" else None
    print(json.dumps({"case": case, **best, "ratio": round(best["deepinv"] / best["haloscope"], 2), "gap": gap}), flush=True)


def main(side: int, rounds: int) -> None:
    image = torch.from_numpy(haloscope.io.phantom.landscape(side, side))
    kernel = torch.from_numpy(haloscope.kernels.gaussian(2.0))
    their_blur = deepinv.physics.BlurFFT((3, side, side), kernel)
    our_blur = HaloscopePhysics(physics.Blur(kernel, "circular", img_size=(3, side, side)))
    network = deepinv.models.DRUNet(pretrained=None).eval()
    our_network = HaloscopeDenoiser(models.Network(network))
    y = their_blur.A(image)

    def pgd(blur: Any, denoiser: Any) -> Any:
        method = deepinv.optim.PGD(
            data_fidelity=deepinv.optim.L2(),
            prior=deepinv.optim.PnP(denoiser),
            stepsize=0.5,
            sigma_denoiser=0.05,
            max_iter=4,
        )
        return method(y, blur)

    def dpir(blur: Any, denoiser: Any) -> Any:
        return deepinv.optim.DPIR(sigma=0.03, denoiser=denoiser)(y, blur)

    pairs = {"deepinv": (their_blur, network), "haloscope": (our_blur, our_network)}
    compare("denoiser", rounds, {name: (lambda net=net: net(image, 0.05)) for name, (_, net) in pairs.items()})
    compare("pgd", rounds, {name: (lambda parts=parts: pgd(*parts)) for name, parts in pairs.items()})
    compare("dpir", rounds, {name: (lambda parts=parts: dpir(*parts)) for name, parts in pairs.items()})
    gray = torch.from_numpy(haloscope.io.phantom.shepp_logan((side, side)))
    their_scan = deepinv.physics.Tomography(angles=180, img_width=side, circle=True, normalize=False)
    our_scan = HaloscopePhysics(physics.Tomography((1, side, side), angles=180))
    scans = {"deepinv": their_scan, "haloscope": our_scan}
    compare("tomography", rounds, {name: (lambda scan=scan: scan.A_adjoint(scan.A(gray))) for name, scan in scans.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    chosen = parser.parse_args()
    main(chosen.side, chosen.rounds)
