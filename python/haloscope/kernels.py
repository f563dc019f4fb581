"""Kernels of blurs, of shape (1, 1, spatial...) and sum 1."""

from __future__ import annotations

from collections.abc import Sequence

from . import _haloscope
from ._arrays import Floats, Size, lengths, numbers

__all__ = ["bicubic", "bilinear", "gaussian", "motion", "random_motion", "uniform"]


def gaussian(sigma: float | Sequence[float] = 1.0, angle: float = 0.0, *, size: Size | None = None) -> Floats:
    """A Gaussian of one width or one for each axis, turned by an angle in degrees.

    One number is the width along both sides of a picture; three numbers make a kernel for volumes.

    >>> import haloscope
    >>> haloscope.kernels.gaussian((3.0, 1.0), 30.0).ndim
    4
    >>> haloscope.kernels.gaussian(1.0, size=7).shape
    (1, 1, 7, 7)
    """
    widths = numbers(sigma)
    if len(widths) == 1:
        widths *= 2
    sizes = None if size is None else lengths(size)
    if sizes is not None and len(sizes) == 1:
        sizes *= len(widths)
    return _haloscope.kernel("gaussian", widths, angle, sizes, 0)


def uniform(size: Size) -> Floats:
    """The mean over a box.

    >>> import haloscope
    >>> haloscope.kernels.uniform(3).shape
    (1, 1, 3, 3)
    """
    sides = lengths(size)
    return _haloscope.kernel("uniform", [float(side) for side in (sides * 2 if len(sides) == 1 else sides)], 0.0, None, 0)


def motion(length: float, angle: float = 0.0) -> Floats:
    """A straight motion of so many pixels, at an angle in degrees.

    >>> import haloscope
    >>> round(float(haloscope.kernels.motion(9.0, 45.0).sum()), 5)
    1.0
    """
    return _haloscope.kernel("motion", [length], angle, None, 0)


def random_motion(size: int, seed: int = 0) -> Floats:
    """The trace of a hand that shakes.

    >>> import haloscope
    >>> haloscope.kernels.random_motion(31, seed=4).shape
    (1, 1, 31, 31)
    """
    return _haloscope.kernel("random_motion", [float(size)], 0.0, None, seed)


def bilinear(factor: int = 2) -> Floats:
    """The filter before bilinear downsampling by a factor.

    >>> import haloscope
    >>> haloscope.kernels.bilinear(2).ndim
    4
    """
    return _haloscope.kernel("bilinear", [float(factor)], 0.0, None, 0)


def bicubic(factor: int = 2) -> Floats:
    """The filter before bicubic downsampling by a factor.

    >>> import haloscope
    >>> haloscope.kernels.bicubic(2).ndim
    4
    """
    return _haloscope.kernel("bicubic", [float(factor)], 0.0, None, 0)
