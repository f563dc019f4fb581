"""What all operators have in common: the maps, and what follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .. import _haloscope
from .._arrays import ArrayLike, as_input, restore, shape_of
from .._copies import deep_copy
from .._errors import ArgumentError
from ._noise import NoiseModel

if TYPE_CHECKING:
    from typing_extensions import Self

    from ._stacks import Stack

Padding = Literal["valid", "circular", "reflect", "replicate", "constant"]
Solver = Literal["lsqr", "cg", "minres", "bicgstab"]


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
        self._img_size = tuple(shape_of(img_size))
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

    @classmethod
    def _of(cls, native: _haloscope.Operator, noise_model: NoiseModel | None = None) -> Self:
        """An operator of the library."""
        physics = cls.__new__(cls)
        physics._set(native, noise_model)
        return physics

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return deep_copy(self, memo)

    def _operator(self, shape: Sequence[int] | None = None) -> _haloscope.Operator:
        """The operator of the library; for a subclass in Python, one that calls it."""
        if self._native is not None:
            return self._native
        # What the classes here define calls the operator, and would call itself.
        name = type(self).__name__
        if is_method(self.A, Physics.A):
            raise ArgumentError(f"{name} defines no A; a subclass of Physics defines A(x)")
        adjoint = self.A_adjoint if isinstance(self, LinearPhysics) else None
        if adjoint is not None and is_method(adjoint, LinearPhysics.A_adjoint):
            raise ArgumentError(f"{name} defines no A_adjoint; a subclass of LinearPhysics defines A(x) and A_adjoint(y)")
        vjp = None if adjoint is not None or is_method(self.A_vjp, Physics.A_vjp) else self.A_vjp
        sizes = list(self.img_size), list(self.measurement_size)
        return _haloscope.Operator.python(name, *sizes, self.A, vjp, adjoint, self._cost)

    def _alone(self) -> Stack:
        """A stack of this operator. That of an operator of the library is kept, for its threads."""
        from ._stacks import Stack

        native, threads = self._native, _haloscope.get_num_threads()
        if native is None:
            return Stack([self])
        if self._kept is None or self._kept[0] is not native or self._kept[1] != threads:
            self._kept = (native, threads, on_one_rank([native], threads))
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
        return wrapped(native, self.noise_model)

    def __rmul__(self, factor: float) -> Physics:
        return self * factor

    def stack(self, other: Physics) -> Stack:
        """Both on one image."""
        from ._stacks import Stack

        return Stack([self, other])

    def __repr__(self) -> str:
        return f"{type(self).__name__}(img_size={self._img_size}, measurement_size={self._measurement_size})"


def is_method(method: Callable[..., Any], of: Callable[..., Any]) -> bool:
    return getattr(method, "__func__", None) is of


def on_one_rank(operators: list[_haloscope.Operator], threads: int) -> _haloscope.Stack:
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
        return LinearPhysics._of(native)

    def _for_measurement(self, y: ArrayLike) -> _haloscope.Operator:
        return self._operator()


def wrapped(native: _haloscope.Operator, noise_model: NoiseModel | None = None) -> Physics:
    return (LinearPhysics if native.is_linear else Physics)._of(native, noise_model)
