"""The command through Python: what it starts again is itself."""

import csv
import json
import pathlib
import subprocess
import sys

import haloscope
import pytest


def run(*arguments: str, folder: pathlib.Path) -> subprocess.CompletedProcess[str]:
    """As pip's entry point calls it: a script of Python, and not ``python -m haloscope``."""
    script = folder / "haloscope"
    script.write_text("import sys\nfrom haloscope._command import main\nif __name__ == '__main__':\n    sys.exit(main())\n")
    line = [sys.executable, str(script), *arguments]
    return subprocess.run(line, capture_output=True, text=True, cwd=folder, timeout=300)


@pytest.fixture(autouse=True)
def _absolute_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(pathlib.Path(haloscope.__file__).parents[1]))


def test_bench_measures_in_processes_of_its_own(tmp_path: pathlib.Path) -> None:
    options = "--problem deblur --sizes 32 --model drunet:2-2-2-2:1 --operators 2 --iterations 2 --repetitions 1 --ranks 1,2"
    study = ["bench", "scaling", *options.split(), "--out", "study"]
    done = run(*study, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    with (tmp_path / "study" / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["ranks"] for row in rows} == {"1", "2"}
    provenance = json.loads((tmp_path / "study" / "provenance.json").read_text())
    assert json.dumps(["haloscope", *study])[1:-1] in json.dumps(provenance), "what was typed"


def test_submit_starts_the_command_of_this_package(tmp_path: pathlib.Path) -> None:
    job = "[measurements]\nphantom = 'landscape'\nsize = [16, 16]\n\n[[operators]]\nkind = 'identity'\n\n"
    (tmp_path / "job.toml").write_text(job + "[solver]\nmethod = 'cg'\n\n[output]\nfile = 'image.npy'\n")
    done = run("submit", "job.toml", "--tasks-per-node", "2", "--dry-run", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("srun ")]
    assert line.endswith(f"{sys.executable} -m haloscope reconstruct job.toml --resume"), line


def test_bench_under_slurm_passes_its_own_arguments_on(tmp_path: pathlib.Path) -> None:
    (tmp_path / "grid.toml").write_text("[grid]\nnodes = 1\ntasks-per-node = [1, 2]\n")
    study = ["bench", "scaling", "--sizes", "32", "--slurm", "grid.toml", "--dry-run", "--out", "study"]
    done = run(*study, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"{sys.executable} -m haloscope bench scaling --sizes 32 --backend mpi" in done.stdout


def test_the_command_can_be_called_as_a_function(capfd: pytest.CaptureFixture[str]) -> None:
    assert haloscope.main(["info", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)
    assert haloscope.main(["check", "absent.toml"]) == 2
