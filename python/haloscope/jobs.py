"""Job files: the same reconstructions as the command's, run, checked and written from Python."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from . import _haloscope
from ._command import main
from ._context import Context
from ._html import table
from ._progress import Progress
from ._toml import to_toml
from .optim import Result
from .optim._result import to_records

__all__ = ["Plan", "check", "init", "main", "run"]

Job = str | os.PathLike[str] | Mapping[str, Any]


def native_job(job: Job) -> _haloscope.Job:
    """The job of a file, or of its content."""
    if isinstance(job, Mapping):
        return _haloscope.Job.parse("job", to_toml(job), os.getcwd())
    return _haloscope.Job.from_file(os.fspath(job))


@dataclass(frozen=True)
class Plan:
    """What a job would do, before anything runs: printed, the table of ``haloscope check``.

    >>> import haloscope
    >>> job = {"measurements": {"phantom": "landscape", "size": [32, 32]},
    ...        "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": 1.5}], "solver": {"method": "cg"}}
    >>> haloscope.check(job).image_shape
    (1, 3, 32, 32)
    """

    #: Names and what there is to say.
    lines: list[tuple[str, str]]
    #: (batch, channel, spatial...).
    image_shape: tuple[int, ...]
    #: Of each operator.
    measurement_shapes: list[tuple[int, ...]]
    #: The most bytes that a rank holds at once.
    rank_bytes: int
    #: What may be wrong, though the job can be run.
    warnings: list[str]
    _text: str

    def __str__(self) -> str:
        return self._text.rstrip()

    def _repr_html_(self) -> str:
        return table(self.lines)


def check(job: Job, *, ranks: int = 1) -> Plan:
    """Looks for mistakes in a job and its data, and forecasts memory, work and messages; nothing is run.

    >>> import haloscope
    >>> job = {"measurements": {"phantom": "landscape", "size": [32, 32]},
    ...        "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": 1.5}], "solver": {"method": "cg"}}
    >>> haloscope.check(job, ranks=2).rank_bytes > 0
    True
    """
    found = native_job(job).check(ranks)
    shapes = [tuple(shape) for shape in found["measurements"]]
    lines = [(name, value) for name, value in found["lines"]]
    return Plan(lines, tuple(found["image"]), shapes, found["rank_bytes"], found["warnings"], found["text"])


def run(
    job: Job,
    *,
    ranks: int | None = None,
    resume: bool = False,
    start_over: bool = False,
    out: str | os.PathLike[str] | None = None,
    progress: bool | Literal["auto"] = "auto",
) -> Result:
    """Runs a job file, or its content as a dict, as ``haloscope reconstruct`` does.

    ``ranks`` are threads of this process; under mpirun or srun the ranks are the launcher's. ``out`` is a folder for pictures and the
    page of the result. ``resume`` continues from the job's checkpoints, and ``start_over`` discards them.

    >>> import haloscope
    >>> job = {"measurements": {"phantom": "landscape", "size": [32, 32]},
    ...        "operators": [{"kind": "blur", "kernel": "gaussian", "sigma": 1.5}],
    ...        "solver": {"method": "cg"}, "stop": {"iterations": 3}}
    >>> haloscope.run(job).image.shape
    (1, 3, 32, 32)
    """
    known = native_job(job)
    if out is not None:
        known = known.with_pictures_in(os.fspath(out))
    if resume or start_over:
        known = known.resuming("latest" if resume else "never")
    context = Context() if _haloscope.is_launched() else None
    observer = _Observer(progress, known.name)
    try:
        found = known.run(None if context is None else context._native, ranks or 1, observer)
    finally:
        observer.close()
        if context is not None:
            context.close()
    return Result(found["image"], found["ending"], to_records(found["records"]), found["digest"], found["text"])


class _Observer:
    """Shows the iterations, and passes warnings and notes to logging."""

    def __init__(self, progress: bool | Literal["auto"], name: str) -> None:
        self._wanted, self._name = progress, name
        self._bar: Progress | None = None
        self._logger = logging.getLogger("haloscope")

    def __call__(self, kind: str, content: Any) -> None:
        if kind == "started":
            self._bar = Progress(self._wanted, content, self._name, True)
        elif kind == "iteration" and self._bar is not None:
            self._bar.update(content["iteration"], content["psnr"], content["data_term"])
        elif kind in ("warning", "note"):
            self._logger.log(logging.WARNING if kind == "warning" else logging.INFO, "%s", content)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def init(problem: str = "deblur", *, size: int | None = None, model: str | None = None) -> str:
    """The text of a commented job file to begin with, which runs as it is.

    ``problem`` is deblur, tomography-2d, tomography-3d, super-resolution, denoise or inpainting.

    >>> import haloscope
    >>> "[solver]" in haloscope.init("tomography-2d")
    True
    """
    return _haloscope.job_template(problem, size, model)
