"""This build and this machine."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from . import _haloscope

__all__ = ["Info", "__version__", "get_num_threads", "info", "set_num_threads"]


@dataclass(frozen=True)
class Info:
    """What this build and this machine can do.

    >>> import haloscope
    >>> "builtin" in haloscope.info().features
    True
    """

    #: The version of haloscope.
    version: str
    #: The optional parts of this build: ``builtin``, ``hdf5``, ``zarr``, ``mpi``, ``onnx``.
    features: tuple[str, ...]
    #: Processor, instructions, cores and memory.
    machine: dict[str, Any]
    #: What started this process, if a launcher did.
    launcher: str | None
    #: The MPI library, if the build has one.
    mpi: str | None

    def __str__(self) -> str:
        rows = [("haloscope", self.version), ("features", ", ".join(self.features) or "none")]
        rows += [(name, str(value)) for name, value in self.machine.items()]
        rows += [("launcher", self.launcher or "none"), ("mpi", self.mpi or "none")]
        return "\n".join(f"{name:<13} {value}" for name, value in rows)


def info() -> Info:
    """This build and this machine; printed, it is a table.

    >>> import haloscope
    >>> print(haloscope.info())  # doctest: +ELLIPSIS
    haloscope     ...
    """
    found = json.loads(_haloscope.info())
    return Info(found["version"], tuple(found["features"]), found["machine"], found["launcher"], found["mpi"])


#: The version of the package.
__version__: str = info().version


def set_num_threads(threads: int) -> None:
    """Sets the number of threads of calls outside of ranks; all cores by default.

    Networks and stacks keep the number that they were made with.

    >>> import haloscope
    >>> before = haloscope.get_num_threads()
    >>> haloscope.set_num_threads(1)
    >>> haloscope.get_num_threads()
    1
    >>> haloscope.set_num_threads(before)
    """
    _haloscope.set_num_threads(threads)


def get_num_threads() -> int:
    """The number of threads of calls from here; inside of :func:`launch`, those of the rank.

    >>> import haloscope
    >>> haloscope.get_num_threads() >= 1
    True
    """
    return _haloscope.get_num_threads()
