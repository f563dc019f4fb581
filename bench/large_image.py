"""An image too large for one rank: makes the job, and runs it on processes whose memory is limited.

    large_image.py make FOLDER --photographs PHOTOGRAPHS [--side 16384] [--iterations 5]
    large_image.py run FOLDER --command HALOSCOPE [--launcher "mpirun -n"] [--ranks 4] [--limit 3000] --out RESULT.json

`make` writes truth.npy, measured.npy, kernel.npy, and two job files that differ in where the image is. The image is a mosaic of
photographs in gray, blurred and noisy; it is made in bands, so this program holds a small part of it.

`run` reconstructs it in shards. No process may take more than LIMIT megabytes of address space (`ulimit -v`), in which
the program and its libraries count, too. Then it asks for the image as a whole on one rank, with the same limit and
without, and notes what the command says. The result has the time, the largest memory of each process, and the PSNR.

Needs numpy, scipy and Pillow.
"""

import argparse
import json
import os
import shlex
import subprocess
import time
from pathlib import Path

import numpy as np

BAND = 512
JOB = """image = "{layout}"

[measurements]
files = ["measured.npy"]

[[operators]]
kind = "blur"
kernel = "file"
file = "kernel.npy"
padding = "circular"

[prior]
kind = "total-variation"
weight = 0.001

[solver]
method = "primal-dual"

[stop]
iterations = {iterations}

[output]
file = "{layout}.npy"
"""


