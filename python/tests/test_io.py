"""Regions of files, of which nothing else is read."""

import pathlib
import subprocess
import sys

import haloscope
import numpy as np
import pytest

VOLUME = np.random.default_rng(0).random((1, 1, 9, 20, 30), dtype=np.float32)


@pytest.mark.parametrize("ending", ["npy", "npz", "nii", "nii.gz", "fits", "tif", "h5"])
def test_regions_are_those_of_the_whole(tmp_path: pathlib.Path, ending: str) -> None:
    path = tmp_path / f"volume.{ending}"
    haloscope.io.write(path, VOLUME)
    whole = haloscope.io.read(path)
    regions = [
        (slice(2, 5), slice(None), slice(-4, None)),
        (slice(None, None, 2), slice(3, 11, 3), slice(None)),
        (slice(7, 2, -2),),
        (),
    ]
    for region in regions:
        np.testing.assert_array_equal(haloscope.io.read(path, region=region), whole[(slice(None), slice(None), *region)])


def test_pictures_have_regions(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.png"
    haloscope.io.write(path, haloscope.io.phantom.landscape(40, 50))
    part = haloscope.io.read(path, region=(slice(5, 9), slice(10, 50, 4)))
    np.testing.assert_array_equal(part, haloscope.io.read(path)[..., 5:9, 10:50:4])


def test_a_region_is_made_of_slices(tmp_path: pathlib.Path) -> None:
    haloscope.io.write(tmp_path / "image.npy", haloscope.io.phantom.landscape(8, 8))
    with pytest.raises(haloscope.ArgumentError, match=r"region: 0 .*slice\(0, 64\)"):
        haloscope.io.read(tmp_path / "image.npy", region=(0,))  # type: ignore[list-item]


def test_regions_that_are_not_there_are_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "image.npy"
    haloscope.io.write(path, haloscope.io.phantom.landscape(8, 8))
    with pytest.raises(haloscope.ArgumentError, match="3 slices"):
        haloscope.io.read(path, region=(slice(1),) * 3)
    with pytest.raises(haloscope.ArgumentError, match="nothing of axis 1"):
        haloscope.io.read(path, region=(slice(None), slice(20, 30)))


def test_a_region_of_a_file_that_is_larger_than_memory_takes_its_own_memory(tmp_path: pathlib.Path) -> None:
    """64 GB of values, of which the disk holds what is written here."""
    path = tmp_path / "huge.npy"
    shape = (4000, 2000, 2000)
    huge = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
    huge[3000, 1000:1010, 500:520] = np.arange(200, dtype=np.float32).reshape(10, 20)
    del huge
    if path.stat().st_blocks * 512 > 1 << 30:
        pytest.skip("this file system has no sparse files")
    program = """
import resource, sys
import haloscope, numpy
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
part = haloscope.io.read(sys.argv[1], region=(slice(3000, 3001), slice(1000, 1010), slice(500, 520)))
assert part.shape == (1, 1, 1, 10, 20)
assert (part.ravel() == numpy.arange(200)).all()
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, open("/proc/self/io").read().split()[1])
"""
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    kilobytes, read_bytes = (int(word) for word in done.stdout.split())
    assert kilobytes < 100_000
    # Python itself reads its modules; the slice alone is 16 MB.
    assert read_bytes < 400_000_000
    with pytest.raises(haloscope.FileError, match="elements"):
        haloscope.io.read(path, region=(slice(None),))
