"""ONNX files and devices: in packages with ONNX Runtime, and what packages without it say."""

import pathlib

import haloscope
import numpy as np
import pytest
from haloscope import models

FILES = pathlib.Path(__file__).parents[2] / "crates/haloscope-onnx/tests/files"
is_built = "onnx" in haloscope.info().features


def image(*shape: int) -> np.ndarray:
    """The image that PyTorch was given when the files were made."""
    return (np.arange(np.prod(shape)) * 37 % 101 / np.float32(101)).astype(np.float32).reshape(shape)


@pytest.mark.skipif(is_built, reason="this package has ONNX Runtime")
def test_a_package_without_onnx_runtime_says_how_to_build_it(tmp_path: pathlib.Path) -> None:
    for options in ({"weights": FILES / "dncnn.onnx"}, {"weights": "builtin:color", "device": "gpu"}):
        with pytest.raises(haloscope.Error, match=r"--features onnx.*pip install onnxruntime"):
            models.Network(**options)
    with pytest.raises(haloscope.ArgumentError, match="no ONNX file"):
        models.Network("builtin:color", onnx={"white": 255})


def test_what_is_said_of_files_and_devices_is_checked() -> None:
    with pytest.raises(haloscope.ArgumentError, match="layout"):
        models.Network("builtin:color", onnx={"colour": 1})
    with pytest.raises(haloscope.ArgumentError, match="by name or file"):
        models.Network({"a": np.zeros(3, np.float32)}, device="gpu")


@pytest.mark.onnx
@pytest.mark.parametrize(
    ("name", "shape", "options", "tolerance"),
    [
        ("dncnn", (1, 1, 37, 50), {}, 1e-5),
        ("swin", (1, 3, 40, 48), {}, 1e-5),
        ("half", (1, 3, 37, 50), {}, 5e-3),
        ("last", (1, 3, 37, 50), {"white": 255}, 1e-5),
    ],
)
def test_files_have_the_values_of_pytorch(name: str, shape: tuple[int, ...], options: dict[str, float], tolerance: float) -> None:
    network = models.Network(FILES / f"{name}.onnx", onnx=options)
    expected = np.fromfile(FILES / f"{name}.expected", "<f4").reshape(shape)
    np.testing.assert_allclose(network(image(*shape), 0.1), expected, atol=tolerance)
    assert network.in_channels == shape[1] and network.memory(shape) > 0


@pytest.mark.onnx
def test_an_exported_network_has_the_values_of_its_own_engine(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "color.onnx"
    assert haloscope.main(["export", "builtin:color", "--out", str(path), "--dynamic"]) == 0
    landscape = haloscope.io.phantom.landscape(45, 70)
    expected = models.Network("builtin:color")(landscape, 0.1)
    exported = models.Network(path)
    np.testing.assert_allclose(exported(landscape, 0.1), expected, atol=1e-5)

    def body(ctx: haloscope.Context) -> np.ndarray:
        return haloscope.distribute(models.Network(path), ctx, patch_size=32, overlap=8)(landscape, 0.1)

    haloscope.testing.assert_same_bits(body, (1, 2))
    blur = haloscope.physics.Blur(haloscope.kernels.gaussian(1.5), "circular", img_size=(3, 45, 70))
    found = haloscope.reconstruct(blur.A(landscape), blur, path, sigma=0.01, max_iter=2, x_gt=landscape)
    assert found.records[-1].psnr > 20
    assert haloscope.plan(blur, str(path), ranks=2).rank_bytes > 0


@pytest.mark.onnx
def test_devices_and_files_that_are_not_there_are_refused() -> None:
    with pytest.raises(haloscope.ArgumentError, match="no device"):
        models.Network("builtin:color", device="tpu")
    with pytest.raises(haloscope.Error, match="absent.onnx"):
        models.Network("absent.onnx")
    with pytest.raises(haloscope.Error, match=r"wrong|image"):
        models.Network(next(iter(sorted((FILES / "wrong").glob("*.onnx")))))
    landscape = haloscope.io.phantom.landscape(32, 32)
    # Without a GPU it is the processor.
    np.testing.assert_allclose(models.Network("builtin:color", device="auto")(landscape, 0.1), models.Network()(landscape, 0.1), atol=1e-4)
