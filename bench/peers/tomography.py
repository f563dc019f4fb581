"""Seconds per projection and back-projection in other toolkits, as lines of JSON.

    tomography.py PEER --threads N [--case NAME ...] [--repeats N]

PEER is one of
- astra-linear, astra-line, astra-strip: ASTRA's projectors for CPUs, which use one thread whatever is asked
  for; it has none for cone beams;
- deepinv: its `Tomography`, restricted to the inscribed circle (its fastest setting), with the adjoint by
  back-propagation, which is exact; views are taken in groups of 64, because its grids take 8 MB per view;
- deepinv-fast: the same with its approximate adjoint;
- rtk: RTK's projector and back-projector of Joseph for cone beams.
The cases are those of `crates/haloscope/benches/tomography.rs`.
"""

import argparse
import json
import time

import numpy

CASES = ["parallel", "fan", "cone"]
GROUP = 64


def best(repeats, run):
    run()
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def astra_case(kind, case, repeats):
    import astra

    if case == "cone" or (case == "fan" and kind == "linear"):
        return None
    volume = astra.create_vol_geom(1024, 1024)
    turn = numpy.arange(512) / 512
    if case == "parallel":
        geometry = astra.create_proj_geom("parallel", 1.0, 1024, turn * numpy.pi)
    else:
        geometry = astra.create_proj_geom("fanflat", 1.5, 1024, turn * 2 * numpy.pi, 2048.0, 1024.0)
        kind += "_fanflat"
    projector = astra.create_projector(kind, geometry, volume)
    image = astra.data2d.create("-vol", volume, numpy.random.default_rng(1).random((1024, 1024), dtype=numpy.float32))
    sinogram = astra.data2d.create("-sino", geometry)

    def algorithm(name, data):
        configuration = astra.astra_dict(name)
        configuration.update(ProjectorId=projector, ProjectionDataId=sinogram, **data)
        return astra.algorithm.create(configuration)

    forward = algorithm("FP", {"VolumeDataId": image})
    adjoint = algorithm("BP", {"ReconstructionDataId": image})
    return [best(repeats, lambda: astra.algorithm.run(step)) for step in (forward, adjoint)]


def deepinv_case(exact, case, repeats, threads):
    import torch
    from deepinv.physics import Tomography

    if case != "parallel":
        return None
    torch.set_num_threads(threads)
    image = torch.from_numpy(numpy.random.default_rng(1).random((1, 1, 1024, 1024), dtype=numpy.float32))
    angles = torch.arange(512) * 180.0 / 512
    total = [0.0, 0.0]
    for group in angles.split(GROUP):
        operator = Tomography(
            angles=group, img_width=1024, circle=True, parallel_computation=False, adjoint_via_backprop=exact, normalize=False
        )
        with torch.no_grad():
            sinogram = operator.A(image)
            total[0] += best(repeats, lambda: operator.A(image))
        if exact:
            total[1] += best(repeats, lambda: operator.A_adjoint(sinogram))
        else:
            with torch.no_grad():
                total[1] += best(repeats, lambda: operator.A_adjoint(sinogram))
    return total


def rtk_case(case, repeats, threads):
    import itk
    from itk import RTK as rtk

    if case != "cone":
        return None
    itk.MultiThreaderBase.SetGlobalMaximumNumberOfThreads(threads)
    itk.MultiThreaderBase.SetGlobalDefaultNumberOfThreads(threads)
    geometry = rtk.ThreeDCircularProjectionGeometry.New()
    for view in range(100):
        geometry.AddProjection(256.0, 384.0, 3.6 * view)

    def stack(array, spacing):
        image = itk.GetImageFromArray(array)
        image.SetSpacing(spacing)
        image.SetOrigin([-(n - 1) / 2 * s for n, s in zip(array.shape[::-1], spacing)])
        return image

    random = numpy.random.default_rng(1)
    volume = stack(random.random((128, 128, 128), dtype=numpy.float32), [1.0] * 3)
    projections = stack(random.random((100, 128, 128), dtype=numpy.float32), [1.5, 1.5, 1.0])
    kind = type(volume)
    forward = rtk.JosephForwardProjectionImageFilter[kind, kind].New()
    forward.SetInput(0, stack(numpy.zeros((100, 128, 128), dtype=numpy.float32), [1.5, 1.5, 1.0]))
    forward.SetInput(1, volume)
    adjoint = rtk.JosephBackProjectionImageFilter[kind, kind].New()
    adjoint.SetInput(0, stack(numpy.zeros((128, 128, 128), dtype=numpy.float32), [1.0] * 3))
    adjoint.SetInput(1, projections)

    def run(method):
        method.Modified()
        method.Update()

    seconds = []
    for method in (forward, adjoint):
        method.SetGeometry(geometry)
        method.InPlaceOff()
        method.SetNumberOfWorkUnits(threads)
        seconds.append(best(repeats, lambda: run(method)))
    return seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    peers = ["astra-linear", "astra-line", "astra-strip", "deepinv", "deepinv-fast", "rtk"]
    parser.add_argument("peer", choices=peers)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--case", action="append", choices=CASES)
    parser.add_argument("--repeats", type=int, default=2)
    arguments = parser.parse_args()
    names = {"parallel": "parallel 1024², 512 views", "fan": "fan 1024², 512 views", "cone": "cone 128³, 100 views"}
    for case in arguments.case or CASES:
        if arguments.peer.startswith("astra"):
            seconds = astra_case(arguments.peer.split("-")[1], case, arguments.repeats)
        elif arguments.peer.startswith("deepinv"):
            seconds = deepinv_case(arguments.peer == "deepinv", case, arguments.repeats, arguments.threads)
        else:
            seconds = rtk_case(case, arguments.repeats, arguments.threads)
        for what, value in zip(["forward", "adjoint"], seconds or []):
            name = f"{names[case]}, {what}, {arguments.threads} thread{'s' * (arguments.threads > 1)}"
            print(json.dumps({"case": name, "seconds": value}), flush=True)


if __name__ == "__main__":
    main()
