"""Arrays in and out: numpy, torch on the CPU, and anything with DLPack or ``__array__``.

The extension reads aligned float32 in C order where it lies. Anything else is converted here, once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ._errors import ArgumentError

#: A numpy array, a torch tensor on the CPU, or anything with ``__dlpack__`` on the CPU or ``__array__``.
ArrayLike: TypeAlias = Any
#: One length for all axes, or one for each.
Size: TypeAlias = int | Sequence[int]
#: What the extension takes and returns.
Floats: TypeAlias = npt.NDArray[np.float32]


def as_input(x: ArrayLike) -> Floats:
    """The array as aligned float32 in C order: the same memory if it is that already."""
    if is_tensor(x):
        x = _of_tensor(x)
    elif not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__"):
        x = np.from_dlpack(x)
    array = np.asarray(x)
    if array.dtype.kind == "c":
        raise ArgumentError(f"an array of {array.dtype} is given; pass real and imaginary part as two channels")
    if array.dtype.kind not in "fiub":
        raise ArgumentError(f"an array of {array.dtype} is given; numbers are expected")
    return np.require(array, np.float32, ["C", "A"])


def is_tensor(x: object) -> bool:
    """Whether it is a tensor of torch, which is imported only by those who have one."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def _of_tensor(x: Any) -> npt.NDArray[Any]:
    if x.device.type != "cpu":
        raise ArgumentError(f"a tensor on {x.device} is given; haloscope computes on CPUs: pass x.cpu()")
    if x.requires_grad:
        raise ArgumentError(
            "a tensor that requires grad is given; pass x.detach(), or use haloscope.deepinv, where gradients are defined"
        )
    if x.is_complex():
        raise ArgumentError("a complex tensor is given; pass torch.view_as_real(x) with its axis among the channels")
    import torch

    if x.layout != torch.strided:
        raise ArgumentError(f"a tensor of layout {x.layout} is given; pass x.to_dense()")
    # numpy has no such type.
    dense = x.detach().to(torch.float32) if x.dtype == torch.bfloat16 else x.detach()
    array: npt.NDArray[Any] = dense.resolve_neg().numpy()
    return array


def restore(like: ArrayLike) -> Callable[[Floats], Any]:
    """What turns results into the kind of array that came in: tensors for tensors, else numpy's."""
    if is_tensor(like):
        return to_tensor
    return _same


def to_tensor(array: Floats) -> Any:
    """The array as a tensor on the same memory."""
    import torch

    # Memory that several results share is read-only, which tensors cannot be.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _same(array: Floats) -> Floats:
    return array


def shape_of(size: Sequence[int], what: str = "img_size") -> list[int]:
    """The lengths of all axes."""
    if isinstance(size, (str, int, float)) or not all(isinstance(length, (int, np.integer)) for length in size):
        raise ArgumentError(f"{what}: {size!r} is given; a whole number for each axis is expected, as in (3, 256, 256)")
    return [int(length) for length in size]


def bounds(values: object, what: str) -> tuple[float, float]:
    """The least and the greatest value of a range."""
    try:
        low, high = (float(value) for value in values)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        raise ArgumentError(f"{what}: {values!r} is given; a least and a greatest value are expected, as in (0, 1)") from None
    if not low <= high:
        raise ArgumentError(f"{what}: ({low}, {high}) is given; the first is at most the second, as in (0, 1)")
    return low, high


def lengths(size: Size) -> list[int]:
    """One length, or one for each axis, as a list."""
    return [int(size)] if isinstance(size, (int, np.integer)) else [int(length) for length in size]


def numbers(values: float | Sequence[float]) -> list[float]:
    """One number, or one for each axis, as a list."""
    return [float(values)] if isinstance(values, (int, float, np.number)) else [float(value) for value in values]


def per_axis(values: float | Sequence[float], axes: int, what: str) -> list[float]:
    """As many numbers as there are axes."""
    given = numbers(values)
    if len(given) == 1:
        return given * axes
    if len(given) != axes:
        raise ArgumentError(f"{what}: {len(given)} numbers are given; 1 or {axes} are expected")
    return given
