"""haloscope inside of deepinv, and deepinv inside of haloscope. Needs deepinv and torch.

Nothing else of the package imports torch.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import deepinv
import numpy as np
import torch

from . import optim
from . import physics as operators
from ._arrays import as_input, to_tensor
from ._errors import ArgumentError
from .models import Denoiser, Network, as_denoiser
from .physics import LinearPhysics, Stack

__all__ = ["HaloscopeDenoiser", "HaloscopePhysics", "accelerate", "from_deepinv", "to_deepinv"]


class HaloscopeDenoiser(deepinv.models.Denoiser):  # type: ignore[misc]
    """A haloscope denoiser where deepinv wants one: tensors in, tensors out.

    ``backward`` says what a gradient through it is: ``"error"`` raises, ``"straight_through"`` passes it on as it is (the denoiser is
    taken for the identity), and ``"torch"`` runs ``module``, of the same weights, for it.

    >>> import torch, haloscope.deepinv
    >>> denoiser = haloscope.deepinv.HaloscopeDenoiser("builtin:color")
    >>> denoiser(torch.rand(1, 3, 32, 32), 0.1).shape
    torch.Size([1, 3, 32, 32])
    """

    def __init__(
        self,
        denoiser: Denoiser | Callable[..., Any] | str = "builtin:color",
        *,
        backward: Literal["error", "straight_through", "torch"] = "error",
        module: torch.nn.Module | None = None,
    ) -> None:
        super().__init__()
        if backward == "torch" and module is None:
            raise ArgumentError("backward='torch' needs module, a torch module of the same weights")
        self.denoiser = Network(denoiser) if isinstance(denoiser, str) else as_denoiser(denoiser)
        self.backward = backward
        self.module = module

    def forward(self, x: torch.Tensor, sigma: float | torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The images without noise of the level ``sigma``."""
        if not (torch.is_grad_enabled() and x.requires_grad):
            return self._denoise(x, sigma)
        if self.backward == "torch" and self.module is not None:
            result: torch.Tensor = self.module(x, sigma)
            return result
        if self.backward == "straight_through":
            return x + (self._denoise(x.detach(), sigma) - x.detach())
        raise ArgumentError(
            "a gradient through the denoiser is asked for; call it under torch.no_grad(), or make it with "
            "backward='straight_through' or backward='torch'"
        )

    def _denoise(self, x: torch.Tensor, sigma: float | torch.Tensor) -> torch.Tensor:
        level = sigma.detach().cpu() if isinstance(sigma, torch.Tensor) else sigma
        if isinstance(level, torch.Tensor) and level.ndim > 1 and level.numel() in (1, x.shape[0]):
            level = level.flatten()
        denoised: torch.Tensor = self.denoiser(x.detach().cpu(), level)
        return denoised.to(device=x.device, dtype=x.dtype)


