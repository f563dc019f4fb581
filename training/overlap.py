"""Check that no training photograph, nor a part of one, is an evaluation image.

By SHA-256 of the files, and by a perceptual hash (signs of differences between neighbours of a
16 x 16 thumbnail: 256 bits) of each evaluation image, also mirrored, against each photograph and
crops of it. Unrelated pictures differ in about 128 bits; a rescaled, recompressed copy in a few.
"""

import argparse

import numpy as np
from PIL import Image, ImageOps

import photos

# Nearer than this is reported as an overlap. Smooth skies come to about 50 without being related.
LIMIT = 32
SHARES = (1.0, 0.8, 0.6, 0.45)
ASPECTS = (3 / 2, 2 / 3, 1.0)


def signs(image):
    """The perceptual hash of an image."""
    small = np.asarray(image.resize((17, 16), Image.Resampling.BOX), np.int16)
    return (small[:, 1:] > small[:, :-1]).reshape(-1)


def thumbnail(path):
    image = Image.open(path)
    image.draft("L", (256, 256))
    image = image.convert("L")
    image.thumbnail((192, 192))
    return image


def crops(image):
    """The whole, and windows of the aspects of the evaluation images over it."""
    yield image
    for share in SHARES:
        for aspect in ASPECTS:
            width = min(image.width, image.height * aspect) * share
            height = width / aspect
            for y in np.arange(0, image.height - height + 1, max(8, height / 6)):
                for x in np.arange(0, image.width - width + 1, max(8, width / 6)):
                    yield image.crop((int(x), int(y), int(x + width), int(y + height)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", required=True, help="as for photos.py")
    folder = parser.parse_args().folder
    images = photos.data_folder() / "images"
    evaluation = sorted((images / "BSDS500" / "val").glob("*.jpg"))
    evaluation += sorted((images / "Kodak24").glob("*.png"))
    evaluation += sorted((images / "Set12").glob("*.png")) + [images / "CBSD_0010.png"]
    digests = {photos.digest(path): path for path in evaluation}
    hashes = []
    for path in evaluation:
        image = thumbnail(path)
        hashes += [signs(image), signs(ImageOps.mirror(image))]
    # Hamming distances as a product of matrices of -1 and 1.
    known = np.stack(hashes).astype(np.float32) * 2 - 1
    nearest, same = [], []
    rows = photos.rows("photos.tsv")
    for row in rows:
        if row["sha256"] in digests:
            same.append(row["path"])
        found = np.stack([signs(crop) for crop in crops(thumbnail(photos.path_of(row, folder)))])
        distances = (known.shape[1] - (found.astype(np.float32) * 2 - 1) @ known.T) / 2
        _, column = np.unravel_index(distances.argmin(), distances.shape)
        nearest.append((int(distances.min()), row["path"], evaluation[column // 2]))
    nearest.sort(key=lambda entry: entry[0])
    print(f"{len(rows)} photographs against {len(evaluation)} evaluation images")
    print(f"same file: {len(same)}", *same)
    print(f"perceptual hash nearer than {LIMIT} of 256 bits:", sum(n[0] < LIMIT for n in nearest))
    print("the nearest:")
    for distance, path, other in nearest[:10]:
        print(f"  {distance:3} bits  {path.rsplit('/', 1)[-1]}  {other.parent.name}/{other.name}")
    if same or nearest[0][0] < LIMIT:
        raise SystemExit("some photographs may be evaluation images: look at them")


if __name__ == "__main__":
    main()
