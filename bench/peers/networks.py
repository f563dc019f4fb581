"""Seconds per forward pass of denoising networks in other frameworks, as lines of JSON.

    networks.py PEER --threads N [--case NAME ...] [--repeats N]

PEER is one of torch-nchw, torch-channels-last, torch-compile (with freezing), onnxruntime, openvino.
Each framework gets its best configuration that users can reach: inference mode, frozen weights, the
stated number of threads, and glibc's thresholds raised so that none is charged for page faults
(`MALLOC_MMAP_THRESHOLD_` and `MALLOC_TRIM_THRESHOLD_`, set by the Makefile). Networks are deepinv's,
with random weights; the noise map is part of the input, as in our own program.
"""

import argparse
import json
import os
import tempfile
import time

import numpy
import torch

torch.manual_seed(0)


class DrunetBody(torch.nn.Module):
    """DRUNet without the handling of odd sizes around it: its input has the noise map as a channel."""

    def __init__(self, **options):
        super().__init__()
        from deepinv.models import DRUNet

        self.net = DRUNet(pretrained=None, **options)

    def forward(self, x):
        return self.net.forward_unet(x)


class IgnoresSigma(torch.nn.Module):
    """A network whose forward pass has a noise level that it does not use."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)


def drunet():
    return DrunetBody(in_channels=3, out_channels=3)


def drunet_3d():
    return DrunetBody(in_channels=1, out_channels=1, nc=(32, 64, 128, 256), nb=2, dim=3)


def dncnn():
    from deepinv.models import DnCNN

    return IgnoresSigma(DnCNN(3, 3, depth=20, bias=True, nf=64, pretrained=None))


def unet():
    from deepinv.models import UNet

    return IgnoresSigma(UNet(3, 3, scales=4, batch_norm=True))


# The same names and shapes as in `crates/haloscope-nn/benches/networks.rs`.
CASES = {
    "DRUNet 1×3×256²": (drunet, (1, 4, 256, 256)),
    "DRUNet 1×3×512²": (drunet, (1, 4, 512, 512)),
    "DRUNet 4×3×256²": (drunet, (4, 4, 256, 256)),
    "DnCNN-20 1×3×256²": (dncnn, (1, 3, 256, 256)),
    "UNet 1×3×256²": (unet, (1, 3, 256, 256)),
    "DRUNet 3-D 1×1×64³": (drunet_3d, (1, 2, 64, 64, 64)),
}


def torch_runner(network, x, peer):
    if peer == "torch-channels-last":
        layout = torch.channels_last if x.dim() == 4 else torch.channels_last_3d
        network, x = network.to(memory_format=layout), x.to(memory_format=layout)
    if peer == "torch-compile":
        from torch._inductor import config

        config.freezing = True
        # Each case is compiled for its own shape, with nothing left of the case before.
        torch._dynamo.reset()
        network = torch.compile(network, dynamic=False)

    def run():
        with torch.no_grad():
            return network(x)

    return run


def export(network, x):
    path = f"{tempfile.gettempdir()}/haloscope-bench-{os.getpid()}.onnx"
    torch.onnx.export(network, (x,), path, input_names=["x"], output_names=["y"], dynamo=False)
    return path


def onnxruntime_runner(network, x, threads):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    path = export(network, x)
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    os.remove(path)
    feed = {"x": x.numpy()}
    return lambda: session.run(None, feed)


def openvino_runner(network, x, threads):
    import openvino

    core = openvino.Core()
    path = export(network, x)
    options = {
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = core.compile_model(core.read_model(path), "CPU", options)
    os.remove(path)
    request = compiled.create_infer_request()
    feed = {"x": x.numpy()}
    return lambda: request.infer(feed)


def runner(peer, network, x, threads):
    if peer == "onnxruntime":
        return onnxruntime_runner(network, x, threads)
    if peer == "openvino":
        return openvino_runner(network, x, threads)
    return torch_runner(network, x, peer)


def peak_megabytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    peers = ["torch-nchw", "torch-channels-last", "torch-compile", "onnxruntime", "openvino"]
    parser.add_argument("peer", choices=peers)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    for name in arguments.case or CASES:
        build, shape = CASES[name]
        network = build().eval()
        x = torch.from_numpy(numpy.random.default_rng(1).random(shape, dtype=numpy.float32))
        run = runner(arguments.peer, network, x, arguments.threads)
        run()
        best = float("inf")
        for _ in range(arguments.repeats):
            begin = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - begin)
        case = f"{name}, {arguments.threads} thread{'s' * (arguments.threads > 1)}"
        print(json.dumps({"case": case, "seconds": best, "peak_mb": peak_megabytes()}), flush=True)


if __name__ == "__main__":
    main()
