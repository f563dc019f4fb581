"""Checks ONNX files with the `onnx` package, runs them in ONNX Runtime and compares the results.

    runtime.py FOLDER

FOLDER holds `cases.txt`, a line for each case: its name, the shape of its input, of its noise level (`-` without one) and of
its output. Beside it are `NAME.onnx` and, as raw f32, `NAME.image`, `NAME.sigma` and `NAME.expected`. Prints the largest
difference of each case relative to the largest value.
"""

import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

folder = Path(sys.argv[1])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1


def read(path, shape):
    sizes = [int(size) for size in shape.split("x")]
    return np.fromfile(path, dtype="<f4").reshape(sizes)


for line in (folder / "cases.txt").read_text().splitlines():
    name, shape, level, output = line.split()
    file, _, _ = name.partition("@")
    model = folder / f"{file}.onnx"
    onnx.checker.check_model(str(model), full_check=True)
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    feeds = {"image": read(folder / f"{name}.image", shape)}
    if level != "-":
        feeds["sigma"] = read(folder / f"{name}.sigma", level)
    assert {value.name for value in session.get_inputs()} == set(feeds), name
    (result,) = session.run(["denoised"], feeds)
    expected = read(folder / f"{name}.expected", output)
    assert result.shape == expected.shape, f"{name}: {result.shape} instead of {expected.shape}"
    error = np.abs(result - expected).max() / np.abs(expected).max()
    print(name, f"{error:.2e}")
