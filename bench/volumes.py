"""Quality of denoisers on volumes: plain denoising, and reconstructions from few cone-beam views.

    bench/volumes.py --binary target/release/haloscope --data $HALOSCOPE_DATA --folder target/bench-volumes --out bench/runs/…/volumes

Nothing of these volumes was trained on: `mni152_t1` is left out by training/volumes.py, and of `ch2better` the planes from 226 on. Both
are cubes of 96 voxels from the middle of what is left, 1 being the value that one voxel in a thousand is above. The phantom is that of
`haloscope init tomography-3d`, in its size.

Each line of the results is one run. A reconstruction has a parameter that must suit its prior, so each method runs with several
values, and the tables take its best: the weight of total variation, and the last level of a network. All networks have the same eight
iterations of half-quadratic splitting, and total variation 150 of the primal-dual method, as the templates have. The phantom has 48
views, as its template has, and the others 24.
"""

import argparse
import gzip
import json
import os
import struct
import subprocess
from pathlib import Path

import numpy as np

LEVELS = (15, 25, 50)
# Names, and what [prior] says; gray is the denoiser slice by slice.
NETWORKS = {
    "gray": 'model = "builtin:gray"',
    "gray, all axes": 'model = "builtin:gray"\naxes = "all"',
    "volume": 'model = "builtin:volume"',
}
LAST_LEVELS = (0.005, 0.01, 0.02)
WEIGHTS = (0.00005, 0.00015, 0.0005, 0.0015, 0.005)
CROPS = {"mni152_t1": (46, 68, 50), "ch2better": (110, 238, 100)}
SIDE = 96

JOB = """
[measurements]
{source}
noise = {{ gaussian = 0.005 }}

[[operators]]
kind = "cone-beam"
angles = {views}
detector = [{detector}, {detector}]
source-distance = {source_distance}
detector-distance = {side}
pixel = 1
groups = 4
normalise = true

{method}

[output]
file = "result.npy"
"""

FDK = '[solver]\nmethod = "fdk"\n\n[prior]\nclamp = [0, inf]\n'

TOTAL_VARIATION = """
[start]
kind = "fdk"

[prior]
kind = "total-variation"
weight = {weight}
clamp = [0, inf]

[solver]
method = "primal-dual"

[stop]
iterations = 150
"""

NETWORK = """
[start]
kind = "fdk"

[prior]
kind = "network"
{network}
clamp = [0, inf]
scale = 1

[solver]
method = "hqs"
levels = [0.2, {last}]
noise = "auto"
inner-tolerance = 1e-4
inner-iterations = 20

[stop]
iterations = 8
"""


def nifti(path):
    data = gzip.decompress(Path(path).read_bytes())
    x, y, z = struct.unpack_from("<3h", data, 42)
    kind = {2: np.uint8, 4: np.int16, 16: np.float32}[struct.unpack_from("<h", data, 70)[0]]
    offset = int(struct.unpack_from("<f", data, 108)[0])
    volume = np.frombuffer(data, kind, x * y * z, offset).reshape(z, y, x).astype(np.float32)
    volume -= volume.min()
    return np.clip(volume / np.quantile(volume[volume > 0], 0.999), 0, 1)


