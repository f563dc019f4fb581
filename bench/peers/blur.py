"""Seconds per blur and downsampling in deepinv on PyTorch, as lines of JSON.

    blur.py PEER --threads N [--repeats N]

PEER is blur-fft (`BlurFFT`, circular only), blur-use-fft (`Blur(use_fft=True)`) or blur (`Blur` and `Downsampling`
by direct convolution, without the kernel of 139², which takes far longer). Names and sizes are those of
`crates/haloscope/benches/blur.rs`.
"""

import argparse
import json
import time

import torch
from deepinv.physics import Blur, BlurFFT, Downsampling
from deepinv.physics.functional import gaussian_blur

torch.manual_seed(0)


def circular(peer, shape, kernel):
    if peer == "blur-fft":
        return BlurFFT(img_size=shape, filter=kernel)
    return Blur(filter=kernel, padding="circular", use_fft=peer == "blur-use-fft")


def cases(peer):
    if peer != "blur":
        kernel = gaussian_blur(sigma=(20.5, 8.0), angle=30.0)
        yield "circular 2048²×3, Gaussian of 139²", circular(peer, (3, 2048, 2048), kernel), (3, 2048, 2048)
    yield "circular 1024²×3, kernel of 9²", circular(peer, (3, 1024, 1024), torch.rand(1, 1, 9, 9)), (3, 1024, 1024)
    if peer == "blur":
        physics = Downsampling(img_size=(1, 2048, 2048), filter="bicubic", factor=2, padding="circular")
        yield "downsampling of 2048² by 2, bicubic", physics, (1, 2048, 2048)


def best_of(repeats, run):
    run()
    best = float("inf")
    for _ in range(repeats):
        begin = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begin)
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer", choices=["blur-fft", "blur-use-fft", "blur"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    threads = f"{arguments.threads} thread{'s' * (arguments.threads > 1)}"
    for name, physics, shape in cases(arguments.peer):
        x = torch.rand(1, *shape)
        with torch.no_grad():
            y = physics.A(x)
            directions = {"forward": lambda: physics.A(x), "adjoint": lambda: physics.A_adjoint(y)}
            for direction, run in directions.items():
                seconds = best_of(arguments.repeats, run)
                print(json.dumps({"case": f"{name}, {direction}, {threads}", "seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
