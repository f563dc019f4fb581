"""The command ``haloscope``, which pip puts on the path."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from . import _haloscope
from ._onnx import is_built, name_library


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command ``haloscope`` with these arguments, or those of the process, and returns its exit code.

    The command writes to standard output itself and handles Ctrl-C as it does outside of Python. ``--help`` and mistakes in the
    arguments end the process.

    >>> import haloscope
    >>> haloscope.main(["info", "--json"])  # doctest: +SKIP
    0
    """
    if is_built():
        name_library()
    sys.stdout.flush()
    # The command saves a checkpoint on Ctrl-C; Python's own handler would only note the signal.
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        # What `bench` and `submit` start on ranks is the command, and not the script of whoever calls this.
        program = [sys.executable or "python3", "-m", "haloscope"]
        return _haloscope.command(program, ["haloscope", *(sys.argv[1:] if arguments is None else arguments)])
    finally:
        signal.signal(signal.SIGINT, before)
