"""A slice of a real brain from a simulated scan by eight coils: the same least squares as sigpy, and what a prior adds.

    bench/mri.py --binary target/release/haloscope --data $HALOSCOPE_DATA --folder target/bench-mri --out bench/runs/…/mri.jsonl

The slice is the middle of `volumes/mni152_t1.nii.gz`. One line of four is measured by chance, and 24 in the middle, with noise of 0.01 in each
part of each frequency. sigpy makes the sensitivities and the frequencies, and solves the same least squares (CG-SENSE) with as many
iterations. Sensitivities are also estimated from the 24 lines, by this program and by sigpy's ESPIRiT. Each line of the results is one run.
"""

import argparse
import gzip
import json
import struct
import subprocess
from pathlib import Path

import numpy as np
import sigpy
import sigpy.mri

COILS, ACCELERATION, LINES, NOISE = 8, 4, 24, 0.01
JOB = """
[measurements]
files = "coil-*.npy"

[truth]
file = "{truth}"

[[operators]]
kind = "mri"
{coils}
mask = "mask.npy"
{complex}

{method}

[output]
file = "result.npy"
"""
METHODS = {
    "least squares": '[start]\nkind = "zeros"\n[solver]\nmethod = "cg"\n[stop]\niterations = {parameter}\n',
    "total variation": """
[prior]
kind = "total-variation"
weight = {parameter}
[solver]
method = "primal-dual"
[stop]
iterations = 300
""",
    "network": """
[prior]
kind = "network"
model = "builtin:gray"
scale = 1
[solver]
method = "hqs"
levels = [0.2, {parameter}]
noise = 0.01
inner-tolerance = 1e-5
inner-iterations = 30
[stop]
iterations = 12
""",
}


def slice_of(path):
    data = gzip.decompress(path.read_bytes())
    x, y, z = struct.unpack_from("<3h", data, 42)
    offset = int(struct.unpack_from("<f", data, 108)[0])
    volume = np.frombuffer(data, np.uint8, x * y * z, offset).reshape(z, y, x)
    plane = volume[z // 2].astype(np.float64)
    return plane / np.quantile(plane[plane > 0], 0.999)


def psnr(found, truth):
    return -10 * np.log10(np.mean((found - truth) ** 2))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("binary", "data", "folder", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    truth = slice_of(options.data / "volumes/mni152_t1.nii.gz")
    rows, columns = truth.shape
    random = np.random.default_rng(1)
    middle = slice(rows // 2 - LINES // 2, rows // 2 + LINES // 2)
    kept = np.zeros(rows, bool)
    kept[middle] = True
    others = np.flatnonzero(~kept)
    kept[random.choice(others, rows // ACCELERATION - LINES, replace=False)] = True
    mask = np.repeat(kept[:, None], columns, axis=1).astype(np.float64)
    maps = sigpy.mri.birdcage_maps((COILS, rows, columns), dtype=np.complex128)
    shape = (COILS, rows, columns)
    noise = NOISE * (random.standard_normal(shape) + 1j * random.standard_normal(shape))
    data = (sigpy.fft(maps * truth, axes=(-2, -1)) + noise) * mask
    for coil in range(COILS):
        np.save(folder / f"coil-{coil}.npy", data[coil])
        np.save(folder / f"map-{coil}.npy", maps[coil])
    np.save(folder / "mask.npy", mask.astype(np.float32))
    np.save(folder / "truth.npy", truth.astype(np.float32))
    np.save(folder / "complex.npy", np.stack([truth, 0 * truth])[None].astype(np.float32))

    def write(**row):
        print(row, flush=True)
        with open(options.out, "a") as lines:
            lines.write(json.dumps(row) + "\n")

    def run(method, parameter, coils='coils = ["map-*.npy"]', is_complex=False, ranks=1):
        text = JOB.format(coils=coils, complex="complex = true" if is_complex else "",
                          truth="complex.npy" if is_complex else "truth.npy",
                          method=METHODS[method].format(parameter=parameter))
        (folder / "job.toml").write_text(text)
        command = [str(options.binary.resolve()), "reconstruct", "job.toml", "--ranks", str(ranks), "--json"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{text}\n{done.stderr}")
        summary = json.loads(done.stdout)
        found = np.load(folder / "result.npy").reshape(2 if is_complex else 1, rows, columns)
        np.save(folder / f"{method.replace(' ', '-')}-{parameter}.npy", found)
        found = found[0] + 1j * found[1] if is_complex else found[0]
        return found, dict(method=method, parameter=parameter, bits=summary["bits"], seconds=summary["seconds"], ranks=ranks)

    zeros = np.sum(maps.conj() * sigpy.ifft(data, axes=(-2, -1)), axis=0)
    write(method="zeros where nothing was measured", psnr_db=psnr(zeros.real, truth))
    for iterations in (5, 10, 30):
        found, row = run("least squares", iterations, is_complex=True)
        peer = sigpy.mri.app.SenseRecon(data, maps, weights=mask, max_iter=iterations, tol=0, show_pbar=False).run()
        write(**row, psnr_db=psnr(found.real, truth), sigpy_psnr_db=psnr(peer.real, truth),
              distance_from_sigpy=np.linalg.norm(found - peer) / np.linalg.norm(peer))
    for weight in (0.0002, 0.0005, 0.001, 0.002, 0.005):
        found, row = run("total variation", weight)
        write(**row, psnr_db=psnr(found, truth))
    for last in (0.005, 0.01, 0.02):
        found, row = run("network", last)
        write(**row, psnr_db=psnr(found, truth))
    for ranks in (2, 3, 5):
        found, row = run("network", 0.01, ranks=ranks)
        write(**row, psnr_db=psnr(found, truth))

    # Sensitivities from the lines in the middle: the image has the first coil's phase, so that lengths are compared.
    estimated = sigpy.mri.app.EspiritCalib(data, calib_width=LINES, show_pbar=False).run()
    found, row = run("least squares", 10, coils='coils-from = ["coil-*.npy"]', is_complex=True)
    peer = sigpy.mri.app.SenseRecon(data, estimated, weights=mask, max_iter=10, tol=0, show_pbar=False).run()
    seen = np.abs(estimated).sum(axis=0) > 0
    distance = np.linalg.norm((found - peer)[seen]) / np.linalg.norm(peer[seen])
    row["method"] = "least squares, sensitivities estimated"
    write(**row, psnr_db=psnr(np.abs(found)[seen], truth[seen]), sigpy_psnr_db=psnr(np.abs(peer)[seen], truth[seen]),
          distance_from_sigpy=distance)


if __name__ == "__main__":
    main()
