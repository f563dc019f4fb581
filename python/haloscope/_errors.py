"""The exceptions that haloscope raises."""

from __future__ import annotations

__all__ = ["ArgumentError", "Error", "FileError", "NumericError", "RankError", "ShapeError"]


class Error(Exception):
    """What haloscope raises where no exception of Python's own fits better.

    >>> import haloscope
    >>> issubclass(haloscope.ShapeError, haloscope.Error)
    True
    """

    __module__ = "haloscope"


class ShapeError(Error, ValueError):
    """An array has another shape than the operator takes; the message has both.

    >>> import haloscope, numpy
    >>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(1, 16, 16))
    >>> try:
    ...     blur.A(numpy.zeros((1, 1, 8, 8), numpy.float32))
    ... except haloscope.ShapeError as error:
    ...     print(error)
    the image of blur has shape [1, 1, 8, 8]; a batch of [1, 16, 16] is expected: (batch, channel, spatial…)
    """

    __module__ = "haloscope"


class ArgumentError(Error, ValueError):
    """A value that cannot be right; the message says what would be accepted.

    >>> import haloscope
    >>> try:
    ...     haloscope.set_num_threads(0)
    ... except haloscope.ArgumentError as error:
    ...     print(error)
    threads: 0 is given; at least 1 is needed
    """

    __module__ = "haloscope"


class NumericError(Error, ArithmeticError):
    """A method diverged, or the input holds infinities or NaNs.

    >>> import haloscope, numpy
    >>> image = numpy.full((1, 3, 16, 16), numpy.nan, numpy.float32)
    >>> try:
    ...     haloscope.models.TV()(image, 0.1)
    ... except haloscope.NumericError as error:
    ...     print("not finite" in str(error))
    True
    """

    __module__ = "haloscope"


class FileError(Error, OSError):
    """A file cannot be read or written, is damaged, or is of an unknown kind.

    >>> import haloscope
    >>> try:
    ...     haloscope.io.read("absent.png")
    ... except haloscope.FileError as error:
    ...     print("absent.png" in str(error))
    True
    """

    __module__ = "haloscope"


class RankError(Error, RuntimeError):
    """Another rank failed, left, or did not arrive in time.

    >>> import haloscope
    >>> error = haloscope.RankError("rank 2 left")
    >>> error.rank is None
    True
    """

    __module__ = "haloscope"

    #: The rank that failed, where it is known.
    rank: int | None = None
