"""The pictures of radio interferometry in docs/gallery.md: the job that `haloscope init radio` writes, run as it is.

    bench/radio_pictures.py --binary target/release/haloscope --folder target/radio-pictures --out docs/gallery

Truth and reconstruction are from 0 to 1; the dirty image, whose sources are smeared over each other, is divided by its largest value. All are drawn by
their square roots, so that faint sources are seen. numpy and pillow are needed.
"""

import argparse
import subprocess
from pathlib import Path

import numpy as np
from PIL import Image


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("binary", "folder", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    command = str(options.binary.resolve())
    subprocess.run([command, "init", "radio", "radio.toml", "--force"], cwd=options.folder, check=True)
    job = options.folder / "radio.toml"
    # Arrays are easier to read here than FITS files.
    job.write_text(job.read_text().replace(".fits", ".npy"))
    subprocess.run([command, "reconstruct", "radio.toml"], cwd=options.folder, check=True)
    found = {name: np.load(options.folder / f"{file}.npy").squeeze() for name, file in
             {"reconstruction": "radio", "dirty": "radio-dirty"}.items()}
    found["dirty"] = found["dirty"] / found["dirty"].max()
    found["truth"] = np.asarray(Image.open(options.folder / "radio/truth.png").convert("L")) / 255
    for name, image in found.items():
        picture = np.round(255 * np.sqrt(np.clip(image, 0, 1))).astype(np.uint8)
        Image.fromarray(picture).save(options.out / f"radio-{name}.png", optimize=True)


if __name__ == "__main__":
    main()
