"""How long Ctrl-C takes to become KeyboardInterrupt, ten times for each kind of work. Prints lines of JSON.

    python bench/python_interrupt.py
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable

import haloscope
import numpy as np
from haloscope import Context, distribute, launch, models, optim, physics

IMAGE = haloscope.io.phantom.landscape(2048, 2048)


def denoise() -> None:
    models.Network("builtin:color")(IMAGE, 0.1)


def solver() -> None:
    blur = physics.Blur(haloscope.kernels.gaussian(2.0), "circular", img_size=(3, 2048, 2048))
    optim.FISTA(prior=optim.TVPrior(), lambda_reg=0.1, max_iter=10_000)(IMAGE, blur)


def callable_on_ranks() -> None:
    def slow(x: np.ndarray, sigma: float) -> np.ndarray:
        time.sleep(0.05)
        return x

    def body(ctx: Context) -> None:
        shared = distribute(slow, ctx, patch_size=64, overlap=0, max_batch_size=1)
        while True:
            shared(IMAGE, 0.1)

    launch(body, 3)


def planning() -> None:
    while True:
        models.Network("random:drunet").memory((1, 3, 2048, 2048))


def interrupted(work: Callable[[], None]) -> float:
    sent = [0.0]

    def send() -> None:
        time.sleep(random.uniform(0.8, 1.6))
        sent[0] = time.perf_counter()
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=send).start()
    try:
        while True:
            work()
    except KeyboardInterrupt:
        return time.perf_counter() - sent[0]


# A shell's job in the background starts with Ctrl-C ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
for work in (denoise, solver, callable_on_ranks, planning):
    times = [interrupted(work) for _ in range(10)]
    print(json.dumps({"case": work.__name__, "seconds": max(times), "all": [round(one, 3) for one in times]}), flush=True)
