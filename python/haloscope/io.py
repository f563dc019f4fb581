"""Files and phantoms."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _haloscope
from ._arrays import ArrayLike, Floats, as_input
from ._errors import ArgumentError

__all__ = ["RawScan", "Scan", "phantom", "read", "read_ismrmrd", "read_scan", "write"]


def read(
    path: str | os.PathLike[str],
    *,
    axes: Literal["automatic", "spatial", "channel-first", "channel-last", "as-stored"] = "automatic",
    raw: bool = False,
    dataset: str | None = None,
    region: Sequence[slice] | None = None,
) -> Floats:
    """The array in a PNG, JPEG, TIFF, NPY, NPZ, NIfTI, FITS or HDF5 file, as (batch, channel, spatial...).

    Unsigned integers become 0 to 1 unless ``raw``. ``dataset`` names the array in NPZ and HDF5 files. ``region`` has a slice for
    each spatial axis, and only that part is read: of NPY, NIfTI, FITS and uncompressed TIFF files the values themselves, of HDF5 and
    compressed TIFF files the chunks that have some of them. PNG, JPEG, NPZ and ``.nii.gz`` files are unpacked in bands.

    >>> import haloscope, tempfile, os
    >>> path = os.path.join(tempfile.mkdtemp(), "image.npy")
    >>> haloscope.io.write(path, haloscope.io.phantom.landscape(32, 48))
    >>> haloscope.io.read(path).shape
    (1, 3, 32, 48)
    >>> haloscope.io.read(path, region=[slice(0, 8), slice(16, 32)]).shape
    (1, 3, 8, 16)
    """
    name = os.fspath(path)
    if region is None:
        return _haloscope.read(name, axes, raw, dataset, None)
    shape = _haloscope.read_shape(name, axes, raw, dataset)
    sides = shape if axes == "as-stored" else shape[2:]
    if len(region) > len(sides):
        raise ArgumentError(f"region: {len(region)} slices are given; the array has {len(sides)} axes to cut: {sides}")
    for part in region:
        if not isinstance(part, slice):
            raise ArgumentError(f"region: {part!r} is given; a slice for each axis is expected, such as slice(0, 64)")
    wanted = list(region) + [slice(None)] * (len(sides) - len(region))
    steps, ranges = [], []
    for axis, (part, side) in enumerate(zip(wanted, sides)):
        first, last, step = part.indices(side)
        indices = range(first, last, step)
        if not indices:
            raise ArgumentError(f"region: {part} has nothing of axis {axis}, which is {side} long")
        ranges.append((min(indices[0], indices[-1]), max(indices[0], indices[-1]) + 1))
        steps.append(slice(None, None, step))
    array = _haloscope.read(name, axes, raw, dataset, ranges)
    if all(part.step == 1 for part in steps):
        return array
    every: Any = (..., *steps)
    return np.ascontiguousarray(array[every])


def write(path: str | os.PathLike[str], x: ArrayLike, *, dtype: str | None = None, raw: bool = False) -> None:
    """Writes an array; the ending of the name decides the format, and the file is whole or not there.

    ``dtype`` is the type of the samples (``"uint16"``), by default what the format suggests. ``raw`` writes values as they are
    instead of 0 to 1 as the whole range of integers.

    >>> import haloscope, tempfile, os
    >>> haloscope.io.write(os.path.join(tempfile.mkdtemp(), "image.png"), haloscope.io.phantom.landscape(32, 48))
    """
    _haloscope.write(os.fspath(path), as_input(x), dtype, raw)


@dataclass(frozen=True)
class Scan:
    """Projections of a Data Exchange file, with what belongs to them.

    >>> import haloscope
    >>> haloscope.io.Scan.__doc__.splitlines()[0]
    'Projections of a Data Exchange file, with what belongs to them.'
    """

    #: As measured.
    projections: Floats
    #: Without object, with beam.
    white: Floats | None
    #: Without beam.
    dark: Floats | None
    #: Attenuation along each ray: what a :class:`~haloscope.physics.Tomography` measures.
    line_integrals: Floats
    #: In degrees, as tomography operators take them.
    angles: list[float]


def read_scan(path: str | os.PathLike[str]) -> Scan:
    """Projections, flat and dark frames and angles of a Data Exchange file, as tomopy reads them.

    >>> import haloscope
    >>> haloscope.io.read_scan("absent.h5")
    Traceback (most recent call last):
    ...
    haloscope.FileError: absent.h5: No such file or directory (os error 2)
    """
    found = _haloscope.read_scan(os.fspath(path))
    angles = [float(np.degrees(angle)) for angle in found["angles"]]
    return Scan(found["projections"], found["white"], found["dark"], found["line_integrals"], angles)


@dataclass(frozen=True)
class RawScan:
    """A slice or volume of an ISMRMRD file: what each coil measured, and where.

    >>> import haloscope
    >>> haloscope.io.RawScan.__doc__.splitlines()[0]
    'A slice or volume of an ISMRMRD file: what each coil measured, and where.'
    """

    #: Complex, (coil, ky, kx) or (coil, kz, ky, kx) with frequency 0 in the middle and zeros where nothing was measured; (coil, sample)
    #: of scans along trajectories.
    coils: npt.NDArray[np.complex64]
    #: 1 where a frequency was measured; none of scans along trajectories.
    mask: Floats | None
    #: (sample, side) in radians for each pixel; none of scans on grids.
    points: npt.NDArray[np.float64] | None
    #: The sides of the image.
    sides: tuple[int, ...]
    #: Like ``coils``, of lines for calibration alone, if there are some.
    calibration: npt.NDArray[np.complex64] | None
    #: The standard deviation of real and imaginary parts in scans of noise, if there are some.
    noise: float | None


def read_ismrmrd(
    path: str | os.PathLike[str], *, group: str = "dataset", slice: int = 0, keep_oversampling: bool = False  # noqa: A002
) -> RawScan:
    """An MRI scan in a file of ISMRMRD: lines are sorted, averaged and brought to the field of view of the image.

    >>> import haloscope
    >>> haloscope.io.read_ismrmrd("absent.h5")
    Traceback (most recent call last):
    ...
    haloscope.FileError: absent.h5: No such file or directory (os error 2)
    """
    found = _haloscope.read_ismrmrd(os.fspath(path), group, slice, keep_oversampling)

    def whole(coils: list[Floats]) -> npt.NDArray[np.complex64]:
        return np.stack([part[0] + np.complex64(1j) * part[1] for part in coils])

    calibration = None if found.calibration is None else whole(found.calibration)
    mask = None if found.mask is None else found.mask[0]
    return RawScan(whole(found.coils), mask, found.points, tuple(found.sides), calibration, found.noise)


class phantom:  # noqa: N801  (a namespace)
    """Images to try things out with.

    >>> import haloscope
    >>> haloscope.io.phantom.shepp_logan((32, 32)).shape
    (1, 1, 32, 32)
    """

    @staticmethod
    def landscape(height: int, width: int) -> Floats:
        """A colour photograph, drawn: (1, 3, height, width), from 0 to 1.

        >>> import haloscope
        >>> haloscope.io.phantom.landscape(32, 48).shape
        (1, 3, 32, 48)
        """
        return _haloscope.landscape(height, width)

    @staticmethod
    def shepp_logan(sides: Sequence[int]) -> Floats:
        """The head phantom of Shepp and Logan, as a slice or a volume.

        >>> import haloscope
        >>> haloscope.io.phantom.shepp_logan((16, 16, 16)).shape
        (1, 1, 16, 16, 16)
        """
        return _haloscope.shepp_logan(list(sides))
