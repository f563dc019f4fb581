"""Operators of PyLops and SciPy in haloscope."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ._arrays import ArrayLike, as_input
from .physics import LinearPhysics, NoiseModel

__all__ = ["PyLopsPhysics"]


class PyLopsPhysics(LinearPhysics):
    """A linear operator of PyLops or SciPy, with ``matvec``, ``rmatvec`` and ``shape``, on images of a shape.

    >>> import haloscope.pylops
    >>> from scipy.sparse.linalg import aslinearoperator
    >>> import numpy
    >>> physics = haloscope.pylops.PyLopsPhysics(aslinearoperator(numpy.eye(8, 16)), (1, 4, 4))
    >>> physics.adjointness_test() < 1e-6
    True
    """

    def __init__(
        self,
        operator: Any,
        img_size: Sequence[int],
        measurement_size: Sequence[int] | None = None,
        *,
        noise_model: NoiseModel | None = None,
    ) -> None:
        rows, _ = operator.shape
        super().__init__(img_size, measurement_size or (1, rows), noise_model=noise_model)
        self.operator = operator

    def A(self, x: ArrayLike) -> Any:
        """What is measured, image by image."""
        images = as_input(x)
        parts = [np.asarray(self.operator.matvec(image.ravel())) for image in images]
        return np.stack(parts).reshape(len(images), *self.measurement_size).astype(np.float32)

    def A_adjoint(self, y: ArrayLike) -> Any:
        """The adjoint, measurement by measurement."""
        measured = as_input(y)
        parts = [np.asarray(self.operator.rmatvec(part.ravel())) for part in measured]
        return np.stack(parts).reshape(len(measured), *self.img_size).astype(np.float32)
