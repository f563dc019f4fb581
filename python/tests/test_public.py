"""Every public name is documented with an example, and the examples of the documentation run."""

import doctest
import importlib
import inspect
import pathlib
import pkgutil
import re

import haloscope
import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: All but those that need torch, and the command.
MODULES = ["haloscope"] + [
    found.name
    for found in pkgutil.walk_packages(haloscope.__path__, "haloscope.")
    if found.name not in ("haloscope._haloscope", "haloscope.__main__", "haloscope.deepinv")
]


@pytest.mark.parametrize("module", [name for name in MODULES if "._" not in name])
def test_every_public_name_has_an_example(module: str) -> None:
    public = importlib.import_module(module)
    for name in public.__all__:
        item = getattr(public, name)
        # Aliases of types belong to typing.
        is_own = getattr(item, "__module__", "").startswith("haloscope")
        if not is_own or not (inspect.isclass(item) or inspect.isfunction(item)):
            continue
        assert item.__doc__ and ">>>" in item.__doc__, f"{module}.{name} has no example"
        methods = inspect.getmembers(item, inspect.isfunction) if inspect.isclass(item) else []
        for method, function in methods:
            is_public = function.__module__.startswith("haloscope") and not method.startswith("_")
            assert not is_public or function.__doc__, f"{module}.{name}.{method} is not documented"


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module: str) -> None:
    found = doctest.testmod(importlib.import_module(module))
    assert found.failed == 0


@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_examples_of_pages_run(page: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / page).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert blocks
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for block in blocks:
        if "import torch" in block or "import deepinv" in block or "mpi4py" in block:
            continue
        exec(compile(block, page, "exec"), names)
