"""Priors: what is known of images before anything is measured."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Literal

from .._arrays import bounds
from .._errors import ArgumentError
from ..models import Denoiser, DistributedDenoiser, as_denoiser


class Prior:
    """What is known of images.

    >>> import haloscope
    >>> issubclass(haloscope.optim.PnP, haloscope.optim.Prior)
    True
    """

    def _distributed(self, share: Callable[[Denoiser], Denoiser]) -> Prior:
        return self

    def _request(self) -> dict[str, Any]:
        """What the extension is told."""
        return {}


class PnP(Prior):
    """A denoiser in the place of a prox. ``range="normalize"`` brings images to 0 to 1 for it.

    >>> import haloscope
    >>> haloscope.optim.PnP(lambda x, sigma: x).denoiser.name
    '<lambda>'
    """

    def __init__(
        self,
        denoiser: Denoiser | Callable[..., Any] | str | os.PathLike[str],
        *,
        range: Literal["as_is", "normalize"] | tuple[float, float] = "as_is",  # noqa: A002
    ) -> None:
        self.denoiser = as_denoiser(denoiser)
        if isinstance(range, str) and range not in ("as_is", "normalize"):
            raise ArgumentError(f"range: {range!r}; as_is, normalize or a pair of values is accepted")
        self.range = range if isinstance(range, str) else bounds(range, "range")

    def _distributed(self, share: Callable[[Denoiser], Denoiser]) -> Prior:
        if isinstance(self.denoiser, DistributedDenoiser):
            return self
        return type(self)(share(self.denoiser), range=self.range)

    def _request(self) -> dict[str, Any]:
        clamp = self.range if isinstance(self.range, tuple) else None
        request = {"prior": self.denoiser._native, "normalise": self.range == "normalize"}
        return request if clamp is None else {**request, "clamp": clamp}


class RED(PnP):
    """A denoiser in the place of a gradient, for :class:`REDGradient` and :class:`REDFixedPoint`.

    >>> import haloscope
    >>> haloscope.optim.RED(haloscope.models.TV()).denoiser.name
    'total variation'
    """


class TVPrior(Prior):
    """Total variation; its weight is the method's ``lambda_reg``.

    >>> import haloscope
    >>> haloscope.optim.TVPrior().n_it_max
    200
    """

    def __init__(self, n_it_max: int = 200) -> None:
        self.n_it_max = n_it_max
