"""Make the volumes that the volume denoiser learns from, once, as cubes that the training holds in memory.

There are three sources: a part of a brain scan, procedural phantoms, and photographs whose slices shift, turn and grow
along depth. Nothing comes from `mni152_t1`, nor from the front of `ch2better`: these are for evaluation.
"""

import argparse
import gzip
import hashlib
import os
import struct
from pathlib import Path

import numpy as np
from PIL import Image

from patches import scaled

SIZE = 48
VALIDATION_SIZE = 40
COUNTS = {"brain": 500, "phantom": 900, "photo": 400}
VALIDATION = {"brain": 4, "phantom": 5, "photo": 3}
# Coronal planes of ch2better, from back to front: training, a gap, validation, a gap; the rest, from 226 on, is for
# evaluation.
TRAINING_PLANES = slice(0, 176)
VALIDATION_PLANES = slice(180, 222)
# One photograph in so many is for validation, chosen by its hash.
HELD_OUT = 12


def nifti(path):
    """A NIfTI-1 volume as (z, y, x) in 0…1: what is brightest, but for one voxel in a thousand, is 1."""
    data = gzip.decompress(Path(path).read_bytes())
    x, y, z = struct.unpack_from("<3h", data, 42)
    kind = {2: np.uint8, 4: np.int16, 16: np.float32}[struct.unpack_from("<h", data, 70)[0]]
    offset = int(struct.unpack_from("<f", data, 108)[0])
    volume = np.frombuffer(data, kind, x * y * z, offset).reshape(z, y, x).astype(np.float32)
    volume -= volume.min()
    return np.clip(volume / np.quantile(volume[volume > 0], 0.999), 0, 1)


def grid(size):
    """Coordinates of the voxels of a cube, (3, size, size, size), its centre at 0."""
    line = np.arange(size, dtype=np.float32) - (size - 1) / 2
    return np.stack(np.meshgrid(line, line, line, indexing="ij"))


def turn(random):
    """A random rotation, or half of the time none."""
    if random.random() < 0.5:
        return np.eye(3, dtype=np.float32)
    rotation, _ = np.linalg.qr(random.normal(size=(3, 3)))
    return rotation.astype(np.float32)


def interpolate(image, places):
    """An image or volume at places (axes, …), linear in between, its border beyond it."""
    axes = image.ndim
    low, part = [], []
    for axis in range(axes):
        place = np.clip(places[axis], 0, image.shape[axis] - 1.001)
        low.append(place.astype(np.int32))
        part.append((place - low[-1]).astype(np.float32))
    result = np.zeros(places.shape[1:], np.float32)
    for corner in np.ndindex(*(2,) * axes):
        weight = np.ones_like(result)
        for axis, step in enumerate(corner):
            weight *= part[axis] if step else 1 - part[axis]
        result += weight * image[tuple(low[a] + corner[a] for a in range(axes))]
    return result


