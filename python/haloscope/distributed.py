"""Ordinary objects over ranks."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from . import _haloscope
from ._arrays import Size, lengths
from ._context import Context
from ._errors import ArgumentError
from .models import Denoiser, DistributedDenoiser, as_denoiser
from .optim import DataFidelity, DistributedDataFidelity, Prior
from .physics import DistributedStack, NoiseModel, Physics, Stack

__all__ = ["distribute"]


def distribute(
    object: Any,  # noqa: A002  (deepinv's name)
    ctx: Context,
    *,
    num_operators: int | None = None,
    type_object: Literal["auto", "physics", "linear_physics", "denoiser", "data_fidelity"] = "auto",
    gather_strategy: Literal["concatenated", "naive", "broadcast"] = "concatenated",
    tiling_strategy: str | None = None,
    tiling_dims: int | Sequence[int] | None = None,
    patch_size: Size | Literal["auto"] | None = 256,
    overlap: Size | None = 64,
    max_batch_size: int | None = None,
    border: Literal["inside", "reflect", "replicate", "circular", "zero"] = "inside",
    assignment: Literal["round_robin", "balanced"] | Sequence[int] = "round_robin",
    factory_kwargs: Mapping[str, Any] | None = None,
    dtype: None = None,
) -> Any:
    """Shares operators, a denoiser or fidelities between the ranks; the result is used like the original, by all ranks at once.

    Keywords and defaults are those of ``deepinv.distributed.distribute``. A callable is a denoiser ``f(x, sigma)``, unless
    ``num_operators`` is given: then it makes operators, and gets (index, ctx, factory_kwargs). ``tiling_strategy`` is ``"overlap"``,
    ``"blend"``, ``"basic"``, or ``"exact"``: no tiles, and the bits of the whole image, for networks. None is ``"standard"``: overlapping
    tiles if lengths of them are given, as they are by default; with ``patch_size=None`` and ``overlap=None``, exact for networks on images
    whose layers take at most 5 GB at once, or 12 GB in waves, and overlapping tiles of haloscope's own lengths for anything else, on any
    number of ranks.
    ``patch_size="auto"`` suits the number of ranks, on which the bits then depend.
    ``max_batch_size=None`` takes as many tiles at once as fit in a gigabyte. With one rank, a denoiser that is distributed cuts large
    images into tiles. Operators and fidelities of deepinv are taken as :func:`haloscope.deepinv.from_deepinv` takes them. The result is a
    :class:`~haloscope.physics.DistributedStack`, a :class:`~haloscope.models.DistributedDenoiser`, a :class:`~haloscope.optim.DistributedDataFidelity`, or a prior.

    >>> import haloscope
    >>> def body(ctx):
    ...     frame = haloscope.physics.Denoising(img_size=(3, 32, 32))
    ...     physics = haloscope.distribute([frame, frame, frame], ctx)
    ...     return float(physics.A_adjoint(physics.A(haloscope.io.phantom.landscape(32, 32))).sum())
    >>> one, three = haloscope.launch(body, ranks=1)[0], haloscope.launch(body, ranks=3)[0]
    >>> one == three
    True
    """
    if dtype is not None:
        raise ArgumentError(f"dtype: {dtype!r}; haloscope computes in float32: leave it out")
    if isinstance(object, (DistributedStack, DistributedDenoiser, DistributedDataFidelity)):
        return object
    object = _of_deepinv(object)  # noqa: A001
    if isinstance(object, Prior):
        options: dict[str, Any] = {"tiling_strategy": tiling_strategy, "tiling_dims": tiling_dims, "patch_size": patch_size}
        options |= {"overlap": overlap, "max_batch_size": max_batch_size, "border": border}
        return object._distributed(lambda denoiser: distribute(denoiser, ctx, **options))
    if isinstance(object, DataFidelity) or _is_list_of(object, DataFidelity):
        return DistributedDataFidelity(object)
    owners = None if isinstance(assignment, str) else list(assignment)
    how = assignment if isinstance(assignment, str) else ""
    if isinstance(object, Physics):
        object = [object]
    if isinstance(object, Stack) or _is_list_of(object, Physics):
        physics: list[Physics] = list(object)
        operators = [operator._operator() for operator in physics]
        native = _haloscope.Stack(ctx._native, operators, how, owners, gather_strategy)
        return DistributedStack(native, physics, [operator.noise_model for operator in physics], ctx)
    if num_operators is not None or type_object in ("physics", "linear_physics"):
        if num_operators is None:
            raise ArgumentError("num_operators is missing; a callable that makes operators needs their number")
        return _of_factory(object, ctx, num_operators, how, owners, gather_strategy, factory_kwargs)
    denoiser = as_denoiser(object)
    strategy = {"overlap_tiling": "overlap", "smooth": "blend"}.get(tiling_strategy or "", tiling_strategy or "standard")
    axes = None if tiling_dims is None else _spatial_axes(tiling_dims)
    patch = None if patch_size is None else [] if patch_size == "auto" else lengths(patch_size)
    margin = None if overlap is None else lengths(overlap)
    shared = denoiser._native.distributed(
        ctx._native, strategy, patch, margin, axes, border, max_batch_size
    )
    return DistributedDenoiser(shared)


def _of_deepinv(object: Any) -> Any:  # noqa: A002
    """deepinv's operators and fidelities as haloscope's own; its denoisers are called like any other."""
    deepinv = sys.modules.get("deepinv")
    if deepinv is None:
        return object
    kinds = (deepinv.physics.Physics, deepinv.optim.DataFidelity)
    if not isinstance(object, kinds) and not (isinstance(object, (list, tuple)) and any(isinstance(item, kinds) for item in object)):
        return object
    from .deepinv import from_deepinv

    if isinstance(object, kinds):
        return from_deepinv(object)
    return [from_deepinv(item) if isinstance(item, kinds) else item for item in object]


def _is_list_of(object: Any, kind: type) -> bool:  # noqa: A002
    return isinstance(object, (list, tuple)) and bool(object) and all(isinstance(item, kind) for item in object)


def _spatial_axes(dims: int | Sequence[int]) -> list[int]:
    """Axes of arrays, or axes counted from the end, as spatial axes counted from 0; a number is how many there are."""
    if isinstance(dims, int):
        return list(range(dims))
    if all(axis < 0 for axis in dims):
        count = -min(dims)
        return sorted(axis + count for axis in dims)
    return sorted(axis - 2 for axis in dims)


def _of_factory(
    make: Callable[[int, Context, Mapping[str, Any] | None], Physics],
    ctx: Context,
    count: int,
    how: str,
    owners: list[int] | None,
    gather: str,
    shared: Mapping[str, Any] | None,
) -> DistributedStack:
    # As with deepinv, all ranks work with what rank 0 passes.
    shared = ctx.all_gather(shared if ctx.is_root else None)[0] if ctx.size > 1 else shared
    made: dict[int, Physics] = {}

    def operator(index: int) -> _haloscope.Operator:
        made[index] = make(index, ctx, shared)
        return made[index]._operator()

    native = _haloscope.Stack.of_factory(ctx._native, count, operator, how, owners, gather)
    noise: list[NoiseModel | None] = [None] * count
    known = {index: physics.noise_model for index, physics in made.items()}
    for part in ctx.all_gather(known) if ctx.size > 1 else [known]:
        for index, model in part.items():
            noise[index] = model
    physics = [made.get(index) or _elsewhere(native, index) for index in range(count)]
    return DistributedStack(native, physics, noise, ctx)


def _elsewhere(native: _haloscope.Stack, index: int) -> Physics:
    """What is known of an operator on another rank."""
    return Physics(native.image_shape, native.measurement_shapes[index])
