"""A reconstruction in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from .._arrays import ArrayLike
from .._context import Context, launch
from .._errors import ArgumentError
from .._measurements import Measurements, as_measurements
from ..models import Denoiser, denoiser_for
from ..physics import Physics, Stack
from ..physics._stacks import as_stack
from ._method import Optim
from ._methods import METHODS, PDCP, PRIORLESS
from ._prior import PnP, Prior, TVPrior
from ._result import Result


def reconstruct(
    y: Measurements | Sequence[ArrayLike] | ArrayLike,
    physics: Physics | Stack | Sequence[Physics],
    denoiser: Denoiser | Callable[..., Any] | str | None = "builtin",
    *,
    sigma: float | None = None,
    method: str = "hqs",
    max_iter: int = 8,
    ranks: int | None = None,
    patch_size: int | Sequence[int] | Literal["auto"] | None = None,
    overlap: int | Sequence[int] | None = None,
    x_gt: ArrayLike | None = None,
    progress: bool | Literal["auto"] = "auto",
    **options: Any,
) -> Result:
    """All of it in one call: operators, tiles and ranks are distributed, and levels chosen.

    ``denoiser`` is a name or file of weights (``"builtin"`` is the built-in one for the image's channels), a denoiser, a callable, or
    ``"tv"``. With a ``patch_size`` or ``overlap`` it works on tiles; without, networks have the bits of the whole image, except on very
    large ones (see :func:`haloscope.distribute`). ``sigma`` is the noise of the measurements, for hqs alone, and by default estimated from
    them. With ``ranks``, thread ranks share the work, and the bits are the same. ``options`` go to the method.

    >>> import haloscope
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.5), "circular", img_size=(3, 32, 32))
    >>> image = haloscope.io.phantom.landscape(32, 32)
    >>> found = haloscope.reconstruct(blur.A(image), blur, sigma=0.01, max_iter=3, x_gt=image)
    >>> found.records[-1].psnr > 20
    True
    """
    if method not in METHODS:
        raise ArgumentError(f"method: {method!r}; one of {', '.join(METHODS)} is accepted")
    operators = as_stack(physics)
    data = as_measurements(y, len(operators))
    prior = _prior_named(denoiser, operators.img_size, METHODS[method])
    if method == "hqs":
        noise = {} if sigma is None else {"noise": float(sigma)}
        options = {"sigma_denoiser": (49 / 255, max(sigma or 0.02, 0.005)), **noise, **options}
    elif sigma is not None:
        raise ArgumentError(f"sigma: {sigma} is given for {method}; hqs takes it, and others the denoiser's level, sigma_denoiser")

    def body(ctx: Context) -> Result:
        from ..distributed import distribute

        shared = distribute(operators, ctx)
        known = prior
        if known is not None:
            known = distribute(known, ctx, patch_size=patch_size, overlap=overlap)
        run = METHODS[method](prior=known, max_iter=max_iter, **options)
        return run(data, shared, x_gt=x_gt, progress=progress)

    if ranks is not None and ranks != 1:
        return launch(body, ranks)[0]
    with Context() as ctx:
        return body(ctx)


def _prior_named(denoiser: Any, img_size: Sequence[int], method: type[Optim]) -> Prior | None:
    if denoiser is None or isinstance(denoiser, Prior) or method in PRIORLESS:
        return denoiser if isinstance(denoiser, Prior) else None
    if isinstance(denoiser, str) and denoiser == "tv" or method is PDCP:
        return TVPrior()
    return PnP(denoiser_for(denoiser, img_size))
