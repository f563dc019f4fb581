"""ONNX Runtime, in packages that were built with it: whether it is there, and where its library is."""

from __future__ import annotations

import importlib.util
import os
import pathlib

from ._build import info
from ._errors import Error

#: How a package with it is installed from a clone.
INSTALL = 'pip install . --config-settings=maturin.build-args="--features onnx"'


def is_built() -> bool:
    """Whether this package has it."""
    return "onnx" in info().features


def require(what: str) -> None:
    """Refuses what needs it, in packages without it."""
    if not is_built():
        raise Error(f"{what} needs ONNX Runtime, which this package was built without; from a clone: {INSTALL}, and pip install onnxruntime")
    name_library()


def name_library() -> None:
    """Names the library of this interpreter's own package ``onnxruntime``, unless another one is named.

    The extension finds packages by the variables of an activated environment, which an interpreter that is called by its path has not.
    """
    if "ORT_DYLIB_PATH" in os.environ:
        return
    found = importlib.util.find_spec("onnxruntime")
    for folder in () if found is None else found.submodule_search_locations or ():
        names = sorted(pathlib.Path(folder, "capi").glob("*onnxruntime.*"))
        libraries = [str(name) for name in names if {".so", ".dylib", ".dll"} & set(name.suffixes)]
        if libraries:
            os.environ["ORT_DYLIB_PATH"] = libraries[-1]
