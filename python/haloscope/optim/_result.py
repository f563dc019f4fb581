"""What a run leaves: the image and its iterations."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import _haloscope
from .._arrays import Floats, as_input
from .._errors import ArgumentError
from .._html import curve, picture, table


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

    With ``x_gt`` each iteration is compared with it:

    >>> image = haloscope.io.phantom.landscape(16, 16)
    >>> last = haloscope.optim.CG(max_iter=3)(image, frame, x_gt=image).records[-1]
    >>> last.psnr > 60, last.ssim > 0.999
    (True, True)
    """

    #: From 1 on.
    iteration: int
    #: The data term before the step, where the method knows it.
    data_term: float | None
    #: How much of the image's norm changed.
    relative_change: float
    #: Against ``x_gt``, if that was given, in dB.
    psnr: float | None
    #: Structural similarity with ``x_gt``, unless a side is too short for its window of 11 pixels. It takes far longer than ``psnr``: runs
    #: of 30 iterations and more have it after every second to tenth, and after the last that ``max_iter`` allows.
    ssim: float | None
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

    def __repr__(self) -> str:
        last = self.records[-1] if self.records else None
        quality = "" if last is None or last.psnr is None else f", {last.psnr:.2f} dB"
        count = len(self.records)
        done = f"{count} iteration{'' if count == 1 else 's'}"
        return f"Result({tuple(self.image.shape)}, {done}, {self.reason}{quality}, digest={self.digest})"

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        array = as_input(self.image)
        return np.array(array, dtype=dtype) if copy or (dtype is not None and dtype != array.dtype) else array

    def __dlpack__(self, **options: Any) -> Any:
        return self.image.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.image.__dlpack_device__()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the image; the ending of the name decides the format."""
        from ..io import write

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
