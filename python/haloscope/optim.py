"""Data fidelities, priors and methods."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from . import _haloscope
from ._arrays import ArrayLike, Floats, as_input, restore
from ._context import Context, launch
from ._errors import ArgumentError
from ._html import curve, picture, table
from ._measurements import Measurements, as_measurements
from ._progress import Progress
from .models import Denoiser, DistributedDenoiser, Network, as_denoiser
from .physics import DistributedStack, Physics, Stack

__all__ = [
    "ADMM",
    "CG",
    "DRS",
    "FISTA",
    "HQS",
    "L1",
    "L2",
    "PDCP",
    "PGD",
    "RED",
    "AmplitudeLoss",
    "DataFidelity",
    "DistributedDataFidelity",
    "IndicatorL2",
    "Landweber",
    "Optim",
    "PnP",
    "PoissonLikelihood",
    "Prior",
    "REDFixedPoint",
    "REDGradient",
    "Record",
    "Result",
    "TVPrior",
    "reconstruct",
]


class DataFidelity:
    """A distance between what an image would measure and what was measured.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> image = haloscope.io.phantom.landscape(16, 16)
    >>> haloscope.optim.L2().fn(image, image, frame)
    0.0
    """

    _native: _haloscope.Fidelity

    def _natives(self) -> list[_haloscope.Fidelity]:
        return [self._native]

    def fn(self, x: ArrayLike, y: Measurements | ArrayLike, physics: Physics | Stack) -> float:
        """``d(A x, y)``, summed over the operators."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        return _haloscope.fidelity_value(self._natives(), operators._native, as_input(x), data._native, False)

    def grad(self, x: ArrayLike, y: Measurements | ArrayLike, physics: Physics | Stack) -> Any:
        """Its gradient in ``x``."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        gradient = _haloscope.fidelity_gradient(self._natives(), operators._native, as_input(x), data._native, False)
        return restore(x)(gradient)

    def prox(
        self,
        x: ArrayLike,
        y: Measurements | ArrayLike,
        physics: Physics | Stack,
        *,
        gamma: float = 1.0,
        max_iter: int = 50,
        tol: float = 1e-6,
    ) -> Any:
        """Its prox in ``x``, of squares."""
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        found = _haloscope.fidelity_prox(
            self._natives(), operators._native, as_input(x), data._native, gamma, max_iter, tol, False
        )
        return restore(x)(found)

    def d(self, u: ArrayLike, y: ArrayLike) -> float:
        """The distance of two measurements."""
        return self._native.value(as_input(u), as_input(y))

    def grad_d(self, u: ArrayLike, y: ArrayLike) -> Any:
        """Its gradient in ``u``."""
        return restore(u)(self._native.gradient(as_input(u), as_input(y)))

    def prox_d(self, u: ArrayLike, y: ArrayLike, *, gamma: float = 1.0) -> Any:
        """Its prox in ``u``."""
        return restore(u)(self._native.prox(as_input(u), as_input(y), gamma))


class L2(DataFidelity):
    """``|Ax - y|^2 / (2 sigma^2)``.

    >>> import haloscope, numpy
    >>> haloscope.optim.L2().d(numpy.ones((1, 1, 2, 2)), numpy.zeros((1, 1, 2, 2)))
    2.0
    """

    def __init__(self, sigma: float = 1.0) -> None:
        self._native = _haloscope.Fidelity("l2", sigma, 0.0, False)


class L1(DataFidelity):
    """``|Ax - y|_1``, which outliers matter less to.

    >>> import haloscope, numpy
    >>> haloscope.optim.L1().d(numpy.full((1, 1, 2, 2), 3.0), numpy.zeros((1, 1, 2, 2)))
    12.0
    """

    def __init__(self) -> None:
        self._native = _haloscope.Fidelity("l1", 0.0, 0.0, False)


class IndicatorL2(DataFidelity):
    """0 within a radius of ``y``, else infinite.

    >>> import haloscope, numpy
    >>> haloscope.optim.IndicatorL2(1.0).d(numpy.full((1, 1, 1, 1), 3.0), numpy.zeros((1, 1, 1, 1)))
    inf
    """

    def __init__(self, radius: float) -> None:
        self._native = _haloscope.Fidelity("ball", radius, 0.0, False)


class PoissonLikelihood(DataFidelity):
    """The negative log-likelihood of Poisson noise of a gain, with a background.

    >>> import haloscope, numpy
    >>> y = numpy.ones((1, 1, 2, 2), numpy.float32)
    >>> bool(abs(haloscope.optim.PoissonLikelihood(0.1).grad_d(y, y)).max() < 1e-4)
    True
    """

    def __init__(self, gain: float = 1.0, bkg: float = 0.0, denormalize: bool = True) -> None:
        self._native = _haloscope.Fidelity("poisson", gain, bkg, not denormalize)


class AmplitudeLoss(DataFidelity):
    """``|sqrt(Ax) - sqrt(y)|^2``, of intensities.

    >>> import haloscope, numpy
    >>> haloscope.optim.AmplitudeLoss().d(numpy.full((1, 1, 1, 1), 4.0), numpy.full((1, 1, 1, 1), 4.0))
    0.0
    """

    def __init__(self) -> None:
        self._native = _haloscope.Fidelity("amplitude", 0.0, 0.0, False)


class DistributedDataFidelity(DataFidelity):
    """One fidelity for all operators, or one for each, on the ranks of a distributed stack.

    >>> import haloscope
    >>> with haloscope.Context() as ctx:
    ...     both = haloscope.distribute([haloscope.optim.L2(), haloscope.optim.L1()], ctx)
    >>> len(both.parts)
    2
    """

    def __init__(self, parts: DataFidelity | Sequence[DataFidelity]) -> None:
        #: The fidelity of each operator, or one for all.
        self.parts: list[DataFidelity] = [parts] if isinstance(parts, DataFidelity) else list(parts)
        self._native = self.parts[0]._native

    def _natives(self) -> list[_haloscope.Fidelity]:
        return [part._native for part in self.parts]


def as_stack(physics: Physics | Stack | Sequence[Physics]) -> Stack:
    """One operator or several, as a stack."""
    if isinstance(physics, Stack):
        return physics
    return physics._alone() if isinstance(physics, Physics) else Stack(physics)


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
        denoiser: Denoiser | Callable[..., Any],
        *,
        range: Literal["as_is", "normalize"] | tuple[float, float] = "as_is",  # noqa: A002
    ) -> None:
        self.denoiser = as_denoiser(denoiser)
        self.range = range

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


@dataclass
class Record:
    """One iteration.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> seen = []
    >>> _ = haloscope.optim.CG(max_iter=3)(haloscope.io.phantom.landscape(16, 16), frame,
    ...                                    callback=lambda record: seen.append(record.iteration))
    >>> seen
    [1, 2, 3]
    """

    #: From 1 on.
    iteration: int
    #: The data term before the step, where the method knows it.
    data_term: float | None
    #: How much of the image's norm changed.
    relative_change: float
    #: Against ``x_gt``, if that was given.
    psnr: float | None
    #: total, data, prior, communication, waiting.
    seconds: dict[str, float]
    #: The most memory that the process has had.
    peak_bytes: int | None
    _snapshot: _haloscope.Snapshot | None = field(default=None, repr=False)

    @property
    def image(self) -> Floats:
        """The image after the iteration, copied when it is looked at; in a callback only."""
        image = None if self._snapshot is None else self._snapshot.image()
        if image is None:
            raise ArgumentError("the image of an iteration is there while its callback runs; copy it there")
        return image


@dataclass
class Result:
    """The image with how it came about. numpy and torch take it as the image; in notebooks it shows itself.

    >>> import haloscope, numpy
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> result = haloscope.optim.CG(max_iter=2)(haloscope.io.phantom.landscape(16, 16), frame)
    >>> numpy.asarray(result).shape, len(result.records), result.reason
    ((1, 3, 16, 16), 2, 'max_iter')
    """

    #: (batch, channel, spatial...), of the kind of array that came in.
    image: Any
    #: max_iter, thres_conv, data_term, time_limit or callback; for jobs, in words.
    reason: str
    #: All iterations.
    records: list[Record]
    #: Of the bits of the image; the same on any number of ranks.
    digest: str
    #: What the command prints, for jobs.
    summary: str | None = None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = as_input(self.image)
        return np.array(array, dtype=dtype) if copy or (dtype is not None and dtype != array.dtype) else array

    def __dlpack__(self, **options: Any) -> Any:
        return self.image.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.image.__dlpack_device__()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image; the ending of the name decides the format."""
        from .io import write

        write(path, self.image)

    def to_pandas(self) -> Any:
        """The records as a data frame."""
        import pandas

        rows = [{**vars(record), **{f"seconds_{name}": time for name, time in record.seconds.items()}} for record in self.records]
        return pandas.DataFrame(rows).drop(columns=["seconds", "_snapshot"], errors="ignore")

    def _repr_html_(self) -> str:
        terms = [record.data_term for record in self.records if record.data_term is not None]
        qualities = [record.psnr for record in self.records if record.psnr is not None]
        spent = {name: sum(record.seconds[name] for record in self.records) for name in ("total", "data", "prior")}
        rows = [("iterations", str(len(self.records))), ("ended by", self.reason), ("digest", self.digest)]
        rows += [(f"seconds, {name}", f"{time:.3g}") for name, time in spent.items()]
        curves = curve(terms, "data term") + curve(qualities, "PSNR in dB")
        return f"<div>{picture(as_input(self.image))}{curves}{table(rows)}</div>"


