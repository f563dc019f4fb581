"""Denoisers: networks on haloscope's own CPU engine, total variation, and callables."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from . import _haloscope
from ._arrays import ArrayLike, as_input, is_tensor, restore, to_tensor
from ._copies import deep_copy
from ._errors import ArgumentError
from ._html import tiles_html
from ._onnx import require

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TV", "Denoiser", "DistributedDenoiser", "Network", "TilePlan", "Wavelet", "as_denoiser"]


class Denoiser:
    """Something that removes noise of a known level. Any callable ``f(x, sigma)`` is taken where one is expected.

    >>> import haloscope, numpy
    >>> halve = haloscope.models.as_denoiser(lambda x, sigma: x / 2, name="halve")
    >>> float(halve(numpy.ones((1, 1, 4, 4), numpy.float32), 0.1).max())
    0.5
    """

    _native: _haloscope.Denoiser

    @property
    def name(self) -> str:
        """Its name in messages."""
        return self._native.name

    def __call__(self, x: ArrayLike, sigma: float | Sequence[float] | ArrayLike) -> Any:
        """The images without their noise, whose standard deviation is ``sigma``: a number, one for each image of the batch, or a map
        (batch or 1, 1, spatial...)."""
        image = as_input(x)
        return restore(x)(self._native.denoise(image, level_of(sigma, image.ndim)))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return deep_copy(self, memo)

    def memory(self, shape: Sequence[int]) -> int | None:
        """The bytes that it takes for a batch of this shape besides input and output, if it knows."""
        return self._native.memory(list(shape))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"


def level_of(sigma: float | Sequence[float] | ArrayLike, axes: int) -> Any:
    """A noise level as the extension takes it."""
    if isinstance(sigma, (int, float)):
        return float(sigma)
    array = as_input(sigma)
    if array.size == 1:
        return float(array.reshape(()))
    if array.ndim == axes and array.size == array.shape[0]:
        return [float(level) for level in array.ravel()]
    return array if array.ndim > 1 else [float(level) for level in array]


class Network(Denoiser):
    """A convolutional network on haloscope's own CPU engine: DRUNet, DnCNN, FDnCNN or UNet, in 2-D or 3-D.

    ``weights`` is ``"builtin:color"``, ``"builtin:gray"`` or ``"builtin:volume"``, a ``.pth``, ``.pt`` or ``.safetensors`` file, a state
    dict, or a torch module that has one of these networks' state dict. The architecture is detected from the weights. ``memory_budget`` (bytes, or
    ``"450MB"``) trades time for memory, and ``accuracy="strict"`` time for the last digits.

    A package that was built with ONNX Runtime also takes ``.onnx`` files of other networks, and runs any network on a GPU with
    ``device="gpu"``, ``"gpu:1"`` or ``"auto"``. ``onnx`` is what such a file does not say itself, by the keys of ``[prior.onnx]`` in
    job files: ``onnx={"noise": "scalar", "white": 255}``.

    >>> import haloscope
    >>> net = haloscope.models.Network("builtin:color")
    >>> net.architecture, net.in_channels
    ('drunet', 3)
    >>> net(haloscope.io.phantom.landscape(32, 40), 0.1).shape
    (1, 3, 32, 40)
    """

    def __init__(
        self,
        weights: str | os.PathLike[str] | Mapping[str, ArrayLike] | Any = "builtin:color",
        *,
        threads: int | None = None,
        accuracy: Literal["fast", "strict"] = "fast",
        memory_budget: int | str | None = None,
        onnx: Mapping[str, str | float] | None = None,
        device: str = "cpu",
    ) -> None:
        count = threads or _haloscope.get_num_threads()
        budget = to_bytes(memory_budget)
        if isinstance(weights, (str, os.PathLike)):
            name = os.fspath(weights)
            if name.lower().endswith(".onnx"):
                require(f"{name}: an ONNX file")
            elif device.startswith("gpu"):
                require(f"device={device!r}")
            said = [(key, str(value)) for key, value in (onnx or {}).items()]
            self._native = _haloscope.Denoiser.named(name, count, accuracy, budget, said, device)
        else:
            if onnx is not None or device != "cpu":
                raise ArgumentError("onnx and device are for networks by name or file; save the weights in a file for a GPU")
            if not isinstance(weights, Mapping) and not hasattr(weights, "state_dict"):
                raise ArgumentError(f"weights: {weights!r}; a name or file, a state dict, or a torch module is accepted")
            state = weights if isinstance(weights, Mapping) else weights.state_dict()
            arrays = {name: as_input(tensor.detach() if is_tensor(tensor) else tensor) for name, tensor in state.items()}
            kept = {name: array for name, array in arrays.items() if array.ndim > 0}
            self._native = _haloscope.Denoiser.of_weights(kept, count, accuracy, budget)
        self.architecture, self.in_channels, self.num_parameters, self.levels = self._native.describe_network()

    def __call__(self, x: ArrayLike, sigma: float | Sequence[float] | ArrayLike) -> Any:
        """The images without their noise; their values are about from 0 to 1, as those that networks are trained on."""
        kind = str(getattr(x, "dtype", "")).removeprefix("torch.")
        if kind.startswith(("int", "uint")):
            raise ArgumentError(f"an image of {kind} is given; networks take values from 0 to 1: pass x / {np.iinfo(kind).max}")
        return super().__call__(x, sigma)

    def flops(self, shape: Sequence[int]) -> int:
        """The operations for a batch of this shape; a multiplication and an addition are two.

        >>> import haloscope
        >>> haloscope.models.Network("builtin:gray").flops((1, 1, 64, 64)) > 1_000_000
        True
        """
        return self._native.flops(list(shape))

    def profile(self, x: ArrayLike, sigma: float) -> list[tuple[str, float]]:
        """The seconds of each layer.

        >>> import haloscope
        >>> net = haloscope.models.Network("builtin:color")
        >>> len(net.profile(haloscope.io.phantom.landscape(32, 32), 0.1)) > 10
        True
        """
        return self._native.profile(as_input(x), sigma)


def denoiser_for(denoiser: Any, img_size: Sequence[int]) -> Denoiser:
    """A denoiser, or the one of this name or file; ``"builtin"`` is the built-in network for images of this size, (channel, spatial...)."""
    if isinstance(denoiser, str) and denoiser == "builtin":
        channels, *sides = img_size
        denoiser = _haloscope.builtin_for(channels, len(sides))
    return as_denoiser(denoiser)


def to_bytes(size: int | str | None) -> int | None:
    """A number of bytes, or one with a unit: ``"450MB"``, ``"1.5 GiB"``."""
    if size is None or isinstance(size, int):
        return size
    units = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    text = size.strip().upper()
    number = text.rstrip("BKMGI")
    unit = text[len(number) :].strip() or "B"
    try:
        return int(float(number) * units[unit])
    except (KeyError, ValueError):
        raise ArgumentError(f"memory_budget: {size!r}; bytes, or a number with a unit such as '450MB', is accepted") from None


class TV(Denoiser):
    """The prox of total variation (deepinv: ``TVDenoiser``).

    >>> import haloscope
    >>> haloscope.models.TV()(haloscope.io.phantom.landscape(16, 16), 0.1).shape
    (1, 3, 16, 16)
    """

    def __init__(self, n_it_max: int = 200, crit: float = 1e-5) -> None:
        self._native = _haloscope.Denoiser.total_variation(n_it_max, crit)


class Wavelet(Denoiser):
    """The prox of the ℓ1 norm of wavelet coefficients, with ``sigma`` as its weight (deepinv: ``WaveletDenoiser``).

    ``bases`` is a name such as ``"db4"``, several with commas between them, or ``"sara"``: the pixels and db1 to db8. ``coarse`` says
    whether the means at the coarsest scale are part of the norm; by default they are for ``"sara"``. ``n_it_max`` and ``crit`` end the
    iterations for several bases; with one, the prox is soft thresholding.

    >>> import haloscope
    >>> haloscope.models.Wavelet("sara")(haloscope.io.phantom.landscape(32, 32), 0.1).shape
    (1, 3, 32, 32)
    """

    def __init__(
        self, bases: str = "db4", scales: int = 4, coarse: bool | None = None, n_it_max: int = 50, crit: float = 1e-4
    ) -> None:
        self._native = _haloscope.Denoiser.wavelets(bases, scales, coarse, n_it_max, crit)


class _Function(Denoiser):
    def __init__(self, native: _haloscope.Denoiser) -> None:
        self._native = native


def as_denoiser(
    f: Denoiser | Callable[..., Any] | str | os.PathLike[str],
    *,
    name: str | None = None,
    kind: Literal["auto", "numpy", "torch"] = "auto",
    alignment: int = 1,
    threadsafe: bool = True,
) -> Denoiser:
    """A callable ``f(x, sigma)``, or a name or file of weights, as a denoiser; ``distribute`` and the solvers call this themselves.

    A torch module gets tensors, under ``torch.inference_mode``. A callable may keep or change the array that it gets. It is called on
    ranks' threads with the interpreter's lock; ``threadsafe=False`` has one call at a time. What it raises comes back as itself.
    The sides of tiles are multiples of ``alignment``.

    >>> import haloscope, numpy
    >>> denoiser = haloscope.models.as_denoiser(lambda x, sigma: x * (1 - sigma), name="shrink")
    >>> denoiser.name
    'shrink'
    """
    if isinstance(f, Denoiser):
        return f
    if isinstance(f, (str, os.PathLike)):
        return Network(f)
    if isinstance(f, type) or not callable(f):
        hint = f"; {f.__name__}() makes one" if isinstance(f, type) and issubclass(f, Denoiser) else ""
        accepted = "a Denoiser, a name or file of weights, or a callable f(x, sigma) is accepted"
        raise ArgumentError(f"{f!r} is not a denoiser; {accepted}{hint}")
    torch = sys.modules.get("torch")
    is_module = torch is not None and isinstance(f, torch.nn.Module)
    wants_tensors = kind == "torch" or (kind == "auto" and is_module)
    title = str(name or getattr(f, "__name__", type(f).__name__))
    call = _on_tensors(f) if wants_tensors else f
    return _Function(_haloscope.Denoiser.function(title, call, alignment, threadsafe))


def _on_tensors(f: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    def call(x: Any, sigma: Any) -> Any:
        with torch.inference_mode():
            level = to_tensor(sigma) if isinstance(sigma, np.ndarray) else sigma
            if isinstance(level, list):
                level = torch.tensor(level)
            return f(to_tensor(x), level)

    return call


class TilePlan:
    """The tiles of an image. In notebooks it shows as a picture, with a colour for each rank.

    >>> import haloscope
    >>> with haloscope.Context() as ctx:
    ...     net = haloscope.distribute(haloscope.models.TV(), ctx, patch_size=32, overlap=8)
    >>> plan = net.plan((1, 3, 64, 96))
    >>> len(plan), plan.grid
    (6, (2, 3))
    """

    def __init__(self, described: dict[str, Any], shape: Sequence[int]) -> None:
        #: The shape of the image.
        self.shape = tuple(shape)
        #: The number of tiles along each axis.
        self.grid: tuple[int, ...] = tuple(described["grid"])
        #: The pixels that a tile sees, along each axis.
        self.window: tuple[int, ...] = tuple(described["window"])
        #: The pixels beyond its own that it sees, on either side.
        self.overlap: tuple[int, ...] = tuple(described["overlap"])
        #: The work, where that of the image in one piece is 1.
        self.work_multiplier: float = described["work_multiplier"]
        #: The work of each rank.
        self.loads: list[float] = described["loads"]
        #: What the plan changed.
        self.notes: list[str] = described["notes"]
        self._tiles: list[list[tuple[int, int]]] = described["tiles"]
        self._blocks: list[tuple[int, int]] = described["blocks"]

    def __len__(self) -> int:
        return len(self._tiles)

    def owner(self, tile: int) -> int:
        """The rank of a tile."""
        return next(rank for rank, (first, end) in enumerate(self._blocks) if first <= tile < end)

    def __repr__(self) -> str:
        grid, window = (" x ".join(map(str, sides)) for sides in (self.grid, self.window))
        return f"TilePlan({grid} tiles of {window}, {self.work_multiplier:.2f} times the work)"

    def _repr_html_(self) -> str:
        return tiles_html(self.shape, [(tile, self.owner(place)) for place, tile in enumerate(self._tiles)], repr(self))


class DistributedDenoiser(Denoiser):
    """A denoiser on tiles that the ranks share, used like any other; every rank calls it with the same image.
    :func:`haloscope.distribute` makes it.

    >>> import haloscope
    >>> with haloscope.Context() as ctx:
    ...     tiled = haloscope.distribute(haloscope.models.TV(), ctx, patch_size=32, overlap=8)
    >>> tiled(haloscope.io.phantom.landscape(64, 64), 0.1).shape
    (1, 3, 64, 64)
    """

    def __init__(self, native: _haloscope.Denoiser) -> None:
        self._native = native

    def plan(self, shape: Sequence[int]) -> TilePlan:
        """The tiles of images of this shape: number, grid, window, work, and share of each rank."""
        return TilePlan(self._native.tiles(list(shape)), shape)
