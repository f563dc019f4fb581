"""Operators on pixels: blur, downsampling, inpainting and others."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Literal

import numpy as np

from .. import _haloscope
from .._arrays import ArrayLike, Floats, as_input, shape_of
from .._errors import ArgumentError
from ._base import LinearPhysics, Padding, Physics
from ._noise import NoiseModel


class Blur(LinearPhysics):
    """Convolution with a kernel (1 or batch, 1 or channel, spatial...), in 2-D or 3-D.

    Without ``img_size`` it is made for the shape that comes first, and again for others. The kernel is not flipped: a convolution
    as in deepinv. ``use_fft=None`` chooses the faster way.

    >>> import haloscope, numpy
    >>> blur = haloscope.physics.Blur(haloscope.kernels.uniform(3), "valid")
    >>> blur.A(numpy.ones((1, 1, 8, 8), numpy.float32)).shape
    (1, 1, 6, 6)
    """

    def __init__(
        self,
        filter: ArrayLike,  # noqa: A002  (deepinv's name)
        padding: Padding = "valid",
        *,
        img_size: Sequence[int] | None = None,
        use_fft: bool | None = None,
        noise_model: NoiseModel | None = None,
    ) -> None:
        super().__init__((), noise_model=noise_model)
        self.filter = as_input(filter)
        self.padding = padding
        self.use_fft = use_fft
        self._takes_any_shape = img_size is None
        if img_size is not None:
            self._make(img_size)

    def _make(self, shape: Sequence[int]) -> _haloscope.Operator:
        native = _haloscope.Operator.blur(shape_of(shape), self.filter, self.padding, self.use_fft)
        self._set(native, self.noise_model)
        return native

    def _operator(self, shape: Sequence[int] | None = None) -> _haloscope.Operator:
        native = self._native
        if shape is None:
            if native is None:
                raise ArgumentError("blur: the shape of images is not known yet; give img_size=(channel, spatial...)")
            return native
        is_other = native is None or list(shape)[1:] != native.image_shape
        if native is None or (self._takes_any_shape and is_other):
            return self._make(list(shape)[1:])
        return native

    def _for_measurement(self, y: ArrayLike) -> _haloscope.Operator:
        shape = np.shape(y)
        if self._native is not None and list(shape[1:]) == self._native.measurement_shape:
            return self._native
        if self.padding == "valid":
            kernel = self.filter.shape[2:]
            shape = (*shape[:2], *(side + taps - 1 for side, taps in zip(shape[2:], kernel)))
        return self._operator(shape)


class VaryingBlur(LinearPhysics):
    """A blur whose kernel changes across the image: kernels at the middles of the cells of a grid, and between them what is linear.

    ``filters`` has the kernels along its first axis, the last axis of the grid fastest: (kernel, spatial...).

    >>> import haloscope, numpy
    >>> filters = numpy.stack([haloscope.kernels.gaussian((1.0, sigma))[0, 0] for sigma in (1.0, 1.0)])
    >>> blur = haloscope.physics.VaryingBlur((3, 32, 48), filters, grid=(1, 2), padding="reflect")
    >>> bool(numpy.allclose(blur.A(numpy.ones((1, 3, 32, 48), numpy.float32)), 1.0, atol=1e-5))
    True
    """

    def __init__(
        self,
        img_size: Sequence[int],
        filters: ArrayLike,
        grid: Sequence[int],
        padding: Padding = "valid",
        *,
        noise_model: NoiseModel | None = None,
    ) -> None:
        self.filters = as_input(filters)
        self.grid = tuple(grid)
        kernels = [as_input(kernel[None, None]) for kernel in self.filters]
        self._set(_haloscope.Operator.varying_blur(shape_of(img_size), list(grid), kernels, padding), noise_model)


class Affine(LinearPhysics):
    """The image turned, moved, stretched or sheared: ``A(x)(p) = x(M p + t)`` with linear interpolation, and zeros outside.

    ``matrix`` is ``[M | t]``, (2, 3) or (3, 4), with axes in the order of arrays; places are counted from the middle of the image
    and of the measurement, whose sides are ``size``, or those of the image. ``Blur(...) * Affine(...)`` is a view of a multi-view
    microscope.

    >>> import haloscope, numpy
    >>> turn = haloscope.physics.Affine((1, 3, 5), [[0, 1, 0], [-1, 0, 0]], size=(5, 3))
    >>> turn.A(numpy.arange(15, dtype=numpy.float32).reshape(1, 1, 3, 5))[0, 0, 0].tolist()
    [4.0, 9.0, 14.0]
    """

    def __init__(
        self,
        img_size: Sequence[int],
        matrix: Sequence[Sequence[float]] | np.ndarray[tuple[int, ...], np.dtype[np.floating]],
        *,
        size: Sequence[int] | None = None,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        self.matrix = np.asarray(matrix, dtype=np.float64)
        count = len(shape) - 1
        if self.matrix.shape != (count, count + 1):
            raise ArgumentError(
                f"matrix: an array of shape {self.matrix.shape} is given; {(count, count + 1)} is accepted, a row for each axis"
            )
        sides = list(shape[1:]) if size is None else list(size)
        self._set(_haloscope.Operator.affine(shape, sides, self.matrix.ravel().tolist()), noise_model)


class Downsampling(LinearPhysics):
    """A filter, then every ``factor``-th sample, from ``phase`` on.

    >>> import haloscope
    >>> haloscope.physics.Downsampling((3, 32, 32), factor=2).measurement_size
    (3, 16, 16)
    """

    def __init__(
        self,
        img_size: Sequence[int],
        filter: ArrayLike | Literal["gaussian", "box", "bilinear", "bicubic", "sinc"] | None = "bicubic",  # noqa: A002
        factor: int = 2,
        padding: Padding = "circular",
        *,
        phase: Sequence[int] | None = None,
        noise_model: NoiseModel | None = None,
    ) -> None:
        name, kernel = (filter, None) if filter is None or isinstance(filter, str) else (None, as_input(filter))
        phases = None if phase is None else list(phase)
        native = _haloscope.Operator.downsampling(shape_of(img_size), factor, name, kernel, padding, phases)
        self._set(native, noise_model)


class Inpainting(LinearPhysics):
    """Some pixels only. A number is the share of them that is kept.

    >>> import haloscope
    >>> half = haloscope.physics.Inpainting((3, 32, 32), 0.5)
    >>> bool(0.4 < half.mask.mean() < 0.6)
    True
    """

    def __init__(
        self,
        img_size: Sequence[int],
        mask: ArrayLike | float,
        *,
        seed: int = 0,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = shape_of(img_size)
        if isinstance(mask, Real):
            share = float(mask)
            if not 0 <= share <= 1:
                raise ArgumentError(f"mask: {share} is given; a share of the pixels from 0 to 1, or an array, is accepted")
            self.mask: Floats = _haloscope.random_mask(shape, 1.0 - share, seed)
        else:
            self.mask = as_input(mask)
        self._set(_haloscope.Operator.inpainting(shape, self.mask), noise_model)


class Decolorize(LinearPhysics):
    """Colour to gray, with a weight for each channel.

    >>> import haloscope
    >>> haloscope.physics.Decolorize((3, 8, 8)).measurement_size
    (1, 8, 8)
    """

    def __init__(
        self,
        img_size: Sequence[int],
        weights: Sequence[float] = (0.299, 0.587, 0.114),
        *,
        noise_model: NoiseModel | None = None,
    ) -> None:
        self._set(_haloscope.Operator.decolorize(shape_of(img_size), list(weights)), noise_model)


class Denoising(LinearPhysics):
    """The image itself, with noise.

    >>> import haloscope
    >>> haloscope.physics.Denoising(haloscope.physics.GaussianNoise(0.1), img_size=(3, 8, 8)).compute_sqnorm()
    1.0
    """

    def __init__(self, noise_model: NoiseModel | None = None, *, img_size: Sequence[int] | None = None) -> None:
        super().__init__(img_size or (), noise_model=noise_model)

    def _operator(self, shape: Sequence[int] | None = None) -> _haloscope.Operator:
        sides = list(self._img_size) or list(shape or ())[1:]
        if not sides:
            raise ArgumentError("denoising: the shape of images is not known yet; give img_size=(channel, spatial...)")
        return _haloscope.Operator.identity(sides)

    def _for_measurement(self, y: ArrayLike) -> _haloscope.Operator:
        return self._operator(np.shape(y))


class Matrix(LinearPhysics):
    """Any matrix on flat images, for small problems and tests.

    >>> import haloscope, numpy
    >>> haloscope.physics.Matrix(numpy.eye(3, 16), (1, 4, 4)).measurement_size
    (3,)
    """

    def __init__(self, matrix: ArrayLike, img_size: Sequence[int], *, noise_model: NoiseModel | None = None) -> None:
        self._set(_haloscope.Operator.matrix(shape_of(img_size), as_input(matrix)), noise_model)


class Saturation(Physics):
    """Bright pixels are cut off at a limit; not linear.

    >>> import haloscope, numpy
    >>> float(haloscope.physics.Saturation((1, 1, 1), 0.5).A(numpy.ones((1, 1, 1, 1))).max())
    0.5
    """

    def __init__(
        self,
        img_size: Sequence[int],
        limit: float = 1.0,
        *,
        smooth: bool = False,
        noise_model: NoiseModel | None = None,
    ) -> None:
        self._set(_haloscope.Operator.saturation(shape_of(img_size), limit, smooth), noise_model)
