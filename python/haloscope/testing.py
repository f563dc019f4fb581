"""Tests for operators and programs of your own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ._arrays import as_input
from ._context import Context, launch
from .physics import LinearPhysics

__all__ = ["assert_adjoint", "assert_same_bits"]


def assert_adjoint(physics: LinearPhysics, *, tolerance: float = 1e-5, seeds: Sequence[int] = (0, 1, 2)) -> None:
    """Fails if ``A_adjoint`` is not the adjoint of ``A``.

    >>> import haloscope
    >>> haloscope.testing.assert_adjoint(haloscope.physics.Tomography((1, 16, 16), angles=8))
    """
    for seed in seeds:
        gap = physics.adjointness_test(seed=seed)
        if not gap <= tolerance:
            raise AssertionError(f"{physics!r}: <Ax, y> and <x, A^T y> differ by {gap:.2e} of |Ax| |y| (seed {seed})")


def assert_same_bits(body: Callable[[Context], Any], ranks: Sequence[int] = (1, 2, 3)) -> Any:
    """Fails if ``body(ctx)`` returns other bits on some number of thread ranks; returns what rank 0 returned.

    >>> import haloscope
    >>> def body(ctx):
    ...     frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    ...     return haloscope.distribute([frame] * 3, ctx).A_adjoint_A(haloscope.io.phantom.landscape(16, 16))
    >>> haloscope.testing.assert_same_bits(body).shape
    (1, 3, 16, 16)
    """
    first: Any = None
    for count in ranks:
        for rank, result in enumerate(launch(body, count)):
            if first is None:
                first = result
            elif not np.array_equal(as_input(first).view(np.uint32), as_input(result).view(np.uint32)):
                raise AssertionError(f"rank {rank} of {count} has other bits than one of {ranks[0]} ranks")
    return first
