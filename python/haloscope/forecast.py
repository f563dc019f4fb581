"""What a reconstruction will take, before anything runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, overload

from . import _haloscope
from ._arrays import Size, lengths, shape_of
from ._errors import ArgumentError, ShapeError
from ._html import table
from .jobs import Job, native_job
from .models import Denoiser, denoiser_for, to_bytes
from .optim import PnP, Prior, TVPrior
from .physics import Physics, Stack
from .physics._stacks import as_stack

__all__ = ["Forecast", "Forecasts", "plan"]


@dataclass(frozen=True)
class Forecast:
    """Memory, work and messages of each rank; printed, the table of ``haloscope plan``.

    >>> import haloscope
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 256, 256))
    >>> found = haloscope.plan(blur, "builtin", ranks=2, patch_size=128)
    >>> found.fits, len(found.ranks), found.ranks[0]["tiles"]
    (True, 2, 2)
    """

    #: For each rank: operators, tiles, load, memory_bytes, memory (its parts) and bytes_sent_per_iteration.
    ranks: list[dict[str, Any]]
    #: Whether it fits on this machine, or in the budget.
    fits: bool
    #: What to do, in words.
    recommendation: str
    #: All that ``haloscope plan --json`` prints, by its names: ``plan``, ``alternatives`` with other tiles, ``other_ranks``.
    details: dict[str, Any] = field(repr=False)
    _text: str = field(repr=False)

    @property
    def rank_bytes(self) -> int:
        """The most bytes that a rank holds at once."""
        return int(self.details["plan"]["largest_memory_bytes"])

    def __str__(self) -> str:
        return self._text.rstrip()

    def _repr_html_(self) -> str:
        rows = []
        for line in self._text.splitlines():
            name, _, value = line.strip().partition("  ")
            rows.append((name, value.strip()))
        return table([row for row in rows if any(row)])


class Forecasts(Sequence[Forecast]):
    """The same reconstruction on several numbers of ranks; printed, a row for each.

    >>> import haloscope
    >>> blurs = [haloscope.physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 256, 256))] * 4
    >>> found = haloscope.plan(blurs, "builtin", ranks=[1, 2, 4])
    >>> [forecast.ranks[0]["operators"] for forecast in found]
    [4, 2, 1]
    >>> print(found)  # doctest: +ELLIPSIS
    ranks  memory of one  of all together  sent by one  largest load  fits
        1 ...
    """

    def __init__(self, forecasts: Sequence[Forecast]) -> None:
        self._forecasts = list(forecasts)

    @overload
    def __getitem__(self, index: int) -> Forecast: ...
    @overload
    def __getitem__(self, index: slice) -> list[Forecast]: ...
    def __getitem__(self, index: int | slice) -> Forecast | list[Forecast]:
        return self._forecasts[index]

    def __len__(self) -> int:
        return len(self._forecasts)

    def _rows(self) -> list[tuple[str, ...]]:
        rows: list[tuple[str, ...]] = [("ranks", "memory of one", "of all together", "sent by one", "largest load", "fits")]
        for forecast in self:
            plan = forecast.details["plan"]
            sizes = (plan[name] / 1e6 for name in ("largest_memory_bytes", "together_bytes", "bytes_sent_per_iteration"))
            numbers = [f"{size:.1f} MB" for size in sizes]
            rows.append((str(len(forecast.ranks)), *numbers, f"{plan['largest_load']:.2f}", "yes" if plan["fits"] else "no"))
        return rows

    def __str__(self) -> str:
        widths = [len(name) for name in self._rows()[0]]
        return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in self._rows())

    def __repr__(self) -> str:
        return f"Forecasts({[len(forecast.ranks) for forecast in self]} ranks)"

    def _repr_html_(self) -> str:
        return table(self._rows())


@overload
def plan(
    physics: Physics | Stack | Sequence[Physics] | Job,
    denoiser: Denoiser | Prior | Callable[..., Any] | str | None = None,
    *,
    ranks: int = 1,
    shape: Sequence[int] | None = None,
    method: str | None = None,
    tiling_strategy: str = "standard",
    patch_size: Size | Literal["auto"] | None = None,
    overlap: Size | None = None,
    max_iter_inner: int = 50,
    threads: int | None = None,
    memory_budget: int | str | None = None,
) -> Forecast: ...
@overload
def plan(
    physics: Physics | Stack | Sequence[Physics] | Job,
    denoiser: Denoiser | Prior | Callable[..., Any] | str | None = None,
    *,
    ranks: Sequence[int],
    shape: Sequence[int] | None = None,
    method: str | None = None,
    tiling_strategy: str = "standard",
    patch_size: Size | Literal["auto"] | None = None,
    overlap: Size | None = None,
    max_iter_inner: int = 50,
    threads: int | None = None,
    memory_budget: int | str | None = None,
) -> Forecasts: ...
def plan(
    physics: Physics | Stack | Sequence[Physics] | Job,
    denoiser: Denoiser | Prior | Callable[..., Any] | str | None = None,
    *,
    ranks: int | Sequence[int] = 1,
    shape: Sequence[int] | None = None,
    method: str | None = None,
    tiling_strategy: str = "standard",
    patch_size: Size | Literal["auto"] | None = None,
    overlap: Size | None = None,
    max_iter_inner: int = 50,
    threads: int | None = None,
    memory_budget: int | str | None = None,
) -> Forecast | Forecasts:
    """Forecasts memory, work and messages of each rank, as ``haloscope plan`` does; nothing is run.

    ``physics`` are the operators, or a job file or its content as a dict, which says the rest itself. ``denoiser`` is a network, or a
    name or file of weights (``"builtin"`` is the built-in one for such images); None is total variation, where the method
    takes a prior. Several numbers of ``ranks`` are planned beside each other. ``shape`` is that of the images, (batch, channel,
    spatial...), for batches and for operators that take images of any shape. ``method`` is as in job files, by default pgd with a
    network, else primal-dual. Tiles are those of :func:`haloscope.distribute`; without lengths, networks are exact. ``memory_budget``
    is what each rank may take, in bytes or as ``"16GB"``; without it, all ranks together must fit on this machine.

    >>> import haloscope
    >>> scan = haloscope.physics.Tomography((1, 64, 64, 64), angles=90)
    >>> found = haloscope.plan(scan.split(6), ranks=3, method="cg")
    >>> [rank["operators"] for rank in found.ranks]
    [2, 2, 2]
    >>> haloscope.plan(scan, memory_budget="1MB").fits
    False
    >>> [forecast.fits for forecast in haloscope.plan(scan.split(6), ranks=[1, 6], method="cg", memory_budget="6MB")]
    [False, True]
    """
    counts = [ranks] if not isinstance(ranks, Sequence) else list(ranks)
    if not counts or not all(isinstance(count, int) and count >= 1 for count in counts):
        raise ArgumentError(f"ranks: {ranks} is given; a number of at least 1, or several of them, is needed")
    budget = to_bytes(memory_budget)
    if isinstance(physics, (str, os.PathLike, Mapping)):
        if denoiser is not None or method is not None or shape is not None:
            raise ArgumentError("a job says itself which image, denoiser and method it has; leave them out")
        job = native_job(physics)

        def planned(count: int) -> tuple[str, str]:
            return job.plan(count, threads, budget)
    else:
        image, shapes = _shapes(physics, shape)
        network = None if denoiser is None else _network(denoiser, image[1:])
        patch = None if patch_size is None else [] if patch_size == "auto" else lengths(patch_size)
        margin = None if overlap is None else lengths(overlap)

        def planned(count: int) -> tuple[str, str]:
            return _haloscope.plan(
                image, shapes, network, method, max_iter_inner, tiling_strategy, patch, margin, count, threads, budget
            )

    forecasts = [_forecast(*planned(count)) for count in counts]
    return forecasts[0] if isinstance(ranks, int) else Forecasts(forecasts)


def _shapes(
    physics: Physics | Stack | Sequence[Physics], shape: Sequence[int] | None
) -> tuple[list[int], list[list[int]]]:
    """The shape of the images with their batch, and those of what each operator measures of one."""
    if shape is None:
        operators = as_stack(physics)
        return [1, *operators.img_size], operators._native.measurement_shapes
    image = shape_of(shape, "shape")
    parts: list[Any] = [physics] if isinstance(physics, Physics) else list(physics)
    for part in parts:
        if not isinstance(part, Physics):
            raise ArgumentError(f"physics: {part!r} is no operator; an operator, a Stack or a list of operators is accepted")
    natives = [part._operator(image) for part in parts]
    for native in natives:
        if image[1:] != native.image_shape:
            raise ShapeError(f"shape: {tuple(image)} is given; {native.name} takes a batch of {tuple(native.image_shape)}")
    return image, [native.measurement_shape for native in natives]


def _forecast(text: str, details: str) -> Forecast:
    found = json.loads(details)
    fits = any(way["fits"] for way in [found["plan"], *found["alternatives"]])
    return Forecast(found["plan"]["ranks"], fits, found["recommendation"], found, text)


def _network(denoiser: Any, img_size: Sequence[int]) -> _haloscope.Denoiser | None:
    if isinstance(denoiser, TVPrior):
        return None
    if isinstance(denoiser, PnP):
        denoiser = denoiser.denoiser
    return denoiser_for(denoiser, img_size)._native
