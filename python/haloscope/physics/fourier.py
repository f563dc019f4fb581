"""Instruments that measure frequencies: MRI, radio interferometry, and the non-uniform transform.

Complex images and measurements are two channels, the real and the imaginary parts, as in deepinv. Operators also take complex arrays of
numpy, without an axis for channels, and give such arrays back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from .. import _haloscope
from .._arrays import ArrayLike, Floats, as_input, shape_of
from .._errors import ArgumentError
from ._base import LinearPhysics
from ._noise import NoiseModel

__all__ = [
    "Cartesian",
    "Nufft",
    "Trajectory",
    "Visibilities",
    "birdcage",
    "density",
    "radial",
    "sensitivities",
    "spiral",
]

_Numbers: TypeAlias = npt.NDArray[np.float64]
_Complex: TypeAlias = npt.NDArray[np.complexfloating[Any, Any]]


class _Frequencies(LinearPhysics):
    """An operator between complex numbers: complex arrays have no axis for channels, and others have one."""

    def A(self, x: ArrayLike) -> Any:
        """What is measured, without noise: complex for a complex image, (spatial...) or (batch, spatial...)."""
        if not _is_complex(x):
            return super().A(x)
        if x.ndim == len(self.img_size) - 1:
            return self.A(x[None])[0]
        return _whole(super().A(_parts(x)))

    def A_adjoint(self, y: ArrayLike) -> Any:
        """``A^H y``: for complex measurements complex, or real if images are."""
        if not _is_complex(y):
            return super().A_adjoint(y)
        if y.ndim == len(self.measurement_size) - 1:
            return self.A_adjoint(y[None])[0]
        back = super().A_adjoint(_parts(y))
        return _whole(back) if self.img_size[0] == 2 else back


class Cartesian(_Frequencies):
    """MRI on a grid of frequencies: ``A(x) = mask * F(coil * x)``, for one coil.

    ``F`` is the orthonormal transform with frequency 0 in the middle. ``img_size`` is (2, spatial...), or (1, spatial...) for real
    images. ``coil`` is complex of the image's sides, or has two channels. A scan of several coils is a :class:`Stack` of such operators.

    >>> import haloscope, numpy
    >>> from haloscope.physics import fourier
    >>> mask = numpy.arange(16) % 2
    >>> scan = fourier.Cartesian((2, 16, 16), mask=numpy.tile(mask[:, None], (1, 16)))
    >>> scan.A(numpy.ones((1, 2, 16, 16), numpy.float32)).shape
    (1, 2, 16, 16)
    >>> scan.A(numpy.ones((1, 16, 16), numpy.complex64)).dtype
    dtype('complex64')
    """

    def __init__(
        self,
        img_size: Sequence[int],
        *,
        coil: ArrayLike | None = None,
        mask: ArrayLike | None = None,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        self._set(_haloscope.cartesian(shape, _map(coil, shape), _one_channel(mask, shape)), noise_model)


class Trajectory(_Frequencies):
    """MRI along any trajectory, for one coil: measurements are (2, sample), or complex of (sample).

    ``points`` is (sample, side), in radians for each pixel. With ``density``, samples are multiplied with the roots of these weights, and
    measured ones must be, too: :meth:`weighted`.

    >>> import haloscope, numpy
    >>> from haloscope.physics import fourier
    >>> points = fourier.radial(20, 32)
    >>> scan = fourier.Trajectory((1, 16, 16), points, density=fourier.density((16, 16), points))
    >>> scan.A(numpy.ones((1, 1, 16, 16), numpy.float32)).shape
    (1, 2, 640)
    """

    def __init__(
        self,
        img_size: Sequence[int],
        points: npt.ArrayLike,
        *,
        coil: ArrayLike | None = None,
        density: npt.ArrayLike | None = None,
        accuracy: float = 1e-5,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        places = _table(points, len(shape) - 1, "points")
        self.density = None if density is None else np.ascontiguousarray(density, np.float64)
        native = _haloscope.trajectory(shape, _map(coil, shape), places, self.density, accuracy)
        self._set(native, noise_model)

    def weighted(self, y: ArrayLike) -> Any:
        """Measured samples, times the roots of the weights."""
        return y if self.density is None else y * np.sqrt(self.density).astype(np.float32)


class Visibilities(_Frequencies):
    """What a radio interferometer measures of the sky, at ``uvw`` (visibility, 3) in wavelengths, with cells of ``cell`` radians.

    Images are real, (1, rows, columns), and measurements (2, visibility), or complex of (visibility), times the roots of ``weights``.

    >>> import haloscope, numpy
    >>> from haloscope.physics import fourier
    >>> telescope = fourier.Visibilities((1, 32, 32), [[0, 0, 0], [800.0, -120.0, 35.0]], cell=5e-4)
    >>> bool(abs(telescope.A(numpy.ones((1, 1, 32, 32), numpy.float32))[0, 0, 0] - 1024) < 1)
    True
    """

    def __init__(
        self,
        img_size: Sequence[int],
        uvw: npt.ArrayLike,
        cell: float,
        *,
        weights: npt.ArrayLike | None = None,
        beam: ArrayLike | None = None,
        accuracy: float = 1e-5,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        self.weights = None if weights is None else np.ascontiguousarray(weights, np.float64)
        places = _table(uvw, 3, "uvw")
        native = _haloscope.visibilities(shape, places, cell, self.weights, _one_channel(beam, shape), accuracy)
        self._set(native, noise_model)

    def weighted(self, y: ArrayLike) -> Any:
        """Measured visibilities, times the roots of the weights."""
        return y if self.weights is None else y * np.sqrt(self.weights).astype(np.float32)


class Nufft:
    """The non-uniform transform in double precision: ``f_j = sum_k x_k exp(-i points_j . k)``, with ``k`` from 0 in the middle.

    ``points`` is (sample, side) in radians, and ``accuracy`` the relative error.

    >>> import numpy
    >>> from haloscope.physics import fourier
    >>> transform = fourier.Nufft((8, 8), numpy.zeros((3, 2)))
    >>> transform.forward(numpy.ones((8, 8))).real.round(6).tolist()
    [64.0, 64.0, 64.0]
    """

    def __init__(self, sides: Sequence[int], points: npt.ArrayLike, *, accuracy: float = 1e-9) -> None:
        self.sides = tuple(shape_of(sides, "sides"))
        self._native = _haloscope.Nufft(list(self.sides), _table(points, len(self.sides), "points"), accuracy)

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self._native.samples

    def forward(self, image: npt.ArrayLike) -> npt.NDArray[np.complex128]:
        """The samples (sample) of an image of these sides."""
        values = np.asarray(image, np.complex128)
        if values.shape != self.sides:
            raise ArgumentError(f"image: an array of shape {values.shape} is given; {self.sides} is accepted")
        return self._native.forward(values)

    def adjoint(self, samples: npt.ArrayLike) -> npt.NDArray[np.complex128]:
        """What samples (sample) give to an image."""
        values = np.asarray(samples, np.complex128)
        if values.shape != (self.samples,):
            raise ArgumentError(f"samples: an array of shape {values.shape} is given; ({self.samples},) is accepted")
        return self._native.adjoint(values)

    def __repr__(self) -> str:
        return f"Nufft(sides={self.sides}, samples={self.samples})"


def radial(spokes: int, samples: int, first: float = 0.0) -> _Numbers:
    """The points of a radial scan, (sample, 2): lines through frequency 0 at golden angles from ``first`` (radians).

    >>> from haloscope.physics import fourier
    >>> fourier.radial(3, 8).shape
    (24, 2)
    """
    return _haloscope.radial_points(spokes, samples, first)


def spiral(
    sides: Sequence[int],
    interleaves: int,
    *,
    samples: int | None = None,
    turns: float | None = None,
    power: float = 1.0,
    golden: bool = False,
) -> _Numbers:
    """The points of a spiral scan, (sample, 2): arms from frequency 0 outwards.

    They leave no gaps unless ``turns``, ``samples`` or ``golden`` say so: golden angles leave wider gaps between some arms.

    ``power`` is how fast the radius grows: 1 for an Archimedean spiral, more for one that is denser in the middle. ``golden`` turns each
    arm by the golden angle.

    >>> from haloscope.physics import fourier
    >>> fourier.spiral((16, 16), 2, samples=50).shape
    (100, 2)
    """
    return _haloscope.spiral_points(shape_of(sides, "sides"), interleaves, samples, turns, power, golden)


def density(sides: Sequence[int], points: npt.ArrayLike) -> _Numbers:
    """Weights of samples against their density, by Pipe and Menon's iteration.

    >>> from haloscope.physics import fourier
    >>> weights = fourier.density((16, 16), fourier.radial(20, 32))
    >>> bool(weights[16] < weights[0])  # the middle of a spoke, where all meet, and its end
    True
    """
    lengths = shape_of(sides, "sides")
    return _haloscope.density(lengths, _table(points, len(lengths), "points"))


def birdcage(sides: Sequence[int], coils: int) -> _Complex:
    """Sensitivities of the coils of a simulated birdcage, (coil, spatial...).

    >>> from haloscope.physics import fourier
    >>> fourier.birdcage((16, 16), 4).shape
    (4, 16, 16)
    """
    maps = [_haloscope.birdcage_map(shape_of(sides, "sides"), coils, coil) for coil in range(coils)]
    return np.stack([part[0] + 1j * part[1] for part in maps])


def sensitivities(
    measured: ArrayLike,
    *,
    width: int | None = None,
    kernel: int | None = None,
    threshold: float = 0.02,
    crop: float = 0.95,
) -> _Complex:
    """Sensitivities of coils from the middle of the frequencies that they measured, (coil, spatial...), by ESPIRiT.

    ``measured`` is complex, (coil, spatial...), with frequency 0 in the middle, of which all frequencies of a square or cube of ``width``
    are there. By default, ``width`` and the side ``kernel`` of windows are 24 and 6 for planes and 16 and 4 for volumes.

    >>> import numpy
    >>> from haloscope.physics import fourier
    >>> maps, disk = fourier.birdcage((32, 32), 3), numpy.hypot(*numpy.mgrid[-16:16, -16:16]) < 12
    >>> found = fourier.sensitivities(numpy.stack([fourier.Cartesian((2, 32, 32)).A(m * disk) for m in maps]))
    >>> bool(abs(abs(found[:, 16, 16]) - abs(maps[:, 16, 16])).max() < 0.02)
    True
    """
    array = np.asarray(measured)
    if array.dtype.kind != "c":
        raise ArgumentError(f"measured: an array of {array.dtype} is given; complex numbers (coil, spatial...) are accepted")
    parts = [as_input(np.stack([coil.real, coil.imag])) for coil in array]
    maps = _haloscope.sensitivities(parts, width, kernel, threshold, crop)
    return np.stack([part[0] + 1j * part[1] for part in maps])


def _is_complex(x: ArrayLike) -> bool:
    return isinstance(x, np.ndarray) and x.dtype.kind == "c"


def _parts(x: _Complex) -> Floats:
    """(batch, ...) as (batch, 2, ...)."""
    return as_input(np.stack([x.real, x.imag], axis=1))


def _whole(parts: Floats) -> _Complex:
    result: _Complex = parts[:, 0] + np.complex64(1j) * parts[:, 1]
    return result


def _map(coil: ArrayLike | None, shape: list[int]) -> Floats | None:
    """A sensitivity as (2, spatial...) or (1, spatial...)."""
    if coil is None:
        return None
    if _is_complex(coil):
        return as_input(np.stack([coil.real, coil.imag]))
    return _one_channel(coil, shape)


def _one_channel(values: ArrayLike | None, shape: list[int]) -> Floats | None:
    """Values of all pixels as (channel, spatial...)."""
    if values is None:
        return None
    array = as_input(values)
    return array[None] if array.ndim == len(shape) - 1 else array


def _table(values: npt.ArrayLike, each: int, what: str) -> _Numbers:
    """Numbers of something along a last axis."""
    array = np.ascontiguousarray(values, np.float64)
    if array.ndim != 2 or array.shape[1] != each:
        raise ArgumentError(f"{what}: an array of shape {array.shape} is given; (sample, {each}) is accepted")
    return array
