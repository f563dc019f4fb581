#!/usr/bin/env python3
"""A photograph of 100 megapixels, denoised with DRUNet within a budget of memory, and compared with the whole network.

    large_photograph.py make FOLDER --photographs PHOTOGRAPHS
    large_photograph.py run FOLDER --weights drunet.safetensors --program HALOSCOPE [--budget 4GB] --out RESULT.json
    large_photograph.py exact FOLDER --weights drunet.safetensors --program HALOSCOPE [--budget 4GB] --out RESULT.json
    large_photograph.py compare FOLDER --weights drunet.safetensors --program HALOSCOPE --out RESULT.json

`make` writes a mosaic of photographs of 8736 × 11648 pixels in colour with noise of 25/255, and three strips of it: its first rows, some of the
middle, and its last. `run` denoises the mosaic with `haloscope denoise --memory-budget --scratch`. `exact` denoises the first strip in the same
way and without a budget, on which the network is whole (this takes 9 GB): all bits must be equal. `compare` denoises all strips
whole and compares them with the mosaic, further from their cut sides than the network sees. There the last digits differ: the fastest
method of a layer depends on the sides of the image, and a strip is not as high as the mosaic.
The result has the seconds, the peak (VmHWM) of the process, the most that its scratch files took, what it said, and for `exact` and each strip whether all bits are equal, and the largest difference.
"""

import argparse
import json
import stat
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


def scratch_bytes(pid):
    """What the files of a process without a name take on the disk: those of its scratch folder."""
    total = 0
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            status = entry.stat()
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 0:
            total += status.st_blocks * 512
    return total


def denoise(options, source, result, more):
    """Runs the command and returns its seconds, its peak of resident memory in bytes, that of its scratch files, and what it says."""
    level = ["--axes", "channel-first", "--sigma", str(LEVEL), "--threads", str(options.threads)]
    command = [str(options.program), "denoise", str(source), "--out", str(result), "--model", str(options.weights), *level, *more]
    begin = time.time()
    log = options.folder / "log.txt"
    with open(log, "w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output)
    peak = scratch = 0
    while process.poll() is None:
        try:
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            peak = max([peak] + [int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM")])
            scratch = max(scratch, scratch_bytes(process.pid))
        except OSError:
            pass
        time.sleep(0.05)
    said = log.read_text()
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    return {"seconds": round(time.time() - begin, 1), "peak_bytes": peak, "scratch_bytes": scratch, "said": said.splitlines()}


def budget(options):
    scratch = options.folder / "scratch"
    scratch.mkdir(exist_ok=True)
    return ["--memory-budget", options.budget, "--scratch", str(scratch)]


def run(options):
    folder, found = options.folder, options.folder / "denoised.npy"
    row = {"height": HEIGHT, "width": WIDTH, "budget": options.budget}
    row |= denoise(options, folder / "noisy.npy", found, budget(options))
    print(json.dumps(row), flush=True)
    write(options.out, row)


def exact(options):
    name = next(iter(STRIPS))
    source, row = options.folder / f"{name}.npy", json.loads(options.out.read_text())
    row["exact"] = {"strip": name}
    images = []
    for kind, more in {"whole": [], "within": budget(options)}.items():
        result = options.folder / f"{name} {kind}.npy"
        row["exact"][kind] = denoise(options, source, result, more)
        images.append(np.load(result))
    here, there = images
    row["exact"]["shape"] = list(here.shape)
    row["exact"]["equal_bits"] = bool(np.array_equal(here.view(np.uint32), there.view(np.uint32)))
    row["exact"]["largest_difference"] = float(np.abs(here - there).max())
    print(json.dumps(row["exact"]), flush=True)
    write(options.out, row)
    if not row["exact"]["equal_bits"]:
        sys.exit("the strip within the budget has other bits than the whole one")


def compare(options):
    folder = options.folder
    whole = np.load(folder / "denoised.npy", mmap_mode="r").reshape(3, HEIGHT, WIDTH)
    row = json.loads(options.out.read_text())
    row["strips"] = {}
    for name, top in STRIPS.items():
        result = folder / f"{name} denoised.npy"
        peak = denoise(options, folder / f"{name}.npy", result, [])["peak_bytes"]
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
    parser.add_argument("what", choices=["make", "run", "exact", "compare"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--photographs", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--program", type=Path, default=Path("target/release/haloscope"))
    parser.add_argument("--budget", default="4GB")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    {"make": make, "run": run, "exact": exact, "compare": compare}[options.what](options)


if __name__ == "__main__":
    main()
