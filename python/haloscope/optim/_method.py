"""What all methods have in common: their keywords, and how they run."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from .. import _haloscope
from .._arrays import ArrayLike, as_input, bounds
from .._context import Context
from .._errors import ArgumentError
from .._measurements import Measurements, as_measurements
from .._progress import Progress
from ..models import Denoiser
from ..physics import DistributedStack, Physics, Stack
from ..physics._stacks import as_stack
from ._fidelity import L2, DataFidelity
from ._prior import PnP, Prior, TVPrior
from ._result import Record, Result, to_records


class Optim:
    """A method: ``PGD(prior=PnP(net), sigma_denoiser=0.03, max_iter=20)(y, physics).image`` is the image.

    With plain operators it runs on this process, with distributed ones on all ranks; ``ctx`` distributes what is plain.
    ``stepsize=None`` is 0.99 over the Lipschitz constant, where the fidelity has one; HQS, REDFixedPoint and CG take none.
    ``lambda_reg`` is the weight of :class:`TVPrior`, and of any prior in HQS, REDGradient and REDFixedPoint; it is 1, and 0.23 in HQS. A
    denoiser as the prior of other methods has ``sigma_denoiser`` in its place. Keywords in ``options`` are keys of the method in job
    files: ``relaxation``, ``noise``, ``schedule_iterations``.

    >>> import haloscope
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(3, 32, 32))
    >>> image = haloscope.io.phantom.landscape(32, 32)
    >>> tv = haloscope.optim.FISTA(prior=haloscope.optim.TVPrior(), lambda_reg=1e-3, max_iter=5)
    >>> result = tv(blur.A(image), blur, x_gt=image)
    >>> result.records[-1].psnr > result.records[0].psnr
    True
    """

    #: Its name in job files, where its keys are known by.
    _method: str
    #: The step size and the weight of the prior that it is told if none is given.
    _step: float | Literal["auto"] | None = "auto"
    _lambda_reg = 1.0

    def __init__(
        self,
        data_fidelity: DataFidelity | None = None,
        prior: Prior | Denoiser | Callable[..., Any] | str | os.PathLike[str] | None = None,
        *,
        stepsize: float | None = None,
        lambda_reg: float | None = None,
        sigma_denoiser: float | tuple[float, float] = 0.05,
        max_iter: int = 100,
        thres_conv: float = 0.0,
        data_term: float | None = None,
        time_limit: float | None = None,
        clamp: tuple[float, float] | None = None,
        max_iter_inner: int = 50,
        tol_inner: float = 1e-6,
        **options: float | str | tuple[float, float],
    ) -> None:
        if data_fidelity is not None and not isinstance(data_fidelity, DataFidelity):
            reason = f"a {type(data_fidelity).__name__} is given; a DataFidelity such as L2() is accepted, and denoisers as prior="
            raise ArgumentError(f"data_fidelity: {reason}")
        self.data_fidelity = data_fidelity or L2()
        self.prior = prior if prior is None or isinstance(prior, Prior) else PnP(prior)
        if stepsize is not None and "step" not in _haloscope.method_keys(self._method):
            raise ArgumentError(f"stepsize: {stepsize} is given; {type(self).__name__} finds its steps itself: leave it out")
        self.stepsize, self.sigma_denoiser = stepsize, sigma_denoiser
        for name, count in (("max_iter", max_iter), ("max_iter_inner", max_iter_inner)):
            if not isinstance(count, (int, np.integer)) or count < 0:
                raise ArgumentError(f"{name}: {count!r} is given; a whole number of iterations is accepted")
        self.lambda_reg = self._lambda_reg if lambda_reg is None else lambda_reg
        self.max_iter, self.thres_conv, self.data_term, self.time_limit = max_iter, thres_conv, data_term, time_limit
        self.clamp = None if clamp is None else bounds(clamp, "clamp")
        self.max_iter_inner, self.tol_inner = max_iter_inner, tol_inner
        self.options = options

    def __repr__(self) -> str:
        prior = None if self.prior is None else type(self.prior).__name__
        return f"{type(self).__name__}({type(self.data_fidelity).__name__}, prior={prior}, max_iter={self.max_iter})"

    def _keys(self) -> dict[str, Any]:
        """What the method is told, by the names of job files: of what all methods have in Python, the keys that it has there."""
        keys = {
            "step": self._step if self.stepsize is None else self.stepsize,
            "levels": self._levels(),
            "weight": self.lambda_reg,
            "inner-iterations": self.max_iter_inner,
            "inner-tolerance": self.tol_inner,
        }
        known = _haloscope.method_keys(self._method)
        told = {name: value for name, value in keys.items() if name in known and value is not None}
        return told | {name.replace("_", "-"): value for name, value in self.options.items()}

    def _levels(self) -> tuple[float, float]:
        """The first and the last level of the denoiser."""
        sigma = self.sigma_denoiser
        return (float(sigma),) * 2 if isinstance(sigma, (int, float)) else (float(sigma[0]), float(sigma[-1]))

    def __call__(
        self,
        y: Measurements | Sequence[ArrayLike] | ArrayLike,
        physics: Physics | Stack | Sequence[Physics],
        *,
        x_init: ArrayLike | Literal["adjoint", "zeros", "filled", "dagger", "fbp"] = "adjoint",
        x_gt: ArrayLike | None = None,
        max_pixel: float = 1.0,
        ctx: Context | None = None,
        callback: Callable[[Record], bool | None] | None = None,
        progress: bool | Literal["auto"] = "auto",
        checkpoint: str | os.PathLike[str] | None = None,
        checkpoint_every: int | float | None = None,
        resume: bool = False,
        _stop: _haloscope.Stop | None = None,
    ) -> Result:
        """The image of the measurements.

        ``x_init`` is an image to begin with, or its name: ``"filled"`` continues the mean of the data where nothing is measured,
        ``"dagger"`` is the least-squares solution, and ``"fbp"`` the filtered back-projection of a scan, or of all its interleaved
        groups (:meth:`~haloscope.physics.Tomography.split`). With ``x_gt`` the records have PSNR and SSIM, for values of a range of
        ``max_pixel``. ``callback`` gets each iteration as a :class:`Record` and ends the run by returning True. ``progress`` shows a bar of tqdm, where
        that is installed. ``checkpoint`` is a folder, written every so many iterations (an integer) or seconds (a float), and when
        Ctrl-C or an error ends the run; ``resume=True`` continues from it with the same bits. The times of the records are without
        callbacks and checkpoints.
        """
        prior = self.prior
        if ctx is not None:
            from ..distributed import distribute

            physics = physics if isinstance(physics, DistributedStack) else distribute(physics, ctx)
            prior = None if prior is None else distribute(prior, ctx)
        if resume and checkpoint is None:
            raise ArgumentError("resume: True is given without a checkpoint; checkpoint=FOLDER is needed to resume from")
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        data._check_finite()
        is_named = isinstance(x_init, str)
        bar = Progress(progress, self.max_iter, type(self).__name__, _is_root(operators))
        told = None
        if callback is not None or bar.is_shown:
            told = _observer(callback, bar)
        request: dict[str, Any] = {
            "method": self._method,
            "keys": list(self._keys().items()),
            "prior": None,
            "variation": (self.lambda_reg, prior.n_it_max) if isinstance(prior, TVPrior) else None,
            "level": self._levels()[1],
            "normalise": False,
            "clamp": self.clamp,
            "start": x_init if is_named else "image",
            "start_image": None if is_named else as_input(x_init),
            "truth": None if x_gt is None else as_input(x_gt),
            "max_pixel": max_pixel,
            "iterations": self.max_iter,
            "relative_change": self.thres_conv,
            "data_term": self.data_term,
            "time_limit": self.time_limit,
            "callback": told,
            "checkpoint": None if checkpoint is None else os.fspath(checkpoint),
            "checkpoint_iterations": checkpoint_every if isinstance(checkpoint_every, int) else None,
            "checkpoint_seconds": checkpoint_every if isinstance(checkpoint_every, float) else None,
            "resume": resume,
            "mean": False,
            "stop": _stop,
        }
        if prior is not None:
            request |= prior._request()
        try:
            found = _haloscope.run_solver(operators._native, self.data_fidelity._natives(), data._native, Request(request))
        finally:
            bar.close()
        image, reason, records, digest = found
        return Result(data._restore(image), reason, to_records(records), digest)

    def iterate(
        self,
        y: Measurements | Sequence[ArrayLike] | ArrayLike,
        physics: Physics | Stack | Sequence[Physics],
        **options: Any,
    ) -> Generator[Record, None, Result]:
        """The same as a loop over the iterations, each of which waits for the loop; leaving the loop ends the run.

        >>> import haloscope
        >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
        >>> landweber = haloscope.optim.Landweber(max_iter=100)
        >>> for record in landweber.iterate(haloscope.io.phantom.landscape(16, 16), frame, x_init="zeros"):
        ...     if record.relative_change < 1e-3:
        ...         break
        >>> record.iteration < 10
        True
        """
        turns: queue.Queue[Record | Result | BaseException] = queue.Queue()
        looked, ended, stop = threading.Semaphore(0), threading.Event(), _haloscope.Stop()

        def callback(record: Record) -> bool:
            turns.put(record)
            looked.acquire()
            return ended.is_set()

        def work() -> None:
            try:
                turns.put(self(y, physics, callback=callback, _stop=stop, **{"progress": False, **options}))
            except BaseException as error:  # noqa: BLE001  (raised in the loop)
                turns.put(error)

        worker = threading.Thread(target=work, name="haloscope", daemon=True)
        worker.start()
        try:
            while True:
                turn = turns.get()
                if isinstance(turn, BaseException):
                    raise turn
                if isinstance(turn, Result):
                    return turn
                yield turn
                looked.release()
        except KeyboardInterrupt:
            # Signals do not come to the thread that calculates.
            stop.request()
            raise
        finally:
            ended.set()
            looked.release()
            worker.join()


class Request:
    """What the extension reads the attributes of."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


def _is_root(operators: Stack) -> bool:
    return not isinstance(operators, DistributedStack) or operators.ctx.is_root


def _observer(
    callback: Callable[[Record], bool | None] | None, bar: Progress
) -> Callable[[dict[str, Any], _haloscope.Snapshot], bool]:
    def told(described: dict[str, Any], snapshot: _haloscope.Snapshot) -> bool:
        record = Record(**described, _snapshot=snapshot)
        bar.update(record.iteration, record.psnr, record.data_term)
        ends = callback is not None and bool(callback(record))
        record._snapshot = None
        return ends

    return told