class _Map(torch.autograd.Function):  # type: ignore[misc]
    """A linear map whose derivative is its adjoint, and whose derivative's derivative is the map."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, map: Callable[..., Any], adjoint: Callable[..., Any]) -> torch.Tensor:  # noqa: A002
        ctx.maps = (map, adjoint)
        result: torch.Tensor = map(x.detach().cpu())
        return result.to(device=x.device, dtype=x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        map, adjoint = ctx.maps  # noqa: A001
        return _Map.apply(gradient, adjoint, map), None, None


class HaloscopePhysics(deepinv.physics.LinearPhysics):  # type: ignore[misc]
    """A haloscope operator where deepinv wants one; autograd goes through the exact adjoint, and twice if asked.

    Its noise is deepinv's of the same name, unless a ``noise_model`` of deepinv is given.

    >>> import torch, haloscope.deepinv
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(1, 16, 16))
    >>> physics = haloscope.deepinv.HaloscopePhysics(blur)
    >>> x = torch.rand(1, 1, 16, 16, requires_grad=True)
    >>> physics.A(x).pow(2).sum().backward()
    >>> bool(torch.allclose(x.grad, 2 * physics.A_adjoint(physics.A(x.detach())), atol=1e-5))
    True
    """

    def __init__(self, physics: LinearPhysics, **kwargs: Any) -> None:
        noise = None if physics.noise_model is None else _same_noise(physics.noise_model, deepinv.physics)
        given = kwargs if noise is None else {"noise_model": noise, **kwargs}
        super().__init__(img_size=tuple(physics.img_size), **given)
        self.haloscope = physics

    def A(self, x: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """What is measured, without noise."""
        result: torch.Tensor = _Map.apply(x, self.haloscope.A, self.haloscope.A_adjoint)
        return result

    def A_adjoint(self, y: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The adjoint."""
        result: torch.Tensor = _Map.apply(y, self.haloscope.A_adjoint, self.haloscope.A)
        return result

    def A_dagger(self, y: torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The least-squares solution of least norm, without gradients."""
        found: torch.Tensor = self.haloscope.A_dagger(y.detach().cpu())
        return found.to(device=y.device, dtype=y.dtype)

    def prox_l2(self, z: torch.Tensor, y: torch.Tensor, gamma: float | torch.Tensor, **kwargs: Any) -> torch.Tensor:
        """The prox of ``gamma/2 |Ax - y|^2``, without gradients."""
        weight = float(gamma.flatten()[0]) if isinstance(gamma, torch.Tensor) else float(gamma)
        found: torch.Tensor = self.haloscope.prox_l2(z.detach().cpu(), y.detach().cpu(), weight)
        return found.to(device=z.device, dtype=z.dtype)


#: The noise models that both have by the same name, and what they are told.
_NOISE = {"GaussianNoise": ("sigma",), "PoissonNoise": ("gain",), "PoissonGaussianNoise": ("gain", "sigma"), "UniformNoise": ("a",)}


def _same_noise(model: Any, where: Any) -> Any:
    """The noise model of the same name from another package, or None."""
    name = type(model).__name__
    values = [getattr(model, parameter) for parameter in _NOISE.get(name, ())]
    # deepinv may have a level for each image of a batch.
    if not values or any(torch.as_tensor(value).numel() != 1 for value in values) or not bool(getattr(model, "normalize", True)):
        return None
    return getattr(where, name)(*(float(value) for value in values))


def to_deepinv(object: Denoiser | LinearPhysics | Stack) -> Any:  # noqa: A002
    """A haloscope denoiser, operator or stack as one of deepinv's.

    >>> import haloscope.deepinv
    >>> type(haloscope.deepinv.to_deepinv(haloscope.models.TV())).__name__
    'HaloscopeDenoiser'
    """
    if isinstance(object, Denoiser):
        return HaloscopeDenoiser(object)
    if isinstance(object, Stack):
        parts = [to_deepinv(part) for part in object if isinstance(part, LinearPhysics)]
        if len(parts) != len(object):
            raise ArgumentError("the stack has an operator that is not linear; deepinv's stacks are of linear ones")
        return deepinv.physics.StackedLinearPhysics(parts)
    if isinstance(object, LinearPhysics):
        return HaloscopePhysics(object)
    raise ArgumentError(f"{object!r}: a denoiser, a linear operator or a stack is accepted")


class _Foreign(LinearPhysics):
    """A linear operator of deepinv, called in Python."""

    def __init__(self, physics: Any, img_size: Sequence[int], measurement_size: Sequence[int]) -> None:
        super().__init__(img_size, measurement_size)
        self.deepinv = physics

    def A(self, x: Any) -> Any:
        with torch.no_grad():
            return self.deepinv.A(to_tensor(as_input(x)))

    def A_adjoint(self, y: Any) -> Any:
        with torch.no_grad():
            return self.deepinv.A_adjoint(to_tensor(as_input(y)))


def from_deepinv(object: Any, *, img_size: Sequence[int] | None = None, native: bool = True) -> Any:  # noqa: A002
    """A deepinv denoiser, linear operator, stack or data fidelity as one of haloscope's.

    With ``native``, DRUNet, DnCNN and UNet, Blur, BlurFFT, Downsampling, Inpainting and Decolorize, and L2, L1, IndicatorL2 and
    PoissonLikelihood become haloscope's own; a warning says what did not. Others are called in Python. Noise of models that both have
    is kept.

    >>> import deepinv, torch, haloscope.deepinv
    >>> blur = deepinv.physics.BlurFFT((1, 16, 16), torch.ones(1, 1, 3, 3) / 9)
    >>> type(haloscope.deepinv.from_deepinv(blur)).__name__
    'Blur'
    """
    if isinstance(object, (HaloscopeDenoiser, HaloscopePhysics)):
        return object.denoiser if isinstance(object, HaloscopeDenoiser) else object.haloscope
    if isinstance(object, deepinv.physics.StackedLinearPhysics):
        return Stack([from_deepinv(part, img_size=img_size, native=native) for part in object.physics_list])
    if isinstance(object, deepinv.physics.Physics):
        size = tuple(img_size or getattr(object, "img_size", None) or getattr(object, "imsize", None) or ())
        if not size:
            name = type(object).__name__
            raise ArgumentError(f"{name}: its images are not known; from_deepinv(physics, img_size=(channel, spatial...)) is accepted")
        noise = _same_noise(object.noise_model, operators)
        if noise is None and not isinstance(object.noise_model, deepinv.physics.ZeroNoise):
            warnings.warn(f"{type(object.noise_model).__name__} is left out, as haloscope has no such noise", stacklevel=2)
        made = _native_physics(object, size) if native else None
        if made is not None:
            made.noise_model = noise
            return made
        if native:
            warnings.warn(f"{type(object).__name__} is called in Python, as haloscope has no such operator", stacklevel=2)
        if not isinstance(object, deepinv.physics.LinearPhysics):
            raise ArgumentError(f"{type(object).__name__} is not linear; linear operators are accepted")
        with torch.no_grad():
            measured = object.A(torch.zeros(1, *size))
        foreign = _Foreign(object, size, measured.shape[1:])
        foreign.noise_model = noise
        return foreign
    if isinstance(object, deepinv.optim.DataFidelity):
        known = _native_fidelity(object) if native else None
        if known is None and native:
            warnings.warn(f"{type(object).__name__} is called in Python, as haloscope has no such fidelity", stacklevel=2)
        return known or _ForeignFidelity(object)
    if isinstance(object, torch.nn.Module):
        if native:
            try:
                return Network(object)
            except ArgumentError as error:
                warnings.warn(f"{type(object).__name__} is called in Python: {error}", stacklevel=2)
        return as_denoiser(object)
    accepted = "a denoiser, a linear operator, a stack or a data fidelity of deepinv is accepted"
    raise ArgumentError(f"{type(object).__name__}: {accepted}")


def _native_physics(physics: Any, size: tuple[int, ...]) -> LinearPhysics | None:
    """haloscope's own operator of the same kind, if it has one."""
    kinds = deepinv.physics
    kernel = getattr(physics, "filter", None)
    if type(physics) is kinds.BlurFFT and kernel is not None:
        return operators.Blur(kernel, "circular", img_size=size)
    if type(physics) is kinds.Blur and physics.padding in ("valid", "circular", "reflect", "replicate", "constant"):
        return operators.Blur(kernel, physics.padding, img_size=size)
    if type(physics) is kinds.Inpainting:
        mask = as_input(physics.mask.detach())
        return operators.Inpainting(size, np.ascontiguousarray(np.broadcast_to(mask[0] if mask.ndim > len(size) else mask, size)))
    if type(physics) is kinds.Downsampling and physics.padding == "circular":
        taps = None if kernel is None else kernel.detach()
        return operators.Downsampling(size, taps, int(physics.factor), "circular")
    if type(physics) is kinds.Decolorize:
        return operators.Decolorize(size, [float(weight) for weight in physics.srf.flatten()])
    return None


class _ForeignFidelity(optim.DataFidelity):
    """A data fidelity of deepinv, called in Python."""

    def __init__(self, fidelity: Any) -> None:
        self.deepinv = fidelity

    def d(self, u: Any, y: Any) -> float:
        return float(self.deepinv.d(to_tensor(as_input(u)), to_tensor(as_input(y))).sum())

    def grad_d(self, u: Any, y: Any) -> Any:
        return self.deepinv.grad_d(to_tensor(as_input(u)), to_tensor(as_input(y))).detach()

    def prox_d(self, u: Any, y: Any, *, gamma: float = 1.0) -> Any:
        return self.deepinv.prox_d(to_tensor(as_input(u)), to_tensor(as_input(y)), gamma=gamma).detach()


def _native_fidelity(fidelity: Any) -> optim.DataFidelity | None:
    """haloscope's own fidelity of the same kind, if it has one."""
    kinds = deepinv.optim.data_fidelity
    if type(fidelity) is kinds.L2:
        return optim.L2(float(fidelity.norm) ** -0.5)
    if type(fidelity) is kinds.L1:
        return optim.L1()
    if type(fidelity) is kinds.IndicatorL2 and fidelity.radius is not None:
        return optim.IndicatorL2(float(fidelity.radius))
    if type(fidelity) is kinds.PoissonLikelihood:
        return optim.PoissonLikelihood(float(fidelity.gain), float(fidelity.bkg), bool(fidelity.d.denormalize))
    return None


def accelerate(model: torch.nn.Module) -> torch.nn.Module:
    """Replaces the denoisers inside of a deepinv model or prior that haloscope has an engine for, in place; inference only.

    >>> import torch, deepinv, haloscope.deepinv
    >>> prior = deepinv.optim.prior.PnP(deepinv.models.DnCNN(3, 3, depth=5, nf=8, pretrained=None))
    >>> type(haloscope.deepinv.accelerate(prior).denoiser).__name__
    'HaloscopeDenoiser'
    """
    for name, child in list(model.named_children()):
        if isinstance(child, deepinv.models.Denoiser) and not isinstance(child, HaloscopeDenoiser):
            try:
                setattr(model, name, HaloscopeDenoiser(Network(child)))
            except ArgumentError as error:
                warnings.warn(f"{type(child).__name__} stays with torch: {error}", stacklevel=2)
        else:
            accelerate(child)
    return model
