"""Cut the photographs into patches that the training holds in memory.

Decoding and scaling photographs would take the cores that training needs, so it is done once.
Wallpapers are smooth at full size and largely out of focus: each one is scaled down by a random
factor, with antialiasing, to the detail per pixel of the photographs that the denoiser will meet,
and flat patches are mostly left out, because they teach nothing after the first thousand.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image

import photos

SIZE = 128
SCALES = 3
PER_SCALE = 28
# Mean absolute difference between neighbours, of 255, from which a patch is always taken.
TEXTURED = 8.0
# One photograph in so many is held out for validation, chosen by its hash.
HELD_OUT = 20


def scaled(path, random):
    """The photograph at a random smaller size: longer side 500 to 1400, at least 1.5 times down."""
    image = Image.open(path)
    longer = max(image.size)
    target = min(np.exp(random.uniform(np.log(500), np.log(1400))), longer / 1.5)
    # JPEG can decode at a fraction for a fraction of the time; twice the target loses nothing.
    image.draft("RGB", tuple(int(2 * side * target / longer) for side in image.size))
    size = tuple(max(SIZE, round(side * target / longer)) for side in image.size)
    kernel = [Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BOX]
    resized = image.convert("RGB").resize(size, kernel[random.integers(3)])
    return np.asarray(resized)


def texture(patch):
    luma = patch.astype(np.float32).mean(2)
    return (np.abs(np.diff(luma, axis=0)).mean() + np.abs(np.diff(luma, axis=1)).mean()) / 2


def cut(image, count, random):
    """Up to `count` patches at random places, textured ones first to be accepted."""
    height, width = image.shape[:2]
    taken = []
    for _ in range(2 * count):
        y, x = random.integers(height - SIZE + 1), random.integers(width - SIZE + 1)
        patch = image[y : y + SIZE, x : x + SIZE]
        if random.random() < max(0.05, texture(patch) / TEXTURED) and len(taken) < count:
            taken.append(patch)
    return taken


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="as for photos.py")
    folder = Path(parser.parse_args().folder)
    random = np.random.default_rng(7)
    training, validation = [], []
    for number, row in enumerate(photos.rows("photos.tsv")):
        path = photos.path_of(row, folder)
        if int(row["sha256"][:8], 16) % HELD_OUT == 0:
            validation += cut(scaled(path, random), 2, random)
            continue
        for _ in range(SCALES):
            training += cut(scaled(path, random), PER_SCALE, random)
        if number % 50 == 0:
            print(number, "photographs,", len(training), "patches", flush=True)
    random.shuffle(training)
    np.save(folder / "training.npy", np.stack(training))
    np.save(folder / "validation.npy", np.stack(validation))
    print(len(training), "training and", len(validation), "validation patches")


if __name__ == "__main__":
    main()
