"""Data fidelities: how far an image is from the measurements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _haloscope
from .._arrays import ArrayLike, Floats, as_input, restore
from .._errors import ArgumentError
from .._measurements import Measurements, as_measurements
from ..physics import Physics, Stack
from ..physics._stacks import as_stack


class DataFidelity:
    """A distance between what an image would measure and what was measured, convex in the measurement.

    Subclass it and define ``d(u, y)``, and ``grad_d(u, y)`` or ``prox_d(u, y, gamma)`` or both, for one of your own. They get numpy
    arrays that they may keep or change, on the rank that has the measurement; ``u`` is what the image would measure. Methods take a
    ``stepsize`` with it, as its curvature is not known.

    >>> import haloscope, numpy
    >>> class Huber(haloscope.optim.DataFidelity):
    ...     def d(self, u, y):
    ...         far = numpy.maximum(abs(u - y) - 0.1, 0)
    ...         return float((0.5 * (abs(u - y) - far) ** 2 + 0.1 * far).sum())
    ...     def grad_d(self, u, y):
    ...         return numpy.clip(u - y, -0.1, 0.1)
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> image = haloscope.io.phantom.landscape(16, 16)
    >>> Huber().fn(image, image, frame)
    0.0
    >>> haloscope.optim.PGD(Huber(), stepsize=1.0, max_iter=20)(image, frame, x_init="zeros").records[-1].data_term < 1e-6
    True
    """

    _native: _haloscope.Fidelity

    def _fidelity(self) -> _haloscope.Fidelity:
        """The fidelity of the library; for a subclass in Python, one that calls it."""
        own = {name: getattr(type(self), name) is not getattr(DataFidelity, name) for name in ("d", "grad_d", "prox_d")}
        if not any(own.values()):
            return self._known()
        if not own["d"]:
            raise ArgumentError(f"{type(self).__name__} defines no d; a subclass of DataFidelity defines d(u, y)")

        def prox(u: Floats, y: Floats, gamma: float) -> Any:
            return self.prox_d(u, y, gamma=gamma)

        return _haloscope.Fidelity.python(
            type(self).__name__,
            self.d,
            self.grad_d if own["grad_d"] else None,
            prox if own["prox_d"] else None,
        )

    def _known(self) -> _haloscope.Fidelity:
        """The fidelity of the library."""
        if not hasattr(self, "_native"):
            raise ArgumentError(
                f"{type(self).__name__} is no fidelity of its own; a subclass of DataFidelity defines d(u, y), and grad_d(u, y) or "
                "prox_d(u, y, gamma)"
            )
        return self._native

    def _natives(self) -> list[_haloscope.Fidelity]:
        return [self._fidelity()]

    def fn(self, x: ArrayLike, y: Measurements | ArrayLike, physics: Physics | Stack) -> float:
        """``d(A x, y)``, summed over the operators."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        return _haloscope.fidelity_value(self._natives(), operators._native, as_input(x), data._native, False)

    def grad(self, x: ArrayLike, y: Measurements | ArrayLike, physics: Physics | Stack) -> Any:
        """Its gradient in ``x``."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        gradient = _haloscope.fidelity_gradient(self._natives(), operators._native, as_input(x), data._native, False)
        return restore(x)(gradient)

    def prox(
        self,
        x: ArrayLike,
        y: Measurements | ArrayLike,
        physics: Physics | Stack,
        *,
        gamma: float = 1.0,
        max_iter: int = 50,
        tol: float = 1e-6,
    ) -> Any:
        """Its prox in ``x``, of squares."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        found = _haloscope.fidelity_prox(
            self._natives(), operators._native, as_input(x), data._native, gamma, max_iter, tol, False
        )
        return restore(x)(found)

    def d(self, u: ArrayLike, y: ArrayLike) -> float:
        """The distance of two measurements."""
        return self._known().value(as_input(u), as_input(y))

    def grad_d(self, u: ArrayLike, y: ArrayLike) -> Any:
        """Its gradient in ``u``."""
        return restore(u)(self._known().gradient(as_input(u), as_input(y)))

    def prox_d(self, u: ArrayLike, y: ArrayLike, *, gamma: float = 1.0) -> Any:
        """Its prox in ``u``."""
        return restore(u)(self._known().prox(as_input(u), as_input(y), gamma))


class L2(DataFidelity):
    """``|Ax - y|^2 / (2 sigma^2)``.

    >>> import haloscope, numpy
    >>> haloscope.optim.L2().d(numpy.ones((1, 1, 2, 2)), numpy.zeros((1, 1, 2, 2)))
    2.0
    """

    def __init__(self, sigma: float = 1.0) -> None:
        self._native = _haloscope.Fidelity("l2", sigma, 0.0, False)


class L1(DataFidelity):
    """``|Ax - y|_1``, which outliers matter less to.

    >>> import haloscope, numpy
    >>> haloscope.optim.L1().d(numpy.full((1, 1, 2, 2), 3.0), numpy.zeros((1, 1, 2, 2)))
    12.0
    """

    def __init__(self) -> None:
        self._native = _haloscope.Fidelity("l1", 0.0, 0.0, False)


class IndicatorL2(DataFidelity):
    """0 within a radius of ``y``, else infinite.

    >>> import haloscope, numpy
    >>> haloscope.optim.IndicatorL2(1.0).d(numpy.full((1, 1, 1, 1), 3.0), numpy.zeros((1, 1, 1, 1)))
    inf
    """

    def __init__(self, radius: float) -> None:
        self._native = _haloscope.Fidelity("ball", radius, 0.0, False)


class PoissonLikelihood(DataFidelity):
    """The negative log-likelihood of Poisson noise of a gain, with a background.

    >>> import haloscope, numpy
    >>> y = numpy.ones((1, 1, 2, 2), numpy.float32)
    >>> bool(abs(haloscope.optim.PoissonLikelihood(0.1).grad_d(y, y)).max() < 1e-4)
    True
    """

    def __init__(self, gain: float = 1.0, bkg: float = 0.0, denormalize: bool = True) -> None:
        self._native = _haloscope.Fidelity("poisson", gain, bkg, not denormalize)


class AmplitudeLoss(DataFidelity):
    """``|sqrt(Ax) - sqrt(y)|^2``, of intensities.

    >>> import haloscope, numpy
    >>> haloscope.optim.AmplitudeLoss().d(numpy.full((1, 1, 1, 1), 4.0), numpy.full((1, 1, 1, 1), 4.0))
    0.0
    """

    def __init__(self) -> None:
        self._native = _haloscope.Fidelity("amplitude", 0.0, 0.0, False)


class DistributedDataFidelity(DataFidelity):
    """One fidelity for all operators, or one for each, on the ranks of a distributed stack.

    >>> import haloscope
    >>> with haloscope.Context() as ctx:
    ...     both = haloscope.distribute([haloscope.optim.L2(), haloscope.optim.L1()], ctx)
    >>> len(both.parts)
    2
    """

    def __init__(self, parts: DataFidelity | Sequence[DataFidelity]) -> None:
        #: The fidelity of each operator, or one for all.
        self.parts: list[DataFidelity] = [parts] if isinstance(parts, DataFidelity) else list(parts)

    def _known(self) -> _haloscope.Fidelity:
        return self.parts[0]._fidelity()

    def _natives(self) -> list[_haloscope.Fidelity]:
        return [part._fidelity() for part in self.parts]
