"""Seconds per forward pass of exported networks in Python's ONNX Runtime, as lines of JSON.

    exported.py FOLDER --threads N [--repeats N]

FOLDER holds what `bench_runtime export FOLDER` wrote. The session has the same settings as that of `bench_runtime run`.
"""

import argparse
import json
import time
from pathlib import Path

import numpy
import onnxruntime

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--repeats", type=int, default=3)
arguments = parser.parse_args()

for name in ["DRUNet-256", "DnCNN-20-256", "UNet-256"]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = arguments.threads
    options.inter_op_num_threads = 1
    path = str(arguments.folder / f"{name}.onnx")
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (port,) = session.get_inputs()
    feed = {port.name: numpy.random.default_rng(1).random(port.shape, dtype=numpy.float32)}
    best = float("inf")
    # The first round warms up.
    for turn in range(arguments.repeats + 1):
        begin = time.perf_counter()
        session.run(None, feed)
        if turn > 0:
            best = min(best, time.perf_counter() - begin)
    print(json.dumps({"case": f"{name}, {arguments.threads} threads", "seconds": best}))
