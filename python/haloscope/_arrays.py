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
    array: npt.NDArray[Any] = x.detach().numpy()
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
