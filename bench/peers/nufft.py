"""Seconds per non-uniform Fourier transform in finufft and ducc0, planned once, as lines of JSON.

    nufft.py PEER --threads N [--repeats N]

PEER is finufft or ducc0. Names, sizes and accuracies are those of `crates/haloscope/benches/nufft.rs`; the points are other
random ones of the same distribution.
"""

import argparse
import json
import time

import ducc0
import finufft
import numpy as np

CASES = [((512, 512), 1_000_000), ((512, 512), 100_000), ((96, 96, 96), 1_000_000)]
ACCURACIES = [(1e-3, np.complex64), (1e-5, np.complex64), (1e-9, np.complex128)]


def best(run, repeats):
    """The least seconds by the clock and of all cores, which a busy machine disturbs less."""
    seconds = []
    for _ in range(repeats):
        begin = time.perf_counter(), time.process_time()
        run()
        seconds.append((time.perf_counter() - begin[0], time.process_time() - begin[1]))
    return [min(values) for values in zip(*seconds)]


def transforms(peer, sides, points, image, samples, accuracy, threads):
    if peer == "finufft":
        axes = [np.ascontiguousarray(points[:, axis]) for axis in range(len(sides))]
        plans = []
        for kind, sign in [(2, -1), (1, 1)]:
            plan = finufft.Plan(kind, sides, eps=accuracy, isign=sign, nthreads=threads, dtype=image.dtype)
            plan.setpts(*axes)
            plans.append(plan)
        to, back = samples.copy(), image.copy()
        return lambda: plans[0].execute(image, out=to), lambda: plans[1].execute(samples, out=back)
    common = dict(coord=points, grid_shape=sides, epsilon=accuracy, nthreads=threads, periodicity=2 * np.pi)
    forward = ducc0.nufft.plan(nu2u=False, **common)
    adjoint = ducc0.nufft.plan(nu2u=True, **common)
    to, back = samples.copy(), image.copy()
    return (lambda: forward.u2nu(forward=True, grid=image, out=to),
            lambda: adjoint.nu2u(forward=False, points=samples, out=back))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["finufft", "ducc0"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=4)
    arguments = parser.parse_args()
    random = np.random.default_rng(1)
    for sides, count in CASES:
        for accuracy, kind in ACCURACIES:
            real = np.float32 if kind == np.complex64 else np.float64
            points = random.uniform(-np.pi, np.pi, (count, len(sides))).astype(real)
            noise = lambda shape: (random.standard_normal(shape) + 1j * random.standard_normal(shape)).astype(kind)
            pair = transforms(arguments.peer, sides, points, noise(sides), noise(count), accuracy, arguments.threads)
            name = f"{' × '.join(map(str, sides))} pixels, {count} samples, {accuracy:.0e}".replace("e-0", "e-")
            for direction, run in zip(["image to samples", "samples to image"], pair):
                seconds, cores = best(run, arguments.repeats)
                row = {"case": f"{name}: {direction}", "seconds": seconds, "core_seconds": cores}
                print(json.dumps(row, ensure_ascii=False), flush=True)


if __name__ == "__main__":
    main()
