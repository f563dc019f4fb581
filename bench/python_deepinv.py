"""deepinv's PGD and DPIR with haloscope's denoiser and operators, against deepinv alone; and tomography of slices and volumes.

Both take turns and use all cores; the best of each is kept. The weights are random: times do not depend on them.

deepinv has no projector for volumes on CPUs: its `TomographyWithAstra` needs a GPU there. A volume under parallel rays is a batch of
slices to its `Tomography`, so `tomography-3d` compares haloscope's volume with that, in batches of the size that is fastest for
deepinv. For cone beams the peer is RTK's projector of Joseph and its adjoint, if itk-rtk is installed.

    python bench/python_deepinv.py --case denoiser --case pgd --case dpir --rounds 2
    python bench/python_deepinv.py --case tomography --case tomography-3d --case cone --rounds 3 --out results.json
"""

from __future__ import annotations

import argparse
import json
import pathlib
import time
from collections.abc import Callable
from typing import Any

import deepinv
import haloscope
import numpy as np
import torch
from haloscope import models, physics
from haloscope.deepinv import HaloscopeDenoiser, HaloscopePhysics


#: The best time of each part in each case, and how far its result is from haloscope's.
RESULTS: list[dict[str, Any]] = []


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
    peer = next(name for name in parts if name != "haloscope")
    theirs, ours = (torch.as_tensor(results[name]).reshape(-1) for name in (peer, "haloscope"))
    # Projectors interpolate in ways of their own: their results are compared as a whole, and deepinv's in the circle that it looks at.
    is_scan = case.startswith(("parallel", "cone"))
    norm = torch.linalg.norm if is_scan else lambda values: values.abs().max()
    gap = float(norm((ours - theirs)[theirs != 0]) / norm(theirs))
    RESULTS.append({"case": case, "peer": peer, "seconds": best[peer], "gap": gap})
    RESULTS.append({"case": case, "peer": "haloscope", "seconds": best["haloscope"]})
    print(json.dumps({"case": case, **best, "ratio": round(best[peer] / best["haloscope"], 2), "gap": gap}), flush=True)


CASES = ("denoiser", "pgd", "dpir", "tomography", "tomography-3d", "cone")


def main(side: int, volume: int, rounds: int, cases: list[str]) -> None:
    if {"denoiser", "pgd", "dpir"} & set(cases):
        networks(side, rounds, cases)
    if "tomography" in cases:
        gray = torch.from_numpy(haloscope.io.phantom.shepp_logan((side, side)))
        their_scan = deepinv.physics.Tomography(angles=180, img_width=side, circle=True, normalize=False)
        our_scan = HaloscopePhysics(physics.Tomography((1, side, side), angles=180))
        scans = {"deepinv": their_scan, "haloscope": our_scan}
        compare(f"parallel {side}², 180 views", rounds, {name: (lambda scan=scan: scan.A_adjoint(scan.A(gray))) for name, scan in scans.items()})
    if "tomography-3d" in cases:
        parallel_volume(volume, rounds)
    if "cone" in cases:
        cone_volume(volume, rounds)


def parallel_volume(side: int, rounds: int) -> None:
    head = haloscope.io.phantom.shepp_logan((side, side, side))
    views = 90
    # 180 degrees in as many views, for both.
    theirs = deepinv.physics.Tomography(angles=views, img_width=side, circle=True, normalize=False)
    ours = physics.Tomography((1, side, side, side), angles=views, geometry_type="parallel")
    slices = torch.from_numpy(head.reshape(side, 1, side, side))

    def in_batches(size: int) -> Any:
        return torch.cat([theirs.A_adjoint(theirs.A(part)) for part in slices.split(size)])

    def seconds(size: int) -> float:
        begin = time.perf_counter()
        with torch.no_grad():
            in_batches(size)
        return time.perf_counter() - begin

    size = min((1, 8, side), key=seconds)
    parts = {"deepinv": lambda: in_batches(size), "haloscope": lambda: ours.A_adjoint(ours.A(head))}
    compare(f"parallel {side}³, {views} views, {size} slices at a time", rounds, parts)


def cone_volume(side: int, rounds: int) -> None:
    try:
        import itk
        from itk import RTK as rtk
    except ImportError:
        print("skipped: cone beams: itk-rtk is not installed")
        return
    views, spacing = 90, 1.5
    head = haloscope.io.phantom.shepp_logan((side, side, side))
    ours = physics.Tomography(
        (1, side, side, side),
        angles=[360.0 * view / views for view in range(views)],
        n_detector_pixels=(side, side),
        detector_spacing=spacing,
        geometry_type="conebeam",
        source_radius=2.0 * side,
        detector_radius=1.0 * side,
    )
    geometry = rtk.ThreeDCircularProjectionGeometry.New()
    for view in range(views):
        geometry.AddProjection(2.0 * side, 3.0 * side, 360.0 * view / views)

    def image(array: Any, steps: list[float]) -> Any:
        found = itk.GetImageFromArray(array)
        found.SetSpacing(steps)
        found.SetOrigin([-(count - 1) / 2 * step for count, step in zip(array.shape[::-1], steps)])
        return found

    def theirs() -> Any:
        """A projection and its back-projection."""
        empty = [image(np.zeros(shape, np.float32), steps) for shape, steps in
                 (((views, side, side), [spacing, spacing, 1.0]), ((side, side, side), [1.0] * 3))]
        # RTK turns about the middle axis of an array, haloscope about the first.
        volume = image(np.ascontiguousarray(head[0, 0].swapaxes(0, 1)), [1.0] * 3)
        kind = type(volume)
        for step, start in zip((rtk.JosephForwardProjectionImageFilter, rtk.JosephBackProjectionImageFilter), empty):
            method = step[kind, kind].New()
            method.SetInput(0, start)
            method.SetInput(1, volume)
            method.SetGeometry(geometry)
            method.InPlaceOff()
            method.Update()
            volume = method.GetOutput()
        return itk.GetArrayFromImage(volume).swapaxes(0, 1)

    compare(f"cone {side}³, {views} views", rounds, {"RTK": theirs, "haloscope": lambda: ours.A_adjoint(ours.A(head))})


def networks(side: int, rounds: int, cases: list[str]) -> None:
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
    runs: dict[str, Callable[[Any, Any], Any]] = {"denoiser": lambda _, net: net(image, 0.05), "pgd": pgd, "dpir": dpir}
    names = {"denoiser": f"DRUNet on {side}²×3", "pgd": "PGD of deepinv, 4 iterations", "dpir": "DPIR of deepinv, 8 iterations"}
    for case, run in runs.items():
        if case in cases:
            compare(names[case], rounds, {name: (lambda parts=parts: run(*parts)) for name, parts in pairs.items()})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--volume", type=int, default=128, help="the side of volumes")
    parser.add_argument("--case", action="append", choices=CASES, help="all of them by default")
    parser.add_argument("--out", type=pathlib.Path, help="adds the results to this file")
    chosen = parser.parse_args()
    main(chosen.side, chosen.volume, chosen.rounds, chosen.case or list(CASES))
    if chosen.out is not None:
        before = json.loads(chosen.out.read_text())["results"] if chosen.out.exists() else []
        chosen.out.write_text(json.dumps({"results": before + RESULTS}, indent=1, ensure_ascii=False) + "\n")
