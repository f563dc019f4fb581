"""M31 with a real coverage of MeerKAT: signal to noise of reconstructions, and the same bits on any number of ranks.

    bench/radio.py --binary target/release/haloscope --data $HALOSCOPE_DATA --folder target/bench-radio --out bench/runs/…/radio.jsonl

The sky is `radio/M31_256.fits` and the coverage `radio/meerkat_simulation_1h_uv_only.npz` (PURIFY, QuantifAI): 30240 visibilities without w.
Noise is complex and Gaussian, 30 dB below the visibilities. SNR is that of PURIFY and AIRI, 20 log₁₀(‖x‖ / ‖x − found‖).
Each line of the results is one run. ducc0 makes the visibilities, so that the operator is compared with it, too.
`--only` runs some of the methods. `--operator target/release/examples/bench_visibilities` compares the operator alone, in values and time, with ducc0 and with
deepinv's `RadioInterferometry` (torchkbnufft) at the same points, and runs nothing else.
"""

import argparse
import json
import struct
import subprocess
import time
from pathlib import Path

import ducc0
import numpy as np

CELL = 1.0  # seconds of arc; any does, as the coverage is in radians for each pixel
JOB = """
[measurements]
files = "observation.npz"
entry = "visibilities"

[image]
size = [256, 256]
channels = 1

[truth]
file = "truth.npy"

[[operators]]
kind = "visibilities"
cell = {cell}
uv = "observation.npz"
weights = "observation.npz"
weighting = "{weighting}"
blocks = 6

{method}

[output]
file = "result.npy"
dirty = "dirty.npy"
psf = "psf.npy"
"""
METHODS = {
    "least squares": '[solver]\nmethod = "cg"\n[stop]\niterations = 20\n',
    "total variation": """
[prior]
kind = "total-variation"
weight = {parameter}
clamp = [0, inf]
[solver]
method = "primal-dual"
[stop]
iterations = 150
""",
    "ball": """
[fidelity]
kind = "ball"
radius = {parameter}
[prior]
kind = "total-variation"
weight = 1
clamp = [0, inf]
[solver]
method = "primal-dual"
[stop]
iterations = 150
""",
    "wavelet": """
[prior]
kind = "wavelet"
bases = "{bases}"
weight = {parameter}
clamp = [0, inf]
[solver]
method = "primal-dual"
[stop]
iterations = {iterations}
""",
    "wavelet ball": """
[fidelity]
kind = "ball"
radius = {parameter}
[prior]
kind = "wavelet"
bases = "{bases}"
weight = 1
clamp = [0, inf]
[solver]
method = "primal-dual"
[stop]
iterations = {iterations}
""",
    "stretched network": """
[prior]
kind = "network"
model = "builtin:gray"
clamp = [0, inf]
scale = 1
stretch = "{stretch}"
dynamic-range = {dynamic_range}
[solver]
method = "hqs"
levels = [{first}, {parameter}]
noise = 1
inner-tolerance = 1e-4
inner-iterations = 30
[stop]
iterations = 12
""",
    "network": """
[prior]
kind = "network"
model = "builtin:gray"
clamp = [0, inf]
scale = 1
[solver]
method = "hqs"
levels = [0.2, {parameter}]
noise = 1
inner-tolerance = 1e-4
inner-iterations = 30
[stop]
iterations = 12
""",
}


def fits(path):
    data = Path(path).read_bytes()
    header = next(end for end in range(2880, len(data), 2880) if b"END     " in data[end - 2880 : end])
    return np.frombuffer(data, ">f4", 256 * 256, header).reshape(256, 256).astype(np.float64)


def observe(options):
    """The sky, its visibilities with noise, and where they are: in wavelengths."""
    sky = np.clip(fits(options.data / "radio/M31_256.fits"), 0, None)
    sky /= sky.max()
    coverage = np.load(options.data / "radio/meerkat_simulation_1h_uv_only.npz")
    u, v = (coverage[key].astype(np.float64) for key in ("uu", "vv"))
    points = np.stack([v, u], axis=1)
    clean = ducc0.nufft.u2nu(grid=sky.astype(complex), coord=points, forward=True, epsilon=1e-12, periodicity=2 * np.pi)
    # The definition divides by n, which is 1 up to 1e-7 here.
    random = np.random.default_rng(1)
    sigma = np.linalg.norm(clean) / np.sqrt(len(clean)) * 10 ** (-30 / 20) / np.sqrt(2)
    noisy = clean + sigma * (random.standard_normal(len(clean)) + 1j * random.standard_normal(len(clean)))
    cell = CELL * np.pi / 648000
    np.savez(options.folder / "observation.npz", visibilities=noisy, uv=np.stack([u, v], axis=1) / (2 * np.pi * cell),
             weights=np.full(len(noisy), 1 / sigma**2))
    np.save(options.folder / "truth.npy", sky.astype(np.float32))
    np.save(options.folder / "uv.npy", np.stack([u, v], axis=1) / (2 * np.pi * cell))
    dirty = ducc0.nufft.nu2u(points=noisy, coord=points, out=np.zeros(sky.shape, complex), forward=False, epsilon=1e-12,
                             periodicity=2 * np.pi).real / len(noisy)
    return sky, dirty, points


def best(work, repeats=20):
    """The result, and the best of many times."""
    result, seconds = work(), float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        result = work()
        seconds = min(seconds, time.perf_counter() - begin)
    return result, seconds


