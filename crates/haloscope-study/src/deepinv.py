"""Plug-and-play reconstructions in deepinv, for `haloscope bench compare`.

Gets a question as its last argument and answers in lines of JSON, as haloscope's own measuring processes do: see
`job.rs`. The pictures are random, of the same shape: seconds compare, qualities do not.
"""

import json
import math
import signal
import sys
import time

# A Ctrl-C is the study's to report, also one that comes while the libraries load.
signal.signal(signal.SIGINT, signal.SIG_DFL)

import torch
from deepinv.models import DRUNet, DnCNN, UNet
from deepinv.physics import BlurFFT, Downsampling, Tomography
from deepinv.physics.functional import gaussian_blur


def network(name, channels):
    kind, *parts = name.split(":")
    lists = [[int(number) for number in part.split("-")] for part in parts]
    if kind == "drunet":
        options = {"nc": lists[0]} if lists else {}
        if len(lists) > 1:
            options["nb"] = lists[1][0]
        return DRUNet(in_channels=channels, out_channels=channels, pretrained=None, **options)
    if kind == "unet":
        scales = lists[0] if lists else [64, 128, 256, 512]
        return UNet(channels, channels, scales=len(scales), channels_per_scale=scales, batch_norm=True)
    if kind == "dncnn":
        width = lists[0][0] if lists else 64
        depth = lists[1][0] if len(lists) > 1 else 20
        return DnCNN(channels, channels, depth=depth, nf=width, bias=True, pretrained=None)
    return DRUNet(in_channels=channels, out_channels=channels, pretrained=name)


def shifted_gaussian(index):
    steps = (0.7548776662466928, 0.5698402909980532)
    shift = [2 * ((index * step) % 1) - 1 for step in steps]
    rows, columns = torch.meshgrid(*[torch.arange(-5.0, 6.0) - part for part in shift], indexing="ij")
    kernel = torch.exp(-0.5 * (rows**2 + columns**2))
    return (kernel / kernel.sum())[None, None]


def operators(problem, channels, height, width, count):
    shape = (channels, height, width)
    for index in range(count):
        if problem == "highres-color":
            kernel = gaussian_blur(sigma=(0.01 * height, 0.005 * height), angle=180.0 * index / count)
            yield BlurFFT(img_size=shape, filter=kernel)
        elif problem == "super-resolution":
            yield Downsampling(img_size=shape, filter=shifted_gaussian(index), factor=2, padding="circular")
        elif problem == "tomography-2d":
            angles = torch.arange(index, 100, count) * 1.8
            yield Tomography(angles=angles, img_width=width, circle=False, normalize=False)
        else:
            sys.exit(f"deepinv has no {problem} on a CPU")


def norm(physics, x):
    for _ in range(4):
        x = x / x.norm()
        x = sum(operator.A_adjoint(operator.A(x)) for operator in physics)
    return x.norm()


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def main():
    job = json.loads(sys.argv[-1])["job"]
    configuration, settings = job["configuration"], job["settings"]
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(configuration["threads"])
    problem, height, width = (configuration[name] for name in ("problem", "height", "width"))
    channels = 3 if problem in ("highres-color", "super-resolution") else 1
    physics = list(operators(problem, channels, height, width, configuration["operators"]))
    denoiser = network(configuration["model"], channels).eval()
    truth = torch.rand(1, channels, height, width)
    with torch.no_grad():
        data = [operator.A(truth) for operator in physics]
        step = 0.99 / norm(physics, torch.ones_like(truth))

        def iterate(iterations, note):
            x = torch.zeros_like(truth)
            for iteration in range(1, iterations + 1):
                begin = time.perf_counter()
                gradient = torch.zeros_like(x)
                for operator, y in zip(physics, data):
                    gradient += operator.A_adjoint(operator.A(x) - y)
                middle = time.perf_counter()
                x = denoiser((x - step * gradient).clamp(0, 1), settings["sigma"]).clamp(0, 1)
                end = time.perf_counter()
                if not math.isfinite(float(x.norm())):
                    sys.exit("the image is not finite")
                note(iteration, end - begin, middle - begin, end - middle)

        iterate(settings["warm_up"], lambda *_: None)
        for repetition in job["repetitions"]:
            rows = []

            def note(iteration, total, gradient, prior):
                row = dict(configuration, predicted=False, repetition=repetition, rank=0, iteration=iteration)
                row.update(total_seconds=total, data_seconds=gradient, prior_seconds=prior, peak_bytes=peak_bytes())
                rows.append(row)

            iterate(settings["iterations"], note)
            print(json.dumps({"repetition": {"rows": rows, "image": None}}), flush=True)


if __name__ == "__main__":
    main()
