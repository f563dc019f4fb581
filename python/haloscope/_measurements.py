"""What several operators measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

import numpy as np

from . import _haloscope
from ._arrays import ArrayLike, Floats, _same, as_input, restore
from ._errors import ArgumentError, NumericError

__all__ = ["Measurements"]


class Measurements(Sequence[Any]):
    """What several operators measured: a list of arrays, of which some may be on other ranks only.

    The arrays are read-only views of one memory, so that solvers use them where they lie; ``numpy.array(y[0])`` is a copy to change.

    >>> import haloscope, numpy
    >>> y = haloscope.Measurements([numpy.ones((1, 1, 4, 4), "f4"), numpy.zeros((1, 1, 2, 2), "f4")])
    >>> len(y), y[1].shape, float((2 * y + y)[0].max())
    (2, (1, 1, 2, 2), 3.0)
    """

    def __init__(self, parts: Sequence[ArrayLike | None]) -> None:
        given = list(parts)
        like = next((part for part in given if part is not None), None)
        self._restore: Callable[[Floats], Any] = restore(like)
        self._native = _haloscope.Measurements([None if part is None else as_input(part) for part in given])

    @classmethod
    def _of(cls, native: _haloscope.Measurements, kind: Callable[[Floats], Any] = _same) -> Measurements:
        measurements = cls.__new__(cls)
        measurements._native, measurements._restore = native, kind
        return measurements

    @property
    def is_complete(self) -> bool:
        """Whether all parts are on this rank."""
        return len(self.local()) == len(self)

    def local(self) -> dict[int, Any]:
        """The parts that this rank has, by the number of their operator."""
        found = ((index, self._native.get(index)) for index in range(len(self)))
        return {index: self._restore(part) for index, part in found if part is not None}

    def _check_finite(self) -> None:
        """Refuses NaNs and infinities, which no method can fit."""
        for index in range(len(self)):
            part = self._native.get(index)
            # A sum is finite only if all values are, and needs no memory; values that overflow it are counted as what they are.
            if part is None:
                continue
            with np.errstate(invalid="ignore"):
                total = part.sum(dtype=np.float64)
            if not np.isfinite(total):
                count = int(part.size - np.isfinite(part).sum())
                if count:
                    advice = "set them to 0 and mask them, with Inpainting(operator.measurement_size, mask) * operator"
                    raise NumericError(f"measurement {index}: {count} of {part.size} values are not finite; {advice}")

    def __len__(self) -> int:
        return len(self._native)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self[place] for place in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"part {index} of {len(self)}")
        part = self._native.get(place)
        if part is None:
            raise ArgumentError(f"part {place} is on another rank; measure with gather=True to have all parts here")
        return self._restore(part)

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))

    def __add__(self, other: Measurements) -> Measurements:
        return self._of(self._native.add_scaled(1.0, other._native), self._restore)

    def __sub__(self, other: Measurements) -> Measurements:
        return self._of(self._native.add_scaled(-1.0, other._native), self._restore)

    def __mul__(self, factor: float) -> Measurements:
        return self._of(self._native.scaled(factor), self._restore)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        shapes = (f"{tuple(part.shape)}" for part in self.local().values())
        return f"Measurements({len(self)} parts; here: {', '.join(shapes)})"


def as_measurements(y: Measurements | Sequence[ArrayLike | None] | ArrayLike, count: int) -> Measurements:
    """What a user gives for ``count`` operators: one array stands for itself if there is one operator."""
    if isinstance(y, Measurements):
        return y
    if y is None:
        raise ArgumentError("measurements: None is given; an array, a list with one for each operator, or Measurements is accepted")
    if isinstance(y, (list, tuple)):
        return Measurements(y)
    if count == 1:
        return Measurements([y])
    raise ArgumentError(f"one array is given for {count} operators; give a list with one for each")
