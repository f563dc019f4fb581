"""Seconds, memory and PSNR of a whole reconstruction in deepinv on PyTorch, as a line of JSON.

    reconstruction.py PEER FOLDER --network NAME --weights FILE [--iterations N] [--threads N] [--patch N] [--overlap N]

PEER is untiled, compiled (the network through torch.compile with frozen weights) or tiled (through `deepinv.distributed` on one
process). The problem is that of `crates/haloscope/benches/reconstruction.rs`, which writes FOLDER: three circular blurs of a
colour picture, plug-and-play proximal gradient descent with steps of 0.5 and a noise level of 0.05. deepinv gets the
configuration of `crates/haloscope-study/src/deepinv.py`, which `haloscope bench compare` runs: inference mode, channels-last
networks, its faster circular blur of the two that use Fourier transforms, and glibc's thresholds raised so that it is not
charged for page faults. One iteration warms up; then all are timed.
"""

import argparse
import contextlib
import importlib.util
import json
from pathlib import Path

import deepinv
import torch
from deepinv.distributed import DistributedContext, distribute
from safetensors.torch import load_file

STEP = 0.5
LEVEL = 0.05
BLURS = 3


def shared_peer():
    """The program of `haloscope bench compare`, as a module."""
    path = Path(__file__).parents[2] / "crates/haloscope-study/src/deepinv.py"
    spec = importlib.util.spec_from_file_location("haloscope_study_deepinv", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


peer = shared_peer()


def network(name, weights):
    if name == "dncnn":
        model = deepinv.models.DnCNN(3, 3, depth=20, bias=True, nf=64, pretrained=None)
    else:
        model = deepinv.models.DRUNet(3, 3, pretrained=None)
    state = load_file(weights) if weights.suffix == ".safetensors" else torch.load(weights, weights_only=True)
    model.load_state_dict(state, strict=True)
    return model.eval()


def compiled(model):
    from torch._inductor import config

    config.freezing = True
    return torch.compile(model, dynamic=False)


def psnr(image, truth):
    return (-10 * torch.log10(((image.double() - truth.double()) ** 2).mean())).item()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["untiled", "compiled", "tiled"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--network", choices=["dncnn", "drunet"], required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--patch", type=int, default=256)
    parser.add_argument("--overlap", type=int, default=64)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    tensors = load_file(arguments.folder / "problem.safetensors")
    truth, start = tensors["truth"], tensors["start"]
    data = deepinv.utils.TensorList([tensors[f"data {i}"] for i in range(BLURS)])
    fidelity = deepinv.optim.StackedPhysicsDataFidelity([deepinv.optim.L2() for _ in range(BLURS)])

    with torch.inference_mode(), contextlib.ExitStack() as stack:
        blurs = peer.faster_blurs([tensors[f"kernel {i}"] for i in range(BLURS)], truth)
        physics = deepinv.physics.stack(*blurs)
        denoiser = peer.ChannelsLast(network(arguments.network, arguments.weights))
        if arguments.peer == "compiled":
            denoiser.network = compiled(denoiser.network)
        if arguments.peer == "tiled":
            context = stack.enter_context(DistributedContext(device_mode="cpu"))
            patch, overlap = arguments.patch, arguments.overlap
            # One patch at a time takes the least memory and, on a CPU, no more time.
            denoiser = distribute(denoiser, context, patch_size=patch, overlap=overlap, max_batch_size=1)
        prior = deepinv.optim.PnP(denoiser=denoiser)

        def reconstruct(iterations):
            x = start
            for _ in range(iterations):
                x = x - STEP * fidelity.grad(x, data, physics)
                x = prior.prox(x, sigma_denoiser=LEVEL)
            return x

        first, _ = peer.seconds_of(lambda: reconstruct(1))
        seconds, image = peer.seconds_of(lambda: reconstruct(arguments.iterations))

    side = truth.shape[-1]
    threads = f"{arguments.threads} thread{'s' * (arguments.threads > 1)}"
    case = f"deblurring {side}²×3 with {arguments.network}, {arguments.iterations} iterations, {threads}"
    result = {
        "case": case,
        "seconds": seconds,
        "first_iteration_seconds": first,
        "psnr_db": psnr(image, truth),
        "start_psnr_db": psnr(start, truth),
        "peak_mb": peer.peak_bytes() / 1e6,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    peer.raise_thresholds()
    main()
