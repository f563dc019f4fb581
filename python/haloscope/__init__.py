"""Image reconstruction on CPUs: exact operators, fast denoising networks, tiles and ranks.

>>> import haloscope
>>> image = haloscope.io.phantom.landscape(64, 96)
>>> blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.5), "circular", img_size=(3, 64, 96))
>>> y = blur.A(image)
>>> found = haloscope.reconstruct(y, blur, "builtin", sigma=0.01, max_iter=4)
>>> found.image.shape
(1, 3, 64, 96)

Arrays are (batch, channel, spatial...). numpy arrays, torch tensors on the CPU and anything with DLPack are taken; float32 in
C order is read where it lies by operators and denoisers, and their results come back without a copy, as tensors for tensors and else
as numpy arrays. Calls release the interpreter's lock, and Ctrl-C ends them with ``KeyboardInterrupt``.
"""

from . import forecast, io, kernels, metrics, models, optim, physics, testing
from ._arrays import ArrayLike, Size
from ._build import Info, __version__, get_num_threads, info, set_num_threads
from ._context import Context, launch
from ._errors import ArgumentError, Error, FileError, NumericError, RankError, ShapeError
from ._measurements import Measurements
from .distributed import distribute
from .forecast import Forecast, Forecasts, plan
from .jobs import Plan, check, init, main, run
from .optim import Record, Result, reconstruct

__all__ = [
    "ArgumentError",
    "ArrayLike",
    "Context",
    "Error",
    "FileError",
    "Forecast",
    "Forecasts",
    "Info",
    "Measurements",
    "NumericError",
    "Plan",
    "RankError",
    "Record",
    "Result",
    "ShapeError",
    "Size",
    "__version__",
    "check",
    "distribute",
    "forecast",
    "get_num_threads",
    "info",
    "init",
    "io",
    "kernels",
    "launch",
    "main",
    "metrics",
    "models",
    "optim",
    "physics",
    "plan",
    "reconstruct",
    "run",
    "set_num_threads",
    "testing",
]
