"""How near images are to a reference: one number for each image of the batch."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from . import _haloscope
from ._arrays import ArrayLike, as_input

__all__ = ["estimate_noise", "mae", "mse", "nmse", "psnr", "ssim"]

Numbers = npt.NDArray[np.float64]


def _metric(name: str, x: ArrayLike, reference: ArrayLike, max_pixel: float = 1.0, sigma: float = 1.5) -> Numbers:
    return np.array(_haloscope.metric(name, as_input(x), as_input(reference), max_pixel, sigma))


def mse(x: ArrayLike, reference: ArrayLike) -> Numbers:
    """The mean of the squared differences.

    >>> import haloscope, numpy
    >>> haloscope.metrics.mse(numpy.ones((2, 1, 4, 4)), numpy.zeros((2, 1, 4, 4))).tolist()
    [1.0, 1.0]
    """
    return _metric("mse", x, reference)


def mae(x: ArrayLike, reference: ArrayLike) -> Numbers:
    """The mean of the absolute differences.

    >>> import haloscope, numpy
    >>> haloscope.metrics.mae(numpy.full((1, 1, 4, 4), -2.0), numpy.zeros((1, 1, 4, 4))).tolist()
    [2.0]
    """
    return _metric("mae", x, reference)


def nmse(x: ArrayLike, reference: ArrayLike) -> Numbers:
    """The squared error relative to the squared norm of the reference.

    >>> import haloscope, numpy
    >>> haloscope.metrics.nmse(numpy.zeros((1, 1, 4, 4)), numpy.ones((1, 1, 4, 4))).tolist()
    [1.0]
    """
    return _metric("nmse", x, reference)


def psnr(x: ArrayLike, reference: ArrayLike, *, max_pixel: float = 1.0) -> Numbers:
    """Peak signal-to-noise ratio in dB, for values of a range of ``max_pixel``.

    >>> import haloscope, numpy
    >>> haloscope.metrics.psnr(numpy.full((1, 1, 4, 4), 0.1), numpy.zeros((1, 1, 4, 4))).round(4).tolist()
    [20.0]
    """
    return _metric("psnr", x, reference, max_pixel)


def ssim(x: ArrayLike, reference: ArrayLike, *, max_pixel: float = 1.0, sigma: float = 1.5) -> Numbers:
    """Structural similarity with a Gaussian window of width ``sigma``.

    >>> import haloscope
    >>> image = haloscope.io.phantom.landscape(32, 32)
    >>> haloscope.metrics.ssim(image, image).round(6).tolist()
    [1.0]
    """
    return _metric("ssim", x, reference, max_pixel, sigma)


def estimate_noise(x: ArrayLike) -> float:
    """The standard deviation of Gaussian noise in images, estimated from them.

    >>> import haloscope
    >>> noisy = haloscope.physics.GaussianNoise(0.1)(haloscope.io.phantom.landscape(128, 128))
    >>> 0.08 < haloscope.metrics.estimate_noise(noisy) < 0.12
    True
    """
    return _haloscope.estimate_noise(as_input(x))
