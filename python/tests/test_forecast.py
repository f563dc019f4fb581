"""Plans are those of the command."""

import json
import pathlib
import subprocess
import sys

import haloscope
import pytest
from haloscope import physics


def command(*arguments: str) -> dict[str, object]:
    line = [sys.executable, "-m", "haloscope", "plan", *arguments, "--json"]
    return json.loads(subprocess.run(line, capture_output=True, text=True, check=True).stdout)


def same(found: haloscope.Forecast, expected: dict[str, object]) -> None:
    """All numbers, but for the memory that is free just now."""
    details = dict(found.details)
    for report in (details, expected):
        report.pop("available_bytes")
    assert details == expected


def blurs(count: int) -> list[physics.Physics]:
    return [physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 192, 256)) for _ in range(count)]


@pytest.mark.parametrize(("ranks", "tiles"), [(1, {}), (3, {"patch_size": 64, "overlap": 16}), (5, {"patch_size": "auto"})])
def test_networks_are_planned_as_by_the_command(ranks: int, tiles: dict[str, int]) -> None:
    net = haloscope.models.Network("builtin:color", threads=1)
    found = haloscope.plan(blurs(3), net, ranks=ranks, threads=1, memory_budget="1GB", **tiles)
    options = ["--size", "192x256", "--operators", "3", "--model", "builtin:color", "--ranks", str(ranks), "--threads", "1"]
    options += ["--memory-budget", "1GB"]
    options += [word for name, value in tiles.items() for word in (f"--{name.removesuffix('_size')}", str(value))]
    same(found, command(*options))
    assert len(found.ranks) == ranks and found.fits
    assert found.rank_bytes == max(rank["memory_bytes"] for rank in found.ranks)
    assert "rank" in str(found) and found._repr_html_().startswith("<")


def test_methods_without_a_network_are_planned_as_by_the_command() -> None:
    scan = physics.Tomography((1, 48, 64, 64), angles=30)
    # The command knows measurements by their sides.
    sides = "x".join(str(side) for side in scan.measurement_size[1:])
    for method in ("cg", "fista", "primal-dual"):
        options = ["--size", "48x64x64", "--channels", "1", "--measurement", sides, "--solver", method, "--ranks", "2"]
        same(haloscope.plan(scan, ranks=2, method=method), command(*options))


def test_jobs_are_planned_as_by_the_command(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text(haloscope.init("deblur", size=64))
    expected = command(str(path), "--ranks", "2")
    found = haloscope.plan(path, ranks=2)
    expected.pop("job"), found.details.pop("job")
    same(found, expected)


def test_several_numbers_of_ranks_stand_beside_each_other(tmp_path: pathlib.Path) -> None:
    net = haloscope.models.Network("builtin:color", threads=1)
    found = haloscope.plan(blurs(4), net, ranks=[1, 2, 4], threads=1, memory_budget="1GB")
    for count, forecast in zip((1, 2, 4), found):
        same(forecast, dict(haloscope.plan(blurs(4), net, ranks=count, threads=1, memory_budget="1GB").details))
    assert [len(forecast.ranks) for forecast in found] == [1, 2, 4] and found[-1] is found[2] and len(found[:2]) == 2
    rows = str(found).splitlines()
    assert len(rows) == 4 and rows[3].split()[0] == "4" and f"{found[2].rank_bytes / 1e6:.1f} MB" in rows[3]
    assert found._repr_html_().count("<tr>") == 4 and "[1, 2, 4]" in repr(found)
    path = tmp_path / "job.toml"
    path.write_text(haloscope.init("deblur", size=64))
    assert [len(forecast.ranks) for forecast in haloscope.plan(path, ranks=(1, 3))] == [1, 3]


def test_operators_of_any_shape_are_planned_for_one() -> None:
    kernel = haloscope.kernels.gaussian(2.0)
    loose = [physics.Blur(kernel, "circular"), physics.Denoising()]
    tight = [physics.Blur(kernel, "circular", img_size=(3, 96, 128)), physics.Denoising(img_size=(3, 96, 128))]
    same(haloscope.plan(loose, shape=(1, 3, 96, 128), method="cg"), dict(haloscope.plan(tight, method="cg").details))
    batch = haloscope.plan(tight, shape=(4, 3, 96, 128), method="cg")
    assert 3.5 < batch.rank_bytes / haloscope.plan(tight, method="cg").rank_bytes < 4.5
    with pytest.raises(haloscope.ArgumentError, match="img_size"):
        haloscope.plan(loose)
    with pytest.raises(haloscope.ShapeError, match="96, 128"):
        haloscope.plan(tight, shape=(1, 3, 64, 64))


def test_what_cannot_be_planned_is_refused() -> None:
    for ranks in ([], [1, 0]):
        with pytest.raises(haloscope.ArgumentError, match="at least 1"):
            haloscope.plan(blurs(1), ranks=ranks)
    with pytest.raises(haloscope.ArgumentError, match="memory is not known"):
        haloscope.plan(blurs(1), lambda x, sigma: x)
    with pytest.raises(haloscope.ArgumentError, match="at least 1"):
        haloscope.plan(blurs(1), ranks=0)
    with pytest.raises(haloscope.ArgumentError, match="leave them out"):
        haloscope.plan({}, "builtin")
    with pytest.raises(haloscope.Error, match="takes no network"):
        haloscope.plan(blurs(1), "builtin", method="cg")
    assert not haloscope.plan(blurs(1), "builtin", memory_budget=1000).fits