def to_records(described: Sequence[Mapping[str, Any]]) -> list[Record]:
    """Records as the extension describes them."""
    return [Record(**record) for record in described]


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

    _method = "pgd"
    _has_step = True
    _has_inner = False
    _lambda_reg = 1.0

    def __init__(
        self,
        data_fidelity: DataFidelity | None = None,
        prior: Prior | Denoiser | Callable[..., Any] | None = None,
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
        self.data_fidelity = data_fidelity or L2()
        self.prior = prior if prior is None or isinstance(prior, Prior) else PnP(prior)
        if stepsize is not None and not self._has_step:
            raise ArgumentError(f"stepsize: {stepsize} is given; {type(self).__name__} finds its steps itself: leave it out")
        self.stepsize, self.sigma_denoiser = stepsize, sigma_denoiser
        self.lambda_reg = self._lambda_reg if lambda_reg is None else lambda_reg
        self.max_iter, self.thres_conv, self.data_term, self.time_limit = max_iter, thres_conv, data_term, time_limit
        self.clamp, self.max_iter_inner, self.tol_inner = clamp, max_iter_inner, tol_inner
        self.options = options

    def _keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        if self._has_step:
            keys["step"] = "auto" if self.stepsize is None else self.stepsize
        if self._has_inner:
            keys |= {"inner-iterations": self.max_iter_inner, "inner-tolerance": self.tol_inner}
        return keys | {name.replace("_", "-"): value for name, value in self.options.items()}

    def __call__(
        self,
        y: Measurements | Sequence[ArrayLike] | ArrayLike,
        physics: Physics | Stack | Sequence[Physics],
        *,
        x_init: ArrayLike | Literal["adjoint", "zeros", "filled", "dagger"] = "adjoint",
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

        ``callback`` gets each iteration as a :class:`Record` and ends the run by returning True. ``progress`` shows a bar of tqdm, where
        that is installed. ``checkpoint`` is a folder, written every so many iterations (an integer) or seconds (a float), and when
        Ctrl-C or an error ends the run; ``resume=True`` continues from it with the same bits. The times of the records are without
        callbacks and checkpoints.
        """
        prior = self.prior
        if ctx is not None:
            from .distributed import distribute

            physics = physics if isinstance(physics, DistributedStack) else distribute(physics, ctx)
            prior = None if prior is None else distribute(prior, ctx)
        operators = as_stack(physics)
        data = as_measurements(y, len(operators))
        is_named = isinstance(x_init, str)
        bar = Progress(progress, self.max_iter, type(self).__name__, _is_root(operators))
        told = None
        if callback is not None or bar.is_shown:
            told = _observer(callback, bar)
        sigma = self.sigma_denoiser
        level = float(sigma if isinstance(sigma, (int, float)) else sigma[-1])
        request: dict[str, Any] = {
            "method": self._method,
            "keys": list(self._keys().items()),
            "prior": None,
            "variation": (self.lambda_reg, prior.n_it_max) if isinstance(prior, TVPrior) else None,
            "level": level,
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


class PGD(Optim):
    """Proximal gradient descent; plug-and-play with a denoiser.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> pgd = haloscope.optim.PGD(prior=haloscope.optim.PnP(lambda x, sigma: x), max_iter=2)
    >>> pgd(haloscope.io.phantom.landscape(16, 16), frame).reason
    'max_iter'
    """


class FISTA(Optim):
    """Proximal gradient descent with momentum.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.FISTA(max_iter=3)(haloscope.io.phantom.landscape(16, 16), frame).records)
    3
    """

    _method = "fista"


class ADMM(Optim):
    """The alternating direction method of multipliers.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> admm = haloscope.optim.ADMM(prior=haloscope.models.TV(), stepsize=1.0, max_iter=2)
    >>> len(admm(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "admm"
    _has_inner = True

    def _keys(self) -> dict[str, Any]:
        return super()._keys() | {"step": 1.0 if self.stepsize is None else self.stepsize}


class DRS(ADMM):
    """Douglas-Rachford splitting; ``relaxation=1.0`` is its ``beta``.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> drs = haloscope.optim.DRS(prior=haloscope.models.TV(), stepsize=1.0, max_iter=2)
    >>> len(drs(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "drs"


class HQS(Optim):
    """Half-quadratic splitting with falling levels: DPIR, when ``sigma_denoiser`` is (first, last).

    ``noise`` is the standard deviation of the measurements' noise, by default estimated from them, and ``lambda_reg``, 0.23 by default,
    the weight of the prior: the step of the data term at a level is ``level^2 / (noise^2 lambda_reg)``.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 32, 32))
    >>> net = haloscope.models.Network("builtin:color")
    >>> dpir = haloscope.optim.HQS(prior=net, sigma_denoiser=(0.2, 0.05), noise=0.05, max_iter=2)
    >>> dpir(haloscope.io.phantom.landscape(32, 32), frame).image.shape
    (1, 3, 32, 32)
    """

    _method = "hqs"
    _has_step = False
    _has_inner = True
    _lambda_reg = 0.23

    def _keys(self) -> dict[str, Any]:
        sigma = self.sigma_denoiser
        levels = (float(sigma), float(sigma)) if isinstance(sigma, (int, float)) else (float(sigma[0]), float(sigma[-1]))
        return {"levels": levels, "weight": self.lambda_reg} | super()._keys()


class REDGradient(Optim):
    """Gradient descent on the data term and on what a denoiser removes.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> red = haloscope.optim.REDGradient(prior=haloscope.models.TV(), lambda_reg=0.1, max_iter=2)
    >>> len(red(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "red"

    def _keys(self) -> dict[str, Any]:
        return super()._keys() | {"weight": self.lambda_reg}


class REDFixedPoint(Optim):
    """The fixed point of the same.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> red = haloscope.optim.REDFixedPoint(prior=haloscope.models.TV(), lambda_reg=0.1, max_iter=2)
    >>> len(red(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "red-fixed-point"
    _has_step = False
    _has_inner = True

    def _keys(self) -> dict[str, Any]:
        return super()._keys() | {"weight": self.lambda_reg}


class PDCP(Optim):
    """Chambolle and Pock's primal-dual method: total variation without an inner loop.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> pdcp = haloscope.optim.PDCP(prior=haloscope.optim.TVPrior(), lambda_reg=0.1, max_iter=2)
    >>> len(pdcp(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "primal-dual"

    def _keys(self) -> dict[str, Any]:
        # Fidelities without a gradient have steps of their own, unless one is given.
        keys = super()._keys()
        return {name: value for name, value in keys.items() if name != "step" or value != "auto"}


class CG(Optim):
    """Conjugate gradients for least squares, without a prior.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.CG(max_iter=2)(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "cg"
    _has_step = False


class Landweber(Optim):
    """Gradient descent for least squares, without a prior.

    >>> import haloscope
    >>> frame = haloscope.physics.Denoising(img_size=(3, 16, 16))
    >>> len(haloscope.optim.Landweber(max_iter=2)(haloscope.io.phantom.landscape(16, 16), frame).records)
    2
    """

    _method = "landweber"


_METHODS: dict[str, type[Optim]] = {
    "pgd": PGD,
    "fista": FISTA,
    "admm": ADMM,
    "drs": DRS,
    "hqs": HQS,
    "red": REDGradient,
    "red-fixed-point": REDFixedPoint,
    "primal-dual": PDCP,
    "cg": CG,
    "landweber": Landweber,
}


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
    if method not in _METHODS:
        raise ArgumentError(f"method: {method!r}; one of {', '.join(_METHODS)} is accepted")
    operators = as_stack(physics)
    data = as_measurements(y, len(operators))
    prior = _prior_named(denoiser, operators.img_size[0], _METHODS[method])
    if method == "hqs":
        noise = {} if sigma is None else {"noise": float(sigma)}
        options = {"sigma_denoiser": (49 / 255, max(sigma or 0.02, 0.005)), **noise, **options}
    elif sigma is not None:
        raise ArgumentError(f"sigma: {sigma} is given for {method}; hqs takes it, and others the denoiser's level, sigma_denoiser")

    def body(ctx: Context) -> Result:
        from .distributed import distribute

        shared = distribute(operators, ctx)
        known = prior
        if known is not None:
            known = distribute(known, ctx, patch_size=patch_size, overlap=overlap)
        run = _METHODS[method](prior=known, max_iter=max_iter, **options)
        return run(data, shared, x_gt=x_gt, progress=progress)

    if ranks is not None and ranks > 1:
        return launch(body, ranks)[0]
    with Context() as ctx:
        return body(ctx)


def _prior_named(denoiser: Any, channels: int, method: type[Optim]) -> Prior | None:
    if denoiser is None or isinstance(denoiser, Prior) or method in (CG, Landweber):
        return denoiser if isinstance(denoiser, Prior) else None
    if denoiser == "tv" or method is PDCP:
        return TVPrior()
    if denoiser == "builtin":
        denoiser = "builtin:color" if channels == 3 else "builtin:gray"
    return PnP(Network(denoiser) if isinstance(denoiser, (str, os.PathLike)) else denoiser)
