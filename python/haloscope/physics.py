"""Measurement operators: what an instrument does to an image.

Names and keywords are deepinv's where it has them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from . import _haloscope
from ._arrays import ArrayLike, Floats, Size, as_input, lengths, per_axis, restore
from ._context import Context
from ._errors import ArgumentError
from ._measurements import Measurements, as_measurements

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Blur",
    "Decolorize",
    "Denoising",
    "DistributedStack",
    "Downsampling",
    "GaussianNoise",
    "Inpainting",
    "LinearPhysics",
    "Matrix",
    "NoiseModel",
    "Physics",
    "PoissonGaussianNoise",
    "PoissonNoise",
    "Saturation",
    "Stack",
    "Tomography",
    "UniformNoise",
    "stack",
]

Padding = Literal["valid", "circular", "reflect", "replicate", "constant"]
Solver = Literal["lsqr", "cg", "minres", "bicgstab"]


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
        return f"{type(self).__name__}{self._kind[1:]}"


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


class Physics:
    """A differentiable map from images to measurements. Subclass it and define ``A`` and ``A_vjp`` for one of your own.

    >>> import haloscope, numpy
    >>> class Square(haloscope.physics.Physics):
    ...     def A(self, x):
    ...         return x ** 2
    ...     def A_vjp(self, x, v):
    ...         return 2 * x * v
    >>> square = Square((1, 4, 4))
    >>> float(haloscope.physics.stack(square, square).A(numpy.full((1, 1, 4, 4), 3.0))[1].max())
    9.0
    """

    def __init__(
        self,
        img_size: Sequence[int],
        measurement_size: Sequence[int] | None = None,
        *,
        noise_model: NoiseModel | None = None,
        cost: float | None = None,
    ) -> None:
        self._img_size = tuple(img_size)
        self._measurement_size = tuple(measurement_size or img_size)
        self.noise_model = noise_model
        self._cost = cost
        self._native: _haloscope.Operator | None = None
        self._kept: tuple[_haloscope.Operator, int, _haloscope.Stack] | None = None

    def _set(self, native: _haloscope.Operator, noise_model: NoiseModel | None = None) -> None:
        """Makes it an operator of the library."""
        self._native, self.noise_model, self._cost, self._kept = native, noise_model, None, None
        self._img_size = tuple(native.image_shape)
        self._measurement_size = tuple(native.measurement_shape)

    def _operator(self, shape: Sequence[int] | None = None) -> _haloscope.Operator:
        """The operator of the library; for a subclass in Python, one that calls it."""
        if self._native is not None:
            return self._native
        # What the classes here define calls the operator, and would call itself.
        name = type(self).__name__
        if _is_method(self.A, Physics.A):
            raise ArgumentError(f"{name} defines no A; a subclass of Physics defines A(x)")
        adjoint = self.A_adjoint if isinstance(self, LinearPhysics) else None
        if adjoint is not None and _is_method(adjoint, LinearPhysics.A_adjoint):
            raise ArgumentError(f"{name} defines no A_adjoint; a subclass of LinearPhysics defines A(x) and A_adjoint(y)")
        vjp = None if adjoint is not None or _is_method(self.A_vjp, Physics.A_vjp) else self.A_vjp
        sizes = list(self.img_size), list(self.measurement_size)
        return _haloscope.Operator.python(name, *sizes, self.A, vjp, adjoint, self._cost)

    def _alone(self) -> Stack:
        """A stack of this operator. That of an operator of the library is kept, for its threads."""
        native, threads = self._native, _haloscope.get_num_threads()
        if native is None:
            return Stack([self])
        if self._kept is None or self._kept[0] is not native or self._kept[1] != threads:
            self._kept = (native, threads, _alone([native], threads))
        alone = Stack.__new__(Stack)
        alone._physics, alone._native, alone._noise = [self], self._kept[2], [self.noise_model]
        return alone

    @property
    def img_size(self) -> tuple[int, ...]:
        """The shape of an image: (channel, spatial...)."""
        return self._img_size

    @property
    def measurement_size(self) -> tuple[int, ...]:
        """The shape of a measurement, without the batch."""
        return self._measurement_size

    def A(self, x: ArrayLike) -> Any:
        """What is measured, without noise."""
        image = as_input(x)
        return restore(x)(self._operator(image.shape).forward(image))

    def A_vjp(self, x: ArrayLike, v: ArrayLike) -> Any:
        """The derivative at ``x``, transposed, times ``v``."""
        image = as_input(x)
        return restore(x)(self._operator(image.shape).vjp(image, as_input(v)))

    def __call__(self, x: ArrayLike, *, seed: int = 0) -> Any:
        """What is measured, with the noise of ``noise_model``."""
        y = self.A(x)
        return y if self.noise_model is None else self.noise_model(y, seed=seed)

    def __mul__(self, other: Physics | float) -> Physics:
        """Another operator before this one, or a factor."""
        if isinstance(other, Physics):
            native = self._operator().compose(other._operator())
        else:
            native = self._operator().scaled(float(other))
        return _wrapped(native, self.noise_model)

    def __rmul__(self, factor: float) -> Physics:
        return self * factor

    def stack(self, other: Physics) -> Stack:
        """Both on one image."""
        return Stack([self, other])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(img_size={self._img_size}, measurement_size={self._measurement_size})"


def _is_method(method: Callable[..., Any], of: Callable[..., Any]) -> bool:
    return getattr(method, "__func__", None) is of


def _alone(operators: list[_haloscope.Operator], threads: int) -> _haloscope.Stack:
    """A stack on one rank."""
    context = _haloscope.Context("solo", 0, threads, 300.0)
    return _haloscope.Stack(context, operators, "round_robin", None, "concatenated")


class LinearPhysics(Physics):
    """A linear map with its exact adjoint. Subclass it and define ``A`` and ``A_adjoint`` for one of your own.

    >>> import haloscope, numpy
    >>> class Flip(haloscope.physics.LinearPhysics):
    ...     def A(self, x):
    ...         return x[..., ::-1]
    ...     def A_adjoint(self, y):
    ...         return y[..., ::-1]
    >>> flip = Flip((1, 4, 4))
    >>> flip.adjointness_test() < 1e-6
    True
    >>> round(flip.compute_sqnorm(), 3)
    1.0
    """

    def A_adjoint(self, y: ArrayLike) -> Any:
        """``A^T y``."""
        return restore(y)(self._for_measurement(y).adjoint(as_input(y)))

    def A_vjp(self, x: ArrayLike, v: ArrayLike) -> Any:
        """``A^T v``, whatever ``x`` is."""
        return self.A_adjoint(v)

    def A_adjoint_A(self, x: ArrayLike) -> Any:
        """``A^T A x``."""
        image = as_input(x)
        return restore(x)(self._operator(image.shape).normal(image))

    def A_A_adjoint(self, y: ArrayLike) -> Any:
        """``A A^T y``."""
        return self.A(self.A_adjoint(y))

    def A_dagger(self, y: ArrayLike, *, solver: Solver = "lsqr", max_iter: int = 100, tol: float = 1e-5) -> Any:
        """The least-squares solution of least norm; in closed form where there is one."""
        operator = self._for_measurement(y)
        return restore(y)(operator.pseudo_inverse(as_input(y), solver, max_iter, tol))

    def prox_l2(self, z: ArrayLike, y: ArrayLike, gamma: float, *, max_iter: int = 100, tol: float = 1e-5) -> Any:
        """The minimum of ``gamma/2 |Ax - y|^2 + 1/2 |x - z|^2``; in closed form where there is one."""
        image = as_input(z)
        operator = self._operator(image.shape)
        return restore(z)(operator.prox_l2(image, as_input(y), gamma, max_iter, tol))

    def compute_sqnorm(self, *, max_iter: int = 100, tol: float = 1e-3) -> float:
        """The largest eigenvalue of ``A^T A``."""
        return self._operator().squared_norm(max_iter, tol)

    def adjointness_test(self, *, seed: int = 0) -> float:
        """``<Ax, y> - <x, A^T y>`` relative to ``|Ax| |y|``, of random arrays: about 1e-7 for an exact adjoint."""
        random = np.random.default_rng(seed)
        x = random.standard_normal((1, *self.img_size), dtype=np.float32)
        image = np.asarray(self.A(x), dtype=np.float64)
        y = random.standard_normal(image.shape, dtype=np.float32)
        back = np.asarray(self.A_adjoint(y), dtype=np.float64)
        scale = float(np.linalg.norm(image) * np.linalg.norm(y)) or 1.0
        return abs(float((image * y).sum() - (x * back).sum())) / scale

    def as_linear_operator(self, *, batch: int = 1) -> Any:
        """The operator for SciPy and PyLops: flat float32 vectors, ``matvec`` and ``rmatvec``.

        PyLops takes it as it is: ``pylops.aslinearoperator(physics.as_linear_operator())``.

        >>> import haloscope
        >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(1, 8, 8))
        >>> blur.as_linear_operator().shape
        (64, 64)
        """
        from scipy.sparse.linalg import LinearOperator

        image, measurement = (batch, *self.img_size), (batch, *self.measurement_size)
        return LinearOperator(
            shape=(int(np.prod(measurement)), int(np.prod(image))),
            matvec=lambda x: np.asarray(self.A(x.reshape(image))).ravel(),
            rmatvec=lambda y: np.asarray(self.A_adjoint(y.reshape(measurement))).ravel(),
            dtype=np.dtype(np.float32),
        )

    @property
    def T(self) -> LinearPhysics:
        """The adjoint as an operator.

        >>> import haloscope
        >>> scan = haloscope.physics.Tomography((1, 16, 16), angles=10)
        >>> scan.T.img_size == scan.measurement_size
        True
        """
        native = _haloscope.Operator.python(
            f"adjoint of {type(self).__name__}",
            list(self.measurement_size),
            list(self.img_size),
            self.A_adjoint,
            None,
            self.A,
            self._cost,
        )
        adjoint = LinearPhysics(self.measurement_size, self.img_size)
        adjoint._native = native
        return adjoint

    def _for_measurement(self, y: ArrayLike) -> _haloscope.Operator:
        return self._operator()


def _wrapped(native: _haloscope.Operator, noise_model: NoiseModel | None = None) -> Physics:
    physics = (LinearPhysics if native.is_linear else Physics).__new__(LinearPhysics if native.is_linear else Physics)
    physics._set(native, noise_model)
    return physics


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
        self.filter = as_input(filter)
        self.padding = padding
        self.use_fft = use_fft
        self.noise_model = noise_model
        self._native, self._cost, self._kept = None, None, None
        self._img_size = self._measurement_size = ()
        self._takes_any_shape = img_size is None
        if img_size is not None:
            self._make(img_size)

    def _make(self, shape: Sequence[int]) -> _haloscope.Operator:
        native = _haloscope.Operator.blur(list(shape), self.filter, self.padding, self.use_fft)
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
        shape = tuple(y.shape)
        if self._native is not None and list(shape[1:]) == self._native.measurement_shape:
            return self._native
        if self.padding == "valid":
            kernel = self.filter.shape[2:]
            shape = (*shape[:2], *(side + taps - 1 for side, taps in zip(shape[2:], kernel)))
        return self._operator(shape)


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
        native = _haloscope.Operator.downsampling(list(img_size), factor, name, kernel, padding, phases)
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
        shape = list(img_size)
        if isinstance(mask, (int, float)):
            self.mask: Floats = _haloscope.random_mask(shape, 1.0 - mask, seed)
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
        self._set(_haloscope.Operator.decolorize(list(img_size), list(weights)), noise_model)


class Denoising(LinearPhysics):
    """The image itself, with noise.

    >>> import haloscope
    >>> haloscope.physics.Denoising(haloscope.physics.GaussianNoise(0.1), img_size=(3, 8, 8)).compute_sqnorm()
    1.0
    """

    def __init__(self, noise_model: NoiseModel | None = None, *, img_size: Sequence[int] | None = None) -> None:
        self._native, self._cost, self.noise_model = None, None, noise_model
        self._img_size = self._measurement_size = tuple(img_size or ())

    def _operator(self, shape: Sequence[int] | None = None) -> _haloscope.Operator:
        sides = list(self._img_size) or list(shape or ())[1:]
        if not sides:
            raise ArgumentError("denoising: the shape of images is not known yet; give img_size=(channel, spatial...)")
        return _haloscope.Operator.identity(sides)

    def _for_measurement(self, y: ArrayLike) -> _haloscope.Operator:
        return self._operator(tuple(y.shape))


class Matrix(LinearPhysics):
    """Any matrix on flat images, for small problems and tests.

    >>> import haloscope, numpy
    >>> haloscope.physics.Matrix(numpy.eye(3, 16), (1, 4, 4)).measurement_size
    (3,)
    """

    def __init__(self, matrix: ArrayLike, img_size: Sequence[int], *, noise_model: NoiseModel | None = None) -> None:
        self._set(_haloscope.Operator.matrix(list(img_size), as_input(matrix)), noise_model)


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
        self._set(_haloscope.Operator.saturation(list(img_size), limit, smooth), noise_model)


class Tomography(LinearPhysics):
    """X-ray projections of slices or volumes, by parallel rays, fans or cones, with the exact adjoint.

    Keywords are those of deepinv's ``TomographyWithAstra``, and the geometry is ASTRA's; angles are in degrees. A number of angles
    divides ``angular_range``. Measurements are (channel, view, bin) for slices and (channel, view, row, column) for volumes.

    >>> import haloscope
    >>> scan = haloscope.physics.Tomography((1, 32, 32), angles=20)
    >>> scan.measurement_size
    (1, 20, 32)
    >>> cone = haloscope.physics.Tomography((1, 8, 16, 16), 12, angular_range=(0, 360), geometry_type="conebeam",
    ...                                     n_detector_pixels=(12, 24), source_radius=60, detector_radius=20)
    >>> cone.measurement_size
    (1, 12, 12, 24)
    """

    def __init__(
        self,
        img_size: Sequence[int],
        angles: int | ArrayLike = 180,
        *,
        angular_range: tuple[float, float] = (0.0, 180.0),
        geometry_type: Literal["parallel", "fanbeam", "conebeam"] = "parallel",
        n_detector_pixels: Size | None = None,
        detector_spacing: float | Sequence[float] = 1.0,
        pixel_spacing: float | Sequence[float] = 1.0,
        detector_offset: float | Sequence[float] = 0.0,
        source_radius: float | None = None,
        detector_radius: float | None = None,
        normalize: bool = False,
        noise_model: NoiseModel | None = None,
    ) -> None:
        shape = list(img_size)
        axes = len(shape) - 1
        if isinstance(angles, int):
            first, last = angular_range
            degrees = [first + (last - first) * view / angles for view in range(angles)]
        else:
            degrees = [float(angle) for angle in np.asarray(angles).ravel()]
        radians = [float(np.radians(angle)) for angle in degrees]
        distances = _distances(geometry_type, axes, source_radius, detector_radius)
        pixel = per_axis(pixel_spacing, axes, "pixel_spacing")
        if axes == 2:
            bins = lengths(n_detector_pixels if n_detector_pixels is not None else shape[-1])[0]
            spacing = per_axis(detector_spacing, 1, "detector_spacing")[0]
            offset = per_axis(detector_offset, 1, "detector_offset")[0]
            native = _haloscope.Operator.planar_scan(shape, pixel, radians, bins, spacing, offset, distances)
        elif axes == 3:
            given = lengths(n_detector_pixels if n_detector_pixels is not None else (shape[1], shape[-1]))
            detector = given * 2 if len(given) == 1 else given
            spacings = per_axis(detector_spacing, 2, "detector_spacing")
            offsets = per_axis(detector_offset, 2, "detector_offset")
            native = _haloscope.Operator.spatial_scan(shape, pixel, radians, detector, spacings, offsets, distances)
        else:
            raise ArgumentError(f"tomography: img_size is {tuple(shape)}; (channel, y, x) or (channel, z, y, x) is accepted")
        self._set(native.normalised() if normalize else native, noise_model)

    @classmethod
    def from_astra(cls, volume_geometry: Mapping[str, Any], projection_geometry: Mapping[str, Any]) -> Self:
        """From ASTRA's geometries as dictionaries, vectors of views included.

        >>> import haloscope
        >>> volume = {"GridRowCount": 32, "GridColCount": 32, "option": {}}
        >>> parallel = {"type": "parallel", "DetectorCount": 40, "DetectorWidth": 1.0, "ProjectionAngles": [0.0, 0.5]}
        >>> haloscope.physics.Tomography.from_astra(volume, parallel).measurement_size
        (1, 2, 40)
        """
        scan = cls.__new__(cls)
        scan._set(_from_astra(volume_geometry, projection_geometry))
        return scan

    def fbp(
        self, y: ArrayLike, window: Literal["ram-lak", "shepp-logan", "cosine", "hamming", "hann"] = "ram-lak"
    ) -> Any:
        """Filtered back-projection; FDK for cones.

        >>> import haloscope
        >>> scan = haloscope.physics.Tomography((1, 32, 32), angles=60)
        >>> image = haloscope.io.phantom.shepp_logan((32, 32))
        >>> scan.fbp(scan.A(image)).shape
        (1, 1, 32, 32)
        """
        return restore(y)(self._operator().filtered_back_projection(as_input(y), window))

    def split(self, groups: int, grouping: Literal["interleaved", "contiguous"] = "interleaved") -> Stack:
        """Groups of views, for ranks to share.

        >>> import haloscope
        >>> len(haloscope.physics.Tomography((1, 16, 16), angles=10).split(5))
        5
        """
        if grouping not in ("interleaved", "contiguous"):
            raise ArgumentError(f"grouping: {grouping!r}; interleaved or contiguous is accepted")
        parts: list[Physics] = []
        for native in self._operator().split(groups, grouping == "interleaved"):
            part = Tomography.__new__(Tomography)
            part._set(native, self.noise_model)
            parts.append(part)
        return Stack(parts)


def _distances(
    kind: str, axes: int, source: float | None, detector: float | None
) -> tuple[float, float] | None:
    if kind == "parallel":
        return None
    accepted = {2: "fanbeam", 3: "conebeam"}.get(axes)
    if kind != accepted:
        raise ArgumentError(f"geometry_type: {kind!r} with {axes} sides; parallel or {accepted} is accepted")
    if source is None or detector is None:
        raise ArgumentError(f"{kind}: source_radius and detector_radius are needed: from the axis to each of them")
    return (source, detector)


def _from_astra(volume: Mapping[str, Any], projection: Mapping[str, Any]) -> _haloscope.Operator:
    rows, columns = int(volume["GridRowCount"]), int(volume["GridColCount"])
    slices = volume.get("GridSliceCount")
    window = volume.get("option", {})

    def pixel(low: str, high: str, count: int) -> float:
        first, last = float(window.get(low, -count / 2)), float(window.get(high, count / 2))
        if abs(first + last) > 1e-6 * (last - first):
            raise ArgumentError(f"{low}={first}, {high}={last}: the middle of the volume must be the origin")
        return (last - first) / count

    plane = [pixel("WindowMinY", "WindowMaxY", rows), pixel("WindowMinX", "WindowMaxX", columns)]
    kind = projection["type"]
    angles = [float(angle) for angle in projection.get("ProjectionAngles", ())]
    make = _haloscope.Operator
    if slices is None:
        shape = [1, rows, columns]
        bins = int(projection["DetectorCount"])
        if kind in ("parallel", "fanflat"):
            distances = None
            if kind == "fanflat":
                distances = (float(projection["DistanceOriginSource"]), float(projection["DistanceOriginDetector"]))
            width = float(projection["DetectorWidth"])
            return make.planar_scan(shape, plane, angles, bins, width, 0.0, distances)
        if kind in ("parallel_vec", "fanflat_vec"):
            views = [[float(number) for number in view] for view in projection["Vectors"]]
            return make.planar_views(shape, plane, bins, views, kind == "fanflat_vec")
    else:
        shape = [1, int(slices), rows, columns]
        voxel = [pixel("WindowMinZ", "WindowMaxZ", int(slices)), *plane]
        detector = [int(projection["DetectorRowCount"]), int(projection["DetectorColCount"])]
        if kind in ("parallel3d", "cone"):
            distances = None
            if kind == "cone":
                distances = (float(projection["DistanceOriginSource"]), float(projection["DistanceOriginDetector"]))
            spacing = [float(projection["DetectorSpacingY"]), float(projection["DetectorSpacingX"])]
            return make.spatial_scan(shape, voxel, angles, detector, spacing, [0.0, 0.0], distances)
        if kind in ("parallel3d_vec", "cone_vec"):
            views = [[float(number) for number in view] for view in projection["Vectors"]]
            return make.spatial_views(shape, voxel, detector, views, kind == "cone_vec")
    raise ArgumentError(f"projection geometry {kind!r} for a {'slice' if slices is None else 'volume'} is not known")


class Stack(Sequence[Physics]):
    """Several operators on one image (deepinv: ``StackedLinearPhysics``).

    >>> import haloscope, numpy
    >>> blurs = [haloscope.physics.Blur(haloscope.kernels.gaussian(s), "circular", img_size=(3, 16, 16)) for s in (1.0, 2.0)]
    >>> frames = haloscope.physics.Stack(blurs)
    >>> y = frames.A(haloscope.io.phantom.landscape(16, 16))
    >>> len(y), frames.A_adjoint(y).shape
    (2, (1, 3, 16, 16))
    """

    def __init__(self, physics_list: Sequence[Physics]) -> None:
        self._physics = list(physics_list)
        operators = [physics._operator() for physics in self._physics]
        self._native = _alone(operators, _haloscope.get_num_threads())
        self._noise = [physics.noise_model for physics in self._physics]

    @property
    def img_size(self) -> tuple[int, ...]:
        """The shape of an image: (channel, spatial...)."""
        return tuple(self._native.image_shape)

    @property
    def is_linear(self) -> bool:
        """Whether all operators are linear."""
        return self._native.is_linear

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: int) -> Physics: ...
    @overload
    def __getitem__(self, index: slice) -> list[Physics]: ...
    def __getitem__(self, index: int | slice) -> Physics | list[Physics]:
        return self._physics[index]

    def __iter__(self) -> Iterator[Physics]:
        return iter(self._physics)

    def A(self, x: ArrayLike, *, gather: bool = True) -> Measurements:
        """What all operators measure, without noise; ``gather=False`` leaves each part on its rank."""
        return Measurements._of(self._native.forward(as_input(x), gather), restore(x))

    def A_adjoint(self, y: Measurements | Sequence[ArrayLike], *, gather: bool = True) -> Any:
        """The sum of the operators' adjoints; ``gather=False`` is this rank's part of the sum."""
        data = as_measurements(y, len(self))
        return data._restore(self._native.adjoint(data._native, gather))

    def A_vjp(self, x: ArrayLike, v: Measurements | Sequence[ArrayLike]) -> Any:
        """The derivative at ``x``, transposed, times ``v``."""
        return restore(x)(self._native.vjp(as_input(x), as_measurements(v, len(self))._native))

    def A_adjoint_A(self, x: ArrayLike) -> Any:
        """``A^T A x``."""
        return restore(x)(self._native.normal(as_input(x)))

    def A_A_adjoint(self, y: Measurements | Sequence[ArrayLike]) -> Measurements:
        """``A A^T y``."""
        data = as_measurements(y, len(self))
        return Measurements._of(self._native.gram(data._native), data._restore)

    def A_dagger(
        self,
        y: Measurements | Sequence[ArrayLike],
        *,
        solver: Solver = "lsqr",
        max_iter: int = 100,
        tol: float = 1e-5,
    ) -> Any:
        """The least-squares solution of least norm."""
        data = as_measurements(y, len(self))
        return data._restore(self._native.pseudo_inverse(data._native, solver, max_iter, tol))

    def compute_sqnorm(self, *, max_iter: int = 100, tol: float = 1e-3) -> float:
        """The largest eigenvalue of ``A^T A``."""
        return self._native.squared_norm(max_iter, tol)

    def __call__(self, x: ArrayLike, *, seed: int = 0, gather: bool = True) -> Measurements:
        """What all operators measure, with their noise; the same on any number of ranks."""
        if all(noise is None for noise in self._noise):
            return self.A(x, gather=gather)
        kinds = [("gaussian", 0.0, 0.0) if noise is None else noise._kind for noise in self._noise]
        return Measurements._of(self._native.measure(as_input(x), kinds, seed, gather), restore(x))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} operators, img_size={self.img_size})"


def stack(*physics: Physics) -> Stack:
    """Several operators on one image.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(1, 4, 4))
    >>> len(haloscope.physics.stack(frame, frame))
    2
    """
    return Stack(physics)


class DistributedStack(Stack):
    """A stack over ranks, used like one; every rank calls it with the same image. :func:`haloscope.distribute` makes it.

    >>> import haloscope
    >>> def body(ctx):
    ...     frame = haloscope.physics.Denoising(img_size=(1, 4, 4))
    ...     return haloscope.distribute([frame] * 3, ctx).local_indices()
    >>> haloscope.launch(body, ranks=2)
    [[0, 2], [1]]
    """

    def __init__(
        self, native: _haloscope.Stack, physics: list[Physics], noise: list[NoiseModel | None], ctx: Context
    ) -> None:
        self._native, self._physics, self._noise, self.ctx = native, physics, noise, ctx

    @property
    def owners(self) -> list[int]:
        """The rank of each operator."""
        return self._native.owners

    def local_indices(self) -> list[int]:
        """The operators of this rank."""
        return self._native.local_indices
