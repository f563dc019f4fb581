"""Ctrl-C: `KeyboardInterrupt` from whatever runs, and everything works afterwards."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import haloscope
import numpy as np
import pytest
from haloscope import Context, distribute, launch, models, optim, physics


@pytest.fixture(autouse=True)
def _signals_that_are_heeded() -> Iterator[None]:
    """A shell's job in the background starts with Ctrl-C ignored, and Python leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


LARGE = haloscope.io.phantom.landscape(1024, 1024)


def large_denoise() -> None:
    models.Network("builtin:color")(LARGE, 0.1)


def solver() -> None:
    blur = physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 1024, 1024))
    optim.FISTA(prior=optim.TVPrior(), lambda_reg=0.1, max_iter=10_000)(LARGE, blur)


def callable_on_ranks() -> None:
    def slow(x: np.ndarray, sigma: float) -> np.ndarray:
        time.sleep(0.02)
        return x

    def body(ctx: Context) -> None:
        shared = distribute(slow, ctx, patch_size=16, overlap=0, max_batch_size=1)
        while True:
            shared(LARGE, 0.1)

    launch(body, 3)


def python_code_on_ranks() -> None:
    def body(ctx: Context) -> None:
        while True:
            pass

    launch(body, 2)


def planning() -> None:
    for side in range(256, 4096, 8):
        models.Network("random:drunet").memory((1, 3, side, side))


@pytest.mark.parametrize("work", [large_denoise, solver, callable_on_ranks, python_code_on_ranks, planning])
def test_ctrl_c_ends_it_and_leaves_everything_usable(work: Callable[[], None]) -> None:
    timer = threading.Timer(0.7, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        work()
        # What ended sooner than the signal came is no failure of the signal.
        timer.join()
        time.sleep(1)
    timer.join()
    assert haloscope.models.TV(n_it_max=2)(LARGE[:, :, :16, :16], 0.1).shape == (1, 3, 16, 16)
    assert launch(lambda ctx: ctx.rank, 2) == [0, 1]


def test_ctrl_c_leaves_a_checkpoint(tmp_path: object) -> None:
    image = LARGE[:, :, :64, :64]
    blur = physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 64, 64))
    method = optim.Landweber(max_iter=1_000_000)

    def once(record: optim.Record) -> None:
        if record.iteration == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        method(image, blur, callback=once, checkpoint=str(tmp_path), checkpoint_every=10_000_000)
    resumed = method(image, blur, checkpoint=str(tmp_path), resume=True, callback=lambda record: True)
    assert resumed.records[0].iteration > 5


def test_ctrl_c_in_a_loop_over_iterations_leaves_a_checkpoint(tmp_path: object) -> None:
    image = LARGE[:, :, :64, :64]
    blur = physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 64, 64))
    calls = 0

    def denoiser(x: np.ndarray, sigma: float) -> np.ndarray:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), signal.SIGINT)
            # Ended by the signal, which the thread of the loop gets.
            for _ in range(6000):
                time.sleep(0.01)
        return x

    method = optim.PGD(prior=denoiser, max_iter=5)
    with pytest.raises(KeyboardInterrupt):
        for _ in method.iterate(image, blur, checkpoint=str(tmp_path), checkpoint_every=1000):
            pass
    resumed = method(image, blur, checkpoint=str(tmp_path), resume=True)
    assert resumed.records[0].iteration == 3
