"""The examples run, small, and find what they should."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

ROOT = pathlib.Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "python"


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_quick_start_has_the_numbers_of_the_readme_on_1_and_3_ranks() -> None:
    """Those that the program in Rust prints, which have nothing of Python in them."""
    expected = re.findall(r"^(measurements|adjoint|denoised|loss|gradient|found) .*$", (ROOT / "README.md").read_text(), re.M)
    assert len(expected) == 6
    lines = [
        line
        for line in (ROOT / "README.md").read_text().splitlines()
        if re.match(r"(measurements|adjoint|denoised|loss|gradient|found) +[\[\d]", line)
    ]
    outputs = []
    for ranks in ("1", "3"):
        command = [sys.executable, str(EXAMPLES / "quickstart.py"), "--ranks", ranks]
        outputs.append(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert outputs[0] == outputs[1]
    assert [line for line in outputs[0].splitlines() if not line.startswith(("by a network", "bits"))] == lines


def test_a_photograph_is_denoised() -> None:
    assert load("denoise_photograph").main(None, None, 0.1, 320) > 5


def test_an_image_is_deblurred() -> None:
    assert load("deblur_dpir").main(96) > 1


def test_a_volume_is_reconstructed_with_the_same_bits_on_any_number_of_ranks() -> None:
    cone_beam = load("cone_beam")
    one, two = cone_beam.main(24, 1), cone_beam.main(24, 3)
    assert one == two and one[0] > 15


def test_the_notebook_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = json.loads((EXAMPLES / "tour.ipynb").read_text())["cells"]
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), "tour.ipynb", "exec"), names)
            assert cell["outputs"], "the notebook is kept with its pictures"