def psnr(image, truth):
    return -10 * np.log10(np.mean((image.astype(np.float64) - truth) ** 2))


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = options.folder
        self.folder.mkdir(parents=True, exist_ok=True)
        options.out.mkdir(parents=True, exist_ok=True)

    def run(self, *arguments):
        command = [str(self.options.binary.resolve()), *map(str, arguments)]
        done = subprocess.run(command, cwd=self.folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)}: {done.stderr}")
        return done.stdout

    def write(self, file, **row):
        print(row, flush=True)
        with open(self.options.out / file, "a") as lines:
            lines.write(json.dumps(row) + "\n")

    def done(self, file):
        path = self.options.out / file
        rows = map(json.loads, path.read_text().splitlines()) if path.exists() else []
        return {tuple(row[key] for key in ("volume", "method", "parameter")) for row in rows}

    def denoised(self, noisy, sigma, *arguments):
        np.save(self.folder / "noisy.npy", noisy)
        self.run("denoise", "noisy.npy", "-o", "clean.npy", "--sigma", sigma, "--white", 1, "--axes", "spatial", *arguments)
        return np.load(self.folder / "clean.npy").reshape(noisy.shape)

    def in_turn(self, noisy, sigma):
        """Along one axis after the other, each with a third of the noise's power."""
        volume = noisy
        for axis in range(3):
            turned = np.ascontiguousarray(np.moveaxis(volume, axis, 0))
            turned = self.denoised(turned, sigma / 3**0.5, "--model", "builtin:gray")
            volume = np.moveaxis(turned, 0, axis)
        return volume

    def denoise(self, name, truth):
        file, done = "denoising.jsonl", self.done("denoising.jsonl")
        for level in LEVELS:
            noise = np.random.default_rng(level).normal(size=truth.shape).astype(np.float32)
            sigma = level / 255
            noisy = truth + np.float32(sigma) * noise
            methods = {
                "noisy": lambda: noisy,
                "gray": lambda: self.denoised(noisy, sigma, "--model", "builtin:gray"),
                "gray, in turn": lambda: self.in_turn(noisy, sigma),
                "gray, all axes": lambda: self.denoised(noisy, sigma, "--model", "builtin:gray", "--slices", "all"),
                "volume": lambda: self.denoised(noisy, sigma, "--model", self.options.volume_model),
            }
            for method, run in methods.items():
                if method in self.options.methods and (name, method, level) not in done:
                    self.write(file, volume=name, method=method, parameter=level, psnr=round(float(psnr(run(), truth)), 3))

    def reconstruct(self, name, source, side, views):
        file, done = "reconstruction.jsonl", self.done("reconstruction.jsonl")
        methods = [("fdk", None, FDK)]
        methods += [("total variation", weight, TOTAL_VARIATION.format(weight=weight)) for weight in WEIGHTS]
        for method, network in NETWORKS.items():
            network = network.replace("builtin:volume", self.options.volume_model)
            methods += [(method, last, NETWORK.format(network=network, last=last)) for last in LAST_LEVELS]
        for method, parameter, text in methods:
            if method not in self.options.methods or (name, method, parameter) in done:
                continue
            job = JOB.format(source=source, detector=side * 3 // 2, source_distance=3 * side, side=side, views=views, method=text)
            (self.folder / "job.toml").write_text(job)
            summary = json.loads(self.run("reconstruct", "job.toml", "--json", "--start-over"))
            after = summary["after"]
            if self.options.keep:
                kept = f"{name}-{method}-{parameter}.npy".replace(" ", "-").replace(",", "")
                (self.folder / "result.npy").rename(self.folder / kept)
            row = dict(psnr=round(after["psnr_db"], 3), ssim=round(after["ssim"], 4), seconds=round(summary["seconds"], 1))
            self.write(file, volume=name, method=method, parameter=parameter, **row)


def tables(out):
    """The results in Markdown; of a reconstruction, the best of its parameters."""
    rows = lambda name: list(map(json.loads, (out / name).read_text().splitlines()))
    methods = ["noisy", "gray", "gray, in turn", "gray, all axes", "volume"]
    print("| volume | σ | " + " | ".join(methods) + " |\n|---|---|" + "---|" * len(methods))
    found = {(row["volume"], row["parameter"], row["method"]): row["psnr"] for row in rows("denoising.jsonl")}
    for volume, level in sorted({key[:2] for key in found}):
        cells = (f"{found.get((volume, level, method), np.nan):.2f}" for method in methods)
        print(f"| {volume} | {level} | " + " | ".join(cells) + " |")
    methods = ["fdk", "total variation", "gray", "gray, all axes", "volume"]
    print("\n| volume | " + " | ".join(methods) + " |\n|---|" + "---|" * len(methods))
    all_rows = rows("reconstruction.jsonl")
    for volume in sorted({row["volume"] for row in all_rows}):
        cells = []
        for method in methods:
            tried = [row for row in all_rows if (row["volume"], row["method"]) == (volume, method)]
            best = max(tried, key=lambda row: row["psnr"], default=None)
            cells.append(f"{best['psnr']:.2f} ({best['parameter']})" if best else "–")
        print(f"| {volume} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--binary", type=Path, default="target/release/haloscope")
    parser.add_argument("--data", type=Path, default=os.environ.get("HALOSCOPE_DATA", "."))
    parser.add_argument("--folder", type=Path, default="target/bench-volumes", help="for files that come and go")
    parser.add_argument("--out", type=Path, required=True, help="for results, which are added to those that are there")
    parser.add_argument("--keep", action="store_true", help="keep reconstructions in FOLDER")
    everything = ["noisy", "fdk", "total variation", "gray", "gray, in turn", "gray, all axes", "volume"]
    parser.add_argument("--methods", nargs="+", default=everything)
    parser.add_argument("--only", choices=["denoise", "reconstruct"])
    parser.add_argument("--volume-model", default="builtin:volume", help="weights in the place of builtin:volume")
    parser.add_argument("--tables", action="store_true", help="run nothing, print the tables of what is there")
    options = parser.parse_args()
    if options.tables:
        return tables(options.out)
    bench = Bench(options)
    if bench.options.only != "denoise":
        bench.reconstruct("shepp-logan 64", 'phantom = "shepp-logan"\nsize = [64, 64, 64]\npoints = 2', 64, 48)
    for name, begin in CROPS.items():
        volume = nifti(bench.options.data / f"volumes/{name}.nii.gz")
        truth = np.ascontiguousarray(volume[tuple(slice(at, at + SIDE) for at in begin)])
        file = bench.folder / f"{name}.npy"
        np.save(file, truth)
        if bench.options.only != "reconstruct":
            bench.denoise(name, truth)
        if bench.options.only != "denoise":
            bench.reconstruct(name, f'image = "{file}"\naxes = "spatial"\nwhite = 1', SIDE, 24)


if __name__ == "__main__":
    main()
