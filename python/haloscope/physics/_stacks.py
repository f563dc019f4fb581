"""Several operators on one image, on one rank or shared by ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

from .. import _haloscope
from .._arrays import ArrayLike, as_input, restore
from .._context import Context
from .._errors import ArgumentError
from .._measurements import Measurements, as_measurements
from ._base import Physics, Solver, on_one_rank
from ._noise import NoiseModel


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
        for physics in self._physics:
            if not isinstance(physics, Physics):
                raise ArgumentError(f"{type(physics).__name__}: {str(physics)[:80]} is no operator; a Physics is accepted")
        operators = [physics._operator() for physics in self._physics]
        self._native = on_one_rank(operators, _haloscope.get_num_threads())
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


def as_stack(physics: Physics | Stack | Sequence[Physics]) -> Stack:
    """One operator or several, as a stack."""
    if isinstance(physics, Stack):
        return physics
    if isinstance(physics, Physics):
        return physics._alone()
    if not isinstance(physics, (list, tuple)):
        raise ArgumentError(
            f"physics: a {type(physics).__name__} is given; an operator, a Stack or a list of operators is accepted, and "
            "deepinv's by haloscope.deepinv.from_deepinv"
        )
    return Stack(physics)
