#!/usr/bin/env python3
"""A photograph of 100 megapixels, denoised with DRUNet within a budget of memory, and compared with the whole network.

    large_photograph.py make FOLDER --photographs PHOTOGRAPHS
    large_photograph.py run FOLDER --weights drunet.safetensors --program HALOSCOPE [--budget 4GB] --out RESULT.json

`make` writes a mosaic of photographs of 8736 × 11648 pixels in colour with noise of 25/255, and four pieces of it: two corners, a
piece of the middle, and one across the right edge. `run` denoises the mosaic with `haloscope denoise --memory-budget --scratch` and the
pieces without a budget, on which the network is whole. A piece has other neighbours at its cut sides, so what is compared is
further from them than the network sees. Pieces begin at multiples of the network's grain, so that their tiles are those of the mosaic.
The result has the seconds, the peak (VmHWM) of the process, and for each piece whether all bits are equal, and the largest difference.
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
# Rows and columns of pieces, and how far a cut side must be: more than DRUNet sees.
SIDE, GRAIN, MARGIN = 1536, 48, 384
PIECES = {
    "first corner": (0, 0),
    "middle": (HEIGHT // 2 // GRAIN * GRAIN, WIDTH // 2 // GRAIN * GRAIN),
    "right edge": (4800, (WIDTH - SIDE) // GRAIN * GRAIN),
    "last corner": ((HEIGHT - SIDE) // GRAIN * GRAIN, (WIDTH - SIDE) // GRAIN * GRAIN),
}


def extent(start, length):
    """Where a piece ends: at the edge of the image if it is near."""
    end = start + SIDE
    return length if length - end < GRAIN else end


def inner(start, length):
    """The part of a piece, from its start, that is far from its cut sides."""
    end = extent(start, length)
    return slice(0 if start == 0 else MARGIN, end - start - (0 if end == length else MARGIN))


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
    for name, (top, left) in PIECES.items():
        piece = image[:, top : extent(top, HEIGHT), left : extent(left, WIDTH)]
        np.save(options.folder / f"{name}.npy", np.ascontiguousarray(piece))


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
    row = {"height": HEIGHT, "width": WIDTH, "budget": options.budget, "seconds": seconds, "peak_bytes": peak, "pieces": {}}
    print(f"{WIDTH}x{HEIGHT} pixels in {seconds} s, at most {peak / 1e9:.2f} GB", flush=True)
    whole = np.load(found, mmap_mode="r")
    for name, (top, left) in PIECES.items():
        result = folder / f"{name} denoised.npy"
        _, piece_peak = denoise(options, folder / f"{name}.npy", result, [])
        rows, columns = inner(top, HEIGHT), inner(left, WIDTH)
        piece = np.load(result)
        there = np.ascontiguousarray(whole[:, top : top + piece.shape[1], left : left + piece.shape[2]][:, rows, columns])
        here = np.ascontiguousarray(piece[:, rows, columns])
        row["pieces"][name] = {
            "top": top,
            "left": left,
            "sides": piece.shape[1:],
            "compared_pixels": here[0].size,
            "equal_bits": bool(np.array_equal(here.view(np.uint32), there.view(np.uint32))),
            "largest_difference": float(np.abs(here - there).max()),
            "peak_bytes": piece_peak,
        }
        print(name, json.dumps(row["pieces"][name]), flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(row, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["make", "run"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--program", type=Path, default=Path("target/release/haloscope"))
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    {"make": make, "run": run}[options.what](options)


if __name__ == "__main__":
    main()
