"""M31 with a real coverage of MeerKAT: signal to noise of reconstructions, and the same bits on any number of ranks.

    bench/radio.py --binary target/release/haloscope --data $HALOSCOPE_DATA --folder target/bench-radio --out bench/runs/…/radio.jsonl

The sky is `radio/M31_256.fits` and the coverage `radio/meerkat_simulation_1h_uv_only.npz` (PURIFY, QuantifAI): 30240 visibilities without w.
Noise is complex and Gaussian, 30 dB below the visibilities. SNR is that of PURIFY and AIRI, 20 log₁₀(‖x‖ / ‖x − found‖).
Each line of the results is one run. ducc0 makes the visibilities, so that the operator is compared with it, too.
"""

import argparse
import json
import struct
import subprocess
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
    dirty = ducc0.nufft.nu2u(points=noisy, coord=points, out=np.zeros(sky.shape, complex), forward=False, epsilon=1e-12,
                             periodicity=2 * np.pi).real / len(noisy)
    return sky, dirty


def snr(found, sky):
    return 20 * np.log10(np.linalg.norm(sky) / np.linalg.norm(sky - found))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("binary", "data", "folder", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    sky, dirty = observe(options)

    def run(method, parameter, weighting="natural", ranks=1):
        text = JOB.format(cell=CELL, weighting=weighting, method=METHODS[method].format(parameter=parameter))
        (options.folder / "job.toml").write_text(text)
        command = [str(options.binary.resolve()), "reconstruct", "job.toml", "--ranks", str(ranks), "--json"]
        done = subprocess.run(command, cwd=options.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{text}\n{done.stderr}")
        summary = json.loads(done.stdout)
        found = np.load(options.folder / "result.npy").reshape(sky.shape)
        ours = np.load(options.folder / "dirty.npy").reshape(sky.shape)
        row = dict(method=method, parameter=parameter, weighting=weighting, ranks=ranks, snr_db=snr(found, sky),
                   bits=summary["bits"], seconds=summary["seconds"])
        if weighting == "natural":
            row["dirty_error"] = np.linalg.norm(ours - dirty) / np.linalg.norm(dirty)
        print(row, flush=True)
        with open(options.out, "a") as lines:
            lines.write(json.dumps(row) + "\n")
        np.save(options.folder / f"{method.replace(' ', '-')}-{parameter}-{weighting}.npy", found)

    radius = float(np.sqrt(2 * 30240 / 6))
    run("least squares", 0)
    for ranks in (1, 2, 3, 5):
        run("network", 0.005, ranks=ranks)
    for last in (0.002, 0.01):
        run("network", last)
    for weight in (10, 100):
        run("total variation", weight)
    run("ball", radius)
    for weighting in ("uniform", "briggs"):
        run("network", 0.005, weighting)


if __name__ == "__main__":
    main()