def compare_operators(options, sky, points):
    """Visibilities of the sky and the adjoint of them, in values against ducc0 in double precision, and in time."""
    import torch
    from deepinv.physics import RadioInterferometry

    exact = ducc0.nufft.u2nu(grid=sky.astype(complex), coord=points, forward=True, epsilon=1e-12, periodicity=2 * np.pi)
    back = ducc0.nufft.nu2u(points=exact, coord=points, out=np.zeros(sky.shape, complex), forward=False, epsilon=1e-12,
                            periodicity=2 * np.pi).real

    def error(found, expected):
        return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))

    def report(**row):
        print(row, flush=True)
        with open(options.out, "a") as lines:
            lines.write(json.dumps(row) + "\n")

    for threads in (1, 2):
        for accuracy in (1e-3, 1e-5, 1e-6):
            command = [str(options.operator), str(options.folder), "--threads", str(threads), "--accuracy", str(accuracy)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            seconds = {line["case"]: line["seconds"] for line in map(json.loads, output.splitlines())}
            parts = np.load(options.folder / "forward.npy").reshape(2, -1).astype(np.float64)
            report(operator="haloscope", threads=threads, accuracy=accuracy, forward_seconds=seconds["forward"],
                   adjoint_seconds=seconds["adjoint"], plan_seconds=seconds["plan"], forward_error=error(parts[0] + 1j * parts[1], exact),
                   adjoint_error=error(np.load(options.folder / "adjoint.npy").reshape(sky.shape), back))
        single = dict(coord=points.astype(np.float64), epsilon=1e-5, periodicity=2 * np.pi, nthreads=threads)
        image, samples = sky.astype(np.complex64), exact.astype(np.complex64)
        forward, first = best(lambda: ducc0.nufft.u2nu(grid=image, forward=True, **single))
        adjoint, second = best(lambda: ducc0.nufft.nu2u(points=samples, out=np.zeros(sky.shape, np.complex64), forward=False, **single))
        report(operator="ducc0", threads=threads, accuracy=1e-5, forward_seconds=first, adjoint_seconds=second,
               forward_error=error(forward, exact), adjoint_error=error(adjoint.real, back), note="plans anew in every call")
        torch.set_num_threads(threads)
        for neighbours in (7, 6):
            physics = RadioInterferometry(sky.shape, torch.tensor(points.T.copy(), dtype=torch.float32), interp_points=neighbours)
            # It divides by the root of the pixels of the finer grid.
            scale = np.sqrt(np.prod(physics.grid_size))
            x, y = torch.tensor(sky[None, None], dtype=torch.float32), torch.tensor(exact[None, None], dtype=torch.complex64)
            with torch.no_grad():
                forward, first = best(lambda: physics.A(x))
                adjoint, second = best(lambda: physics.A_adjoint(y))
            report(operator="deepinv", threads=threads, neighbours=neighbours, forward_seconds=first, adjoint_seconds=second,
                   forward_error=error(forward.numpy().ravel() * scale, exact),
                   adjoint_error=error(adjoint.numpy().reshape(sky.shape) * scale, back))


def snr(found, sky):
    return 20 * np.log10(np.linalg.norm(sky) / np.linalg.norm(sky - found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path)
    for name in ("data", "folder", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--operator", type=Path, help="the example bench_visibilities")
    parser.add_argument("--only", help="methods with commas between them")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sky, dirty, points = observe(options)
    if options.operator:
        return compare_operators(options, sky, points)

    def run(method, parameter, weighting="natural", ranks=1, **others):
        if options.only and method not in options.only.split(","):
            return
        rest = METHODS[method].format(parameter=parameter, **others)
        text = JOB.format(cell=CELL, weighting=weighting, method=rest)
        (options.folder / "job.toml").write_text(text)
        command = [str(options.binary.resolve()), "reconstruct", "job.toml", "--ranks", str(ranks), "--json"]
        done = subprocess.run(command, cwd=options.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{text}\n{done.stderr}")
        summary = json.loads(done.stdout)
        found = np.load(options.folder / "result.npy").reshape(sky.shape)
        ours = np.load(options.folder / "dirty.npy").reshape(sky.shape)
        row = dict(method=method, parameter=parameter, weighting=weighting, ranks=ranks, snr_db=snr(found, sky),
                   bits=summary["bits"], seconds=summary["seconds"], **others)
        if weighting == "natural":
            row["dirty_error"] = np.linalg.norm(ours - dirty) / np.linalg.norm(dirty)
        print(row, flush=True)
        with open(options.out, "a") as lines:
            lines.write(json.dumps(row) + "\n")
        np.save(options.folder / f"{method.replace(' ', '-')}-{parameter}-{weighting}-{'-'.join(map(str, others.values()))}.npy", found)

    radius = float(np.sqrt(2 * 30240 / 6))
    run("least squares", 0)
    for ranks in (1, 2, 3, 5):
        run("network", 0.005, ranks=ranks)
    for last in (0.002, 0.01):
        run("network", last)
    for weight in (10, 100):
        run("total variation", weight)
    run("ball", radius)
    for bases in ("sara", "db1", "db4", "db8"):
        run("wavelet ball", radius, bases=bases, iterations=150)
    for weight in (300, 30, 3000):
        run("wavelet", weight, bases="sara", iterations=150)
    run("wavelet", 300, bases="db4", iterations=150)
    # The same levels for the network, or as near as a stretch of a smaller range leaves them.
    for stretch, dynamic_range, slope in (("asinh", 10, 3.335), ("asinh", 100, 18.87), ("asinh", 1000, 131.6), ("log", 100, 21.67)):
        for last in (0.002, 0.01):
            run("stretched network", round(last / slope, 9), stretch=stretch, dynamic_range=dynamic_range, first=round(0.2 / slope, 9))
    for weighting in ("uniform", "briggs"):
        run("network", 0.005, weighting)
    for ranks in (1, 2, 3, 5):
        run("wavelet ball", radius, ranks=ranks, bases="sara", iterations=20)
    run("wavelet ball", radius, bases="sara", iterations=600)


if __name__ == "__main__":
    main()
