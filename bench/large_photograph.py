#!/usr/bin/env python3
"""A photograph of 100 megapixels, denoised with DRUNet within a budget of memory, and compared with the whole network.

    large_photograph.py make FOLDER --photographs PHOTOGRAPHS
    large_photograph.py run FOLDER --weights drunet.safetensors --program HALOSCOPE [--budget 4GB] --out RESULT.json
    large_photograph.py compare FOLDER --weights drunet.safetensors --program HALOSCOPE --out RESULT.json

`make` writes a mosaic of photographs of 8736 × 11648 pixels in colour with noise of 25/255, and three strips of it: its first rows, some of the
middle, and its last. `run` denoises the mosaic with `haloscope denoise --memory-budget --scratch`, and `compare` the strips
without a budget, on which the network is whole; this takes 8 GB. Strips are as wide as the mosaic, because the fastest method of a layer, and with it the
last bits, may depend on the width. They have other neighbours at their cut sides, so what is compared is further from these than the network
sees. They begin at multiples of the network's grain, so that their tiles are those of the mosaic.
The result has the seconds, the peak (VmHWM) of the process, and for each strip whether all bits are equal, and the largest difference.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

HEIGHT, WIDTH, TILE = 11648, 8736, 2912
LEVEL = 25 / 255
# Rows of a strip, and how far a cut side must be: more than DRUNet sees.
ROWS, GRAIN, MARGIN = 1152, 48, 384
STRIPS = {
    "first rows": 0,
    "middle": HEIGHT // 2 // GRAIN * GRAIN,
    "last rows": (HEIGHT - ROWS) // GRAIN * GRAIN,
}


def end_of(top):
    """Where a strip ends: at the edge of the image if it is near."""
    return HEIGHT if HEIGHT - top - ROWS < GRAIN else top + ROWS


def inner(top):
    """The rows of a strip, from its first, that are far from its cut sides."""
    end = end_of(top)
    return slice(0 if top == 0 else MARGIN, end - top - (0 if end == HEIGHT else MARGIN))


def make(options):
    from PIL import Image

    options.folder.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in options.photographs.iterdir() if path.suffix in {".jpg", ".png"})
    random = np.random.default_rng(1)
    image = np.lib.format.open_memmap(options.folder / "noisy.npy", "w+", np.float32, (3, HEIGHT, WIDTH))
    place = 0
    for top in range(0, HEIGHT, TILE):
        for left in range(0, WIDTH, TILE):
            picture = Image.open(files[place % len(files)]).convert("RGB")
            place += 1
            # The shorter side fills the tile; what sticks out is cut.
            scale = TILE / min(picture.size)
            width, height = (max(TILE, round(length * scale)) for length in picture.size)
            tile = np.asarray(picture.resize((width, height)).crop((0, 0, TILE, TILE)), np.float32) / 255
            noisy = tile.transpose(2, 0, 1) + random.normal(0, LEVEL, (3, TILE, TILE)).astype(np.float32)
            image[:, top : top + TILE, left : left + TILE] = np.clip(noisy, 0, 1)
    image.flush()
    for name, top in STRIPS.items():
        np.save(options.folder / f"{name}.npy", image[:, top : end_of(top)])


def denoise(options, source, result, more):
    """Runs the command and returns its seconds and its peak of resident memory in bytes."""
    level = ["--axes", "channel-first", "--sigma", str(LEVEL), "--threads", str(options.threads)]
    command = [str(options.program), "denoise", str(source), "--out", str(result), "--model", str(options.weights), *level, *more]
    begin = time.time()
    process = subprocess.Popen(command)
    peak = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max([peak] + [int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")])
        except OSError:
            pass
        time.sleep(0.05)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}")
    return round(time.time() - begin, 1), peak


def run(options):
    folder, found = options.folder, options.folder / "denoised.npy"
    scratch = folder / "scratch"
    scratch.mkdir(exist_ok=True)
    budget = ["--memory-budget", options.budget, "--scratch", str(scratch)]
    seconds, peak = denoise(options, folder / "noisy.npy", found, budget)
    row = {"height": HEIGHT, "width": WIDTH, "budget": options.budget, "seconds": seconds, "peak_bytes": peak}
    print(f"{WIDTH}x{HEIGHT} pixels in {seconds} s, at most {peak / 1e9:.2f} GB", flush=True)
    write(options.out, row)


def compare(options):
    folder = options.folder
    whole = np.load(folder / "denoised.npy", mmap_mode="r").reshape(3, HEIGHT, WIDTH)
    row = json.loads(options.out.read_text())
    row["strips"] = {}
    for name, top in STRIPS.items():
        result = folder / f"{name} denoised.npy"
        _, peak = denoise(options, folder / f"{name}.npy", result, [])
        strip, rows = np.load(result).reshape(3, -1, WIDTH), inner(top)
        here, there = np.ascontiguousarray(strip[:, rows]), np.ascontiguousarray(whole[:, top : end_of(top)][:, rows])
        row["strips"][name] = {
            "top": top,
            "rows": strip.shape[1],
            "compared_rows": here.shape[1],
            "equal_bits": bool(np.array_equal(here.view(np.uint32), there.view(np.uint32))),
            "largest_difference": float(np.abs(here - there).max()),
            "peak_bytes": peak,
        }
        print(name, json.dumps(row["strips"][name]), flush=True)
    write(options.out, row)


def write(path, row):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(row, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--program", type=Path, default=Path("target/release/haloscope"))
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    {"make": make, "run": run, "compare": compare}[options.what](options)


if __name__ == "__main__":
    main()
