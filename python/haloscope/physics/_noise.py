"""Noise of measurements."""

from __future__ import annotations

from typing import Any

from .. import _haloscope
from .._arrays import ArrayLike, as_input, restore


class NoiseModel:
    """Noise of a measurement, the same for the same seed on any number of threads.

    >>> import haloscope, numpy
    >>> noise = haloscope.physics.GaussianNoise(0.1)
    >>> y = numpy.zeros((1, 1, 8, 8), numpy.float32)
    >>> bool((noise(y, seed=3) == noise(y, seed=3)).all())
    True
    """

    _kind: tuple[str, float, float] = ("gaussian", 0.0, 0.0)

    def __call__(self, y: ArrayLike, *, seed: int = 0) -> Any:
        """The measurement with noise."""
        return restore(y)(_haloscope.add_noise(as_input(y), *self._kind, seed))

    def __repr__(self) -> str:
        given = (f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"{type(self).__name__}({', '.join(given)})"


class GaussianNoise(NoiseModel):
    """``y + sigma n``.

    >>> import haloscope
    >>> haloscope.physics.GaussianNoise(0.05).sigma
    0.05
    """

    def __init__(self, sigma: float = 0.1) -> None:
        self.sigma = sigma
        self._kind = ("gaussian", sigma, 0.0)


class PoissonNoise(NoiseModel):
    """``gain Poisson(y / gain)``.

    >>> import haloscope
    >>> haloscope.physics.PoissonNoise(0.01).gain
    0.01
    """

    def __init__(self, gain: float = 1.0) -> None:
        self.gain = gain
        self._kind = ("poisson", gain, 0.0)


class PoissonGaussianNoise(NoiseModel):
    """``gain Poisson(y / gain) + sigma n``: photons, and the noise of reading them out.

    >>> import haloscope
    >>> haloscope.physics.PoissonGaussianNoise(0.01, 0.02).sigma
    0.02
    """

    def __init__(self, gain: float = 1.0, sigma: float = 0.1) -> None:
        self.gain, self.sigma = gain, sigma
        self._kind = ("poisson-gaussian", gain, sigma)


class UniformNoise(NoiseModel):
    """``y`` plus something between ``-a`` and ``a``.

    >>> import haloscope, numpy
    >>> noisy = haloscope.physics.UniformNoise(0.1)(numpy.zeros((1, 1, 8, 8), numpy.float32))
    >>> bool((abs(noisy) <= 0.1).all())
    True
    """

    def __init__(self, a: float = 0.1) -> None:
        self.a = a
        self._kind = ("uniform", a, 0.0)