def halved(volume):
    z, y, x = (side // 2 * 2 for side in volume.shape)
    return volume[:z, :y, :x].reshape(z // 2, 2, y // 2, 2, x // 2, 2).mean((1, 3, 5))


def brain(resolutions, size, random):
    """A cube of a scan at one of two resolutions, some of them turned and enlarged; mostly not of empty space."""
    while True:
        source = resolutions[random.integers(2)]
        step = np.float32(random.uniform(0.7, 1.0))
        rotation = turn(random)
        if random.random() < 0.5:
            step, rotation = np.float32(1), np.eye(3, dtype=np.float32)
        reach = np.minimum(size / 2 * step + 1, np.array(source.shape) / 2 - 1)
        centre = random.uniform(reach, np.array(source.shape) - reach)
        if step == 1:
            centre = np.floor(centre) + (size % 2 == 0) / 2
        places = np.tensordot(rotation * step, grid(size), 1)
        cube = interpolate(source, places + centre.astype(np.float32)[:, None, None, None])
        if (cube > 0.05).mean() > 0.3 or random.random() < 0.05:
            return cube


def field(size, random):
    """A random smooth field of mean 0 and deviation 1, rougher or smoother."""
    frequency = np.sqrt(sum(f**2 for f in np.meshgrid(*[np.fft.fftfreq(size)] * 3, indexing="ij")))
    amplitude = (frequency + 0.02) ** -random.uniform(1.2, 3.0) * np.exp(-((frequency / random.uniform(0.05, 0.4)) ** 2))
    amplitude[0, 0, 0] = 0
    noise = np.fft.ifftn(np.fft.fftn(random.normal(size=(size,) * 3)) * amplitude).real
    return (noise / noise.std()).astype(np.float32)


def step(distance, width):
    """1 where the distance to a surface is negative (inside), 0 outside, with an edge of this width."""
    return np.clip(0.5 - distance / width, 0, 1)


def ellipsoids(size, random):
    result = np.full((size,) * 3, random.uniform(0, 0.4) * (random.random() < 0.5), np.float32)
    additive = random.random() < 0.5
    places, width = grid(size), random.uniform(0.2, 1.5)
    for _ in range(random.integers(3, 25)):
        radii = size * np.exp(random.uniform(np.log(0.03), np.log(0.5), 3))
        centre = random.uniform(-size / 2, size / 2, 3)
        local = np.tensordot(turn(random), places, 1) - centre[:, None, None, None]
        norm = np.sqrt(sum((local[a] / radii[a]) ** 2 for a in range(3)))
        inside = step((norm - 1) * radii.min(), width)
        if additive:
            result += random.uniform(-0.3, 0.4) * inside
        else:
            result += (random.uniform(0, 1) - result) * inside
    return result


def polyhedra(size, random):
    result = np.full((size,) * 3, random.uniform(0, 1), np.float32)
    places, width = grid(size), random.uniform(0.2, 1.5)
    for _ in range(random.integers(2, 10)):
        centre = random.uniform(-size / 2, size / 2, 3)
        distance = np.full((size,) * 3, -np.inf, np.float32)
        for _ in range(random.integers(2, 8)):
            normal = random.normal(size=3)
            normal /= np.linalg.norm(normal)
            reach = random.uniform(0.03, 0.4) * size
            distance = np.maximum(distance, np.tensordot(normal, places - centre[:, None, None, None], 1) - reach)
        result += (random.uniform(0, 1) - result) * step(distance, width)
    return result


def cells(size, random):
    """Voronoi cells: grains of different gray, or the walls of a foam."""
    points = random.uniform(-0.6 * size, 0.6 * size, (random.integers(10, 150), 3)).astype(np.float32)
    gray = random.uniform(0, 1, len(points)).astype(np.float32)
    places = grid(size).reshape(3, -1)
    nearest = np.full(places.shape[1], np.inf, np.float32)
    second, index = nearest.copy(), np.zeros(places.shape[1], np.int32)
    for number, point in enumerate(points):
        distance = np.sqrt(((places - point[:, None]) ** 2).sum(0))
        closer = distance < nearest
        second = np.where(closer, nearest, np.minimum(second, distance))
        index = np.where(closer, number, index)
        nearest = np.minimum(nearest, distance)
    walls = step(second - nearest - random.uniform(0.5, 4), 1.0)
    kind = random.integers(3)
    grains = gray[index] if kind < 2 else np.float32(random.uniform(0, 0.3))
    result = grains if kind == 0 else grains + (random.uniform(0.3, 1) - grains) * walls
    return result.reshape((size,) * 3)


def bubbles(size, random):
    places, width = grid(size), random.uniform(0.3, 1.5)
    inner, outer = random.uniform(0, 1, 2)
    distance = np.full((size,) * 3, np.inf, np.float32)
    for _ in range(random.integers(5, 60)):
        centre = random.uniform(-size / 2, size / 2, 3)
        radius = size * np.exp(random.uniform(np.log(0.02), np.log(0.25)))
        distance = np.minimum(distance, np.sqrt(((places - centre[:, None, None, None]) ** 2).sum(0)) - radius)
    return (outer + (inner - outer) * step(distance, width)).astype(np.float32)


def vessels(size, random):
    result = np.full((size,) * 3, random.uniform(0, 0.5), np.float32)
    places, width = grid(size), random.uniform(0.3, 1.5)
    for _ in range(random.integers(1, 6)):
        place, heading = random.uniform(-size / 2, size / 2, 3), random.normal(size=3)
        radius = np.exp(random.uniform(np.log(0.5), np.log(4)))
        distance = np.full((size,) * 3, np.inf, np.float32)
        for _ in range(60):
            heading = heading / np.linalg.norm(heading) + 0.25 * random.normal(size=3)
            place = place + max(1.0, 0.5 * radius) * heading / np.linalg.norm(heading)
            radius *= 0.995
            distance = np.minimum(distance, np.sqrt(((places - place[:, None, None, None]) ** 2).sum(0)) - radius)
        result += (random.uniform(0.3, 1) - result) * step(distance, width)
    return result


def clouds(size, random):
    smooth = field(size, random)
    kind = random.integers(3)
    if kind == 0:
        return 0.5 + 0.2 * smooth
    width = random.uniform(0.02, 0.3)
    levels = sum(step(-(smooth - level), width) for level in random.normal(size=random.integers(1, 4)))
    return (levels / max(1.0, levels.max())).astype(np.float32)


def phantom(size, random):
    """One of the above, or one within another, with or without texture and shading."""
    kinds = [ellipsoids, polyhedra, cells, bubbles, vessels, clouds]
    result = kinds[random.integers(len(kinds))](size, random)
    if random.random() < 0.3:
        mask = clouds(size, random)
        result = result + (kinds[random.integers(len(kinds))](size, random) - result) * mask
    if random.random() < 0.4:
        result = result + random.uniform(0.01, 0.1) * field(size, random)
    low, high = result.min(), result.max()
    black = random.uniform(0, 0.3) * (random.random() < 0.5)
    white = random.uniform(0.5, 1)
    return black + (result - low) / max(high - low, 1e-3) * max(white - black, 0.1)


def photo(image, size, random):
    """A photograph whose slices move with depth: a sheared, turned or rippled extrusion of it."""
    places = np.tensordot(turn(random), grid(size), 1)
    z, y, x = places
    growth = 1 + random.uniform(-0.01, 0.01) * z
    angle = random.uniform(-0.02, 0.02) * z
    y, x = growth * (np.cos(angle) * y - np.sin(angle) * x), growth * (np.sin(angle) * y + np.cos(angle) * x)
    for axis in range(2):
        moved = random.normal() * 0.5 * z
        wave = random.uniform(0, 3) * np.sin(random.uniform(0.05, 0.3) * z + random.uniform(0, 6))
        bend = random.uniform(0, 2) * np.sin(0.15 * random.normal() * x + 0.15 * random.normal() * y + 0.1 * z)
        if axis == 0:
            y = y + moved + wave + bend
        else:
            x = x + moved + wave + bend
    margin = size * 0.9
    sides = np.array(image.shape, np.float32)
    centre = random.uniform(np.minimum(margin, sides / 2), np.maximum(sides - margin, sides / 2))
    return interpolate(image, np.stack([y + centre[0], x + centre[1]]).astype(np.float32))


def stacks(photos, count, size, random):
    result = []
    while len(result) < count:
        path = photos[random.integers(len(photos))]
        gray = scaled(path, random).astype(np.float32) @ np.array([0.299, 0.587, 0.114], np.float32) / 255
        for _ in range(4):
            cube = photo(gray, size, random)
            texture = np.mean([np.abs(np.diff(cube, axis=axis)).mean() for axis in range(3)])
            if random.random() < max(0.05, 255 * texture / 6):
                result.append(cube)
    return result[:count]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the cubes go")
    data = Path(os.environ["HALOSCOPE_DATA"])
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    scan = nifti(data / "volumes/ch2better.nii.gz")
    paths = sorted((data / "images/free_photos").glob("*.*g"))
    held_out = [path for path in paths if int(hashlib.sha256(path.read_bytes()).hexdigest()[:8], 16) % HELD_OUT == 0]
    learnt = [path for path in paths if path not in held_out]
    print(len(learnt), "photographs; for validation", [path.name for path in held_out])
    for name, counts, size, planes, photos, seed in [
        ("validation", VALIDATION, VALIDATION_SIZE, VALIDATION_PLANES, held_out, 8),
        ("training", COUNTS, SIZE, TRAINING_PLANES, learnt, 7),
    ]:
        random = np.random.default_rng(seed)
        resolutions = [scan[:, planes], halved(scan[:, planes])]
        cubes = []
        for number in range(counts["phantom"]):
            cubes.append(phantom(size, random))
            if number % 100 == 0:
                print(name, number, "phantoms", flush=True)
        cubes += [brain(resolutions, size, random) for _ in range(counts["brain"])]
        cubes += stacks(photos, counts["photo"], size, random)
        cubes = np.stack([np.round(255 * np.clip(cube, 0, 1)).astype(np.uint8) for cube in cubes])
        np.save(folder / f"volumes-{name}.npy", cubes)
        print(name, cubes.shape, flush=True)


if __name__ == "__main__":
    main()