def mosaic(photographs, side):
    """Gray rows of photographs, one beside the other, a band at a time."""
    from PIL import Image

    tile = 2048
    files = sorted(path for path in photographs.iterdir() if path.suffix in {".jpg", ".png"})
    for top in range(0, side, tile):
        row = []
        for left in range(0, side, tile):
            place = (top // tile) * -(-side // tile) + left // tile
            picture = Image.open(files[place % len(files)]).convert("L")
            # The shorter side fills the tile; what sticks out is cut.
            scale = tile / min(picture.size)
            width, height = (max(tile, round(length * scale)) for length in picture.size)
            picture = picture.resize((width, height)).crop((0, 0, tile, tile))
            row.append(np.asarray(picture, np.float32) / 255)
        band = np.concatenate(row, axis=1)[: side - top, :side]
        yield top, band


def make(arguments):
    """Writes the images and the jobs."""
    from scipy.ndimage import correlate1d

    folder, side = arguments.folder, arguments.side
    folder.mkdir(parents=True, exist_ok=True)

    line = np.exp(-0.5 * (np.arange(-5, 6) / 1.5) ** 2)
    line /= line.sum()
    np.save(folder / "kernel.npy", np.outer(line, line).astype(np.float32))

    truth = np.lib.format.open_memmap(folder / "truth.npy", "w+", np.float32, (side, side))
    for top, band in mosaic(arguments.photographs, side):
        truth[top : top + len(band)] = band

    random = np.random.default_rng(1)
    measured = np.lib.format.open_memmap(folder / "measured.npy", "w+", np.float32, (side, side))
    for top in range(0, side, BAND):
        rows = np.take(truth, range(top - 5, min(top + BAND, side) + 5), axis=0, mode="wrap")
        blurred = correlate1d(correlate1d(rows, line, 0), line, 1, mode="wrap")[5:-5]
        measured[top : top + len(blurred)] = blurred + random.normal(0, 0.02, blurred.shape)

    for layout in ("sharded", "replicated"):
        job = JOB.format(layout=layout, iterations=arguments.iterations)
        (folder / f"{layout}.toml").write_text(job)


def limited(command, megabytes):
    """A command whose process may take so much address space."""
    return ["sh", "-c", f'ulimit -v {megabytes * 1000} && exec "$0" "$@"', *command]


def descendants(process):
    """The processes that a process started, and those that they did."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, IndexError):
                continue
            children.setdefault(parent, []).append(int(entry.name))
    found, rest = [], [process]
    while rest:
        found += children.get(rest[-1], [])
        rest += children.get(rest.pop(), [])
    return found


def peaks(process, name):
    """The largest resident and address space so far of the processes of a program, in bytes."""
    found = {}
    for child in descendants(process):
        try:
            lines = Path(f"/proc/{child}/status").read_text().splitlines()
        except OSError:
            continue
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        if fields["Name"].strip() == name and "VmHWM" in fields:
            found[child] = [int(fields[field].split()[0]) * 1024 for field in ("VmHWM", "VmPeak")]
    return found


def psnr(folder, name):
    """Of an image against the truth, in bands."""
    truth, image = (np.load(folder / file, mmap_mode="r") for file in ("truth.npy", name))
    # A result has a batch and a channel.
    image = image.reshape(truth.shape)
    bands = range(0, len(truth), BAND)
    square = sum(np.square(truth[top : top + BAND] - image[top : top + BAND], dtype=np.float64).sum() for top in bands)
    return float(-10 * np.log10(square / truth.size))


def run(arguments):
    """Reconstructs the image, and notes what it took."""
    folder, command = arguments.folder.resolve(), str(arguments.command.resolve())
    job = limited([command, "reconstruct", str(folder / "sharded.toml"), "--json"], arguments.limit)
    launcher = [*shlex.split(arguments.launcher), str(arguments.ranks)]
    begin = time.monotonic()
    process = subprocess.Popen([*launcher, *job], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    seen = {}
    while process.poll() is None:
        seen.update(peaks(process.pid, Path(command).name))
        time.sleep(0.2)
    seconds = time.monotonic() - begin
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"the run ended with {process.returncode}:\n{output}\n{errors}")
    summary = json.loads(output)

    def says(*words, limit=None):
        words = [command, *words]
        words = limited(words, limit) if limit else words
        ended = subprocess.run(words, capture_output=True, text=True)
        return {"code": ended.returncode, "says": (ended.stdout + ended.stderr).strip().splitlines()}

    whole = str(folder / "replicated.toml")
    result = {
        "side": int(np.load(folder / "truth.npy", mmap_mode="r").shape[0]),
        "ranks": arguments.ranks,
        "limit_megabytes": arguments.limit,
        "seconds": seconds,
        "iterations": summary.get("iterations"),
        "iterating_seconds": summary.get("seconds"),
        "resident_bytes": sorted(resident for resident, _ in seen.values()),
        "address_space_bytes": sorted(space for _, space in seen.values()),
        "psnr_measured_db": psnr(folder, "measured.npy"),
        "psnr_result_db": psnr(folder, "sharded.npy"),
        "bits": summary.get("bits"),
        "check": says("check", str(folder / "sharded.toml"), "--ranks", str(arguments.ranks)),
        "whole_on_one_rank": says("reconstruct", whole),
        "whole_with_the_limit": says("reconstruct", whole, limit=arguments.limit),
    }
    arguments.out.write_text(json.dumps(result, indent=1).replace(str(folder) + os.sep, "") + "\n")
    print(json.dumps({key: value for key, value in result.items() if not isinstance(value, dict)}))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("make", help="write the images and the jobs")
    part.add_argument("folder", type=Path)
    part.add_argument("--photographs", type=Path, required=True)
    part.add_argument("--side", type=int, default=16384)
    part.add_argument("--iterations", type=int, default=5)
    part.set_defaults(run=make)
    part = parts.add_parser("run", help="reconstruct the image in shards")
    part.add_argument("folder", type=Path)
    part.add_argument("--command", type=Path, required=True)
    part.add_argument("--launcher", default="mpirun -n")
    part.add_argument("--ranks", type=int, default=4)
    part.add_argument("--limit", type=int, default=3000, help="megabytes of address space of a process")
    part.add_argument("--out", type=Path, required=True)
    part.set_defaults(run=run)
    arguments = parser.parse_args()
    arguments.run(arguments)


if __name__ == "__main__":
    main()
