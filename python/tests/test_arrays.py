"""Arrays in and out: where they lie, what kind they are, what is refused."""

import threading
import time
from collections.abc import Callable

import haloscope
import numpy as np
import pytest
from haloscope import _haloscope, models, optim, physics
from haloscope._arrays import as_input


@pytest.fixture
def blur() -> haloscope.physics.Blur:
    return haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "circular", img_size=(3, 32, 48))


def test_float32_in_c_order_is_read_where_it_lies() -> None:
    x = np.zeros((2, 3, 8, 8), np.float32)
    assert _haloscope.address(as_input(x)) == x.__array_interface__["data"][0]
    part = x[1:]
    assert _haloscope.address(as_input(part)) == part.__array_interface__["data"][0]


def test_other_types_and_orders_are_copied_once_and_give_the_same_result(blur: haloscope.physics.Blur) -> None:
    x = haloscope.io.phantom.landscape(32, 48)
    expected = blur.A(x)
    np.testing.assert_array_equal(blur.A(x.astype(np.float64)), expected)
    np.testing.assert_array_equal(blur.A(np.asfortranarray(x)), expected)
    turned = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    np.testing.assert_array_equal(blur.A(turned), expected)


def test_arrays_that_are_not_aligned_are_copied_and_refused_where_they_are_not() -> None:
    bytes_of = b"\0" + np.arange(8, dtype=np.float32).tobytes()
    odd = np.frombuffer(bytes_of, np.float32, offset=1)
    if odd.__array_interface__["data"][0] % 4 == 0:
        odd = np.frombuffer(b"\0" + bytes_of, np.float32, offset=2)
    assert not odd.flags.aligned
    assert _haloscope.address(as_input(odd)) % 4 == 0
    np.testing.assert_array_equal(as_input(odd), np.arange(8))
    with pytest.raises(TypeError, match="multiple of 4 bytes"):
        _haloscope.address(odd)


def test_results_are_memory_that_rust_allocated(blur: haloscope.physics.Blur) -> None:
    y = blur.A(haloscope.io.phantom.landscape(32, 48))
    assert not y.flags.owndata and type(y.base).__name__ == "PySliceContainer"
    assert y.flags.writeable and y.flags.c_contiguous
    assert _haloscope.address(as_input(y)) == y.__array_interface__["data"][0]


def test_parts_of_measurements_share_one_memory_and_outlive_the_list() -> None:
    frame = haloscope.physics.Denoising(img_size=(1, 4, 4))
    y = haloscope.physics.stack(frame, frame).A(np.full((1, 1, 4, 4), 7.0))
    first, again = y[0], y[0]
    assert first.__array_interface__["data"][0] == again.__array_interface__["data"][0]
    assert not first.flags.writeable
    del y, again
    assert first.sum() == 16 * 7


def test_anything_with_dlpack_or_array_is_taken(blur: haloscope.physics.Blur) -> None:
    x = haloscope.io.phantom.landscape(32, 48)

    class Packed:
        def __dlpack__(self, **options: object) -> object:
            return x.__dlpack__()

        def __dlpack_device__(self) -> object:
            return x.__dlpack_device__()

    assert _haloscope.address(as_input(Packed())) == x.__array_interface__["data"][0]
    np.testing.assert_array_equal(blur.A(Packed()), blur.A(x))
    np.testing.assert_array_equal(blur.A(x.tolist()), blur.A(x))


@pytest.mark.parametrize("wrong", [np.zeros((1, 3, 4, 4), np.complex64), np.array(["a"])])
def test_arrays_without_a_meaning_are_refused(blur: haloscope.physics.Blur, wrong: np.ndarray) -> None:
    with pytest.raises(haloscope.ArgumentError):
        blur.A(wrong)


def test_errors_are_those_of_python_too(blur: haloscope.physics.Blur) -> None:
    with pytest.raises(ValueError, match=r"shape \[1, 3, 4, 4\]"):
        blur.A(np.zeros((1, 3, 4, 4)))
    with pytest.raises(OSError, match=r"absent\.tif"):
        haloscope.io.read("absent.tif")
    with pytest.raises(haloscope.ArgumentError, match="valid, circular"):
        haloscope.physics.Blur(haloscope.kernels.gaussian(1.0), "mirror", img_size=(1, 8, 8))  # type: ignore[arg-type]


def clamped_and_normalized() -> None:
    prior = optim.PnP(models.TV(), range="normalize")
    optim.PGD(prior=prior, clamp=(0.0, 1.0), max_iter=1)(np.zeros((1, 1, 4, 4)), physics.Denoising(img_size=(1, 4, 4)))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: models.Network("builtin:gray")(np.zeros((16, 16))), "sigma"),
        (lambda: models.Network("builtin:gray")(np.zeros((16, 16)), 0.1), r"\[16, 16\]; \(batch, 1, height, width\)"),
        (lambda: models.Network("builtin:gray")(np.zeros((1, 1, 16, 16), np.uint8), 0.1), "uint8.*x / 255"),
        (lambda: models.Network([1, 2]), "a state dict, or a torch module"),
        (lambda: models.Wavelet("sym4"), "db1 to db8"),
        (lambda: physics.Tomography((1, 16, 16), 10.0), "angles: 10.0"),
        (lambda: physics.Tomography((1, 8, 16, 16), 10, n_detector_pixels=(4, 5, 6)), r"n_detector_pixels: \(4, 5, 6\)"),
        (lambda: physics.Tomography((16, 16), 10), r"\(channel, y, x\)"),
        (lambda: physics.Inpainting((1, 16, 16), 1.5), "mask: 1.5"),
        (lambda: physics.Stack([1, 2]), "int: 1 is no operator"),
        (lambda: optim.FISTA(models.TV()), "data_fidelity: a TV is given"),
        (lambda: optim.CG()(physics.Denoising(img_size=(1, 4, 4)), np.zeros((1, 1, 4, 4))), "physics: a ndarray is given"),
        (lambda: haloscope.reconstruct(np.zeros((1, 1, 4, 4)), physics.Denoising(img_size=(1, 4, 4)), ranks=0), "ranks: 0"),
        (clamped_and_normalized, "clamp: given with a prior"),
    ],
)
def test_mistakes_are_named(call: Callable[[], object], words: str) -> None:
    with pytest.raises((haloscope.Error, TypeError), match=words):
        call()


def test_numbers_of_numpy_are_numbers() -> None:
    assert physics.Tomography((1, 16, 16), np.int64(10)).measurement_size == (1, 10, 16)
    assert physics.Inpainting((1, 16, 16), np.float32(0.5)).measurement_size == (1, 16, 16)
    rows = [[[[1.0, 2.0], [3.0, 4.0]]]]
    assert physics.Blur(haloscope.kernels.uniform(1), "circular").A_adjoint(rows).tolist() == rows


def test_other_threads_run_while_a_call_computes() -> None:
    net = haloscope.models.Network("builtin:color")
    image = haloscope.io.phantom.landscape(96, 96)
    ticks = 0
    done = threading.Event()

    def count() -> None:
        nonlocal ticks
        while not done.is_set():
            ticks += 1
            time.sleep(0.001)

    counter = threading.Thread(target=count)
    counter.start()
    before = ticks
    # Long enough for a thread that can run to be seen running.
    while ticks < before + 5:
        net(image, 0.1)
    done.set()
    counter.join()
