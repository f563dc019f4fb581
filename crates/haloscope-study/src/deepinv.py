"""Plug-and-play reconstructions in deepinv, for `haloscope bench compare`.

Gets a question as its last argument and answers in lines of JSON, as haloscope's own measuring processes do: see
`trial.rs`. The pictures are random, of the same shape: seconds compare, qualities do not.

The operators are those of the jobs that haloscope measures (`haloscope bench compare --show-jobs`), as far as they take time:

- deblur: circular Gaussian blurs with the same kernels, of 23 x 23 pixels, at the same angles;
- super-resolution: every second pixel behind the same circular Gaussian filter, of 15 x 15 pixels. deepinv always keeps the
  first one, where haloscope's frames begin with different ones; both filter the whole image and keep a quarter;
- tomography-2d: the same 60 angles in the same groups, on a detector of as many bins: 3/2 of the image's side.

deepinv gets its best configuration: inference mode, channels-last networks, the faster of its two circular blurs that use
Fourier transforms, and an allocator that does not give memory back to the system between iterations.
`bench/peers/reconstruction.py` takes all of it from here.
"""

import json
import math
import os
import signal
import sys
import time

# glibc's thresholds, so that the peer is not charged for page faults. They are read when a process starts.
THRESHOLDS = {"MALLOC_MMAP_THRESHOLD_": "4294967296", "MALLOC_TRIM_THRESHOLD_": "17179869184"}


def raise_thresholds():
    """Starts this program anew with the thresholds, unless it has them."""
    if any(os.environ.get(name) != value for name, value in THRESHOLDS.items()):
        os.execve(sys.executable, sys.orig_argv, {**os.environ, **THRESHOLDS})


if __name__ == "__main__":
    # A Ctrl-C is the study's to report, also one that comes while the libraries load.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise_thresholds()

import torch
from deepinv.models import Denoiser, DRUNet, DnCNN, UNet
from deepinv.physics import Blur, BlurFFT, Downsampling, Tomography
from deepinv.physics.functional import gaussian_blur
from torch.nn.functional import pad


class ChannelsLast(Denoiser):
    """A denoiser whose convolutions run on channels-last memory; images around it stay as they are."""

    def __init__(self, network):
        super().__init__()
        self.network = network.to(memory_format=torch.channels_last)

    def forward(self, x, sigma, **_):
        return self.network(x.contiguous(memory_format=torch.channels_last), sigma).contiguous()


def seconds_of(run):
    begin = time.perf_counter()
    result = run()
    return time.perf_counter() - begin, result


def faster_blurs(kernels, image):
    """The circular blurs, of deepinv's two ways to compute them, whose forward and adjoint take less time."""

    def best(blurs):
        def run():
            for blur in blurs:
                blur.A_adjoint(blur.A(image))

        return min(seconds_of(run)[0] for _ in range(3))

    ways = [
        [BlurFFT(img_size=tuple(image.shape[1:]), filter=kernel) for kernel in kernels],
        [Blur(filter=kernel, padding="circular", use_fft=True) for kernel in kernels],
    ]
    return min(ways, key=best)


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


class Scan:
    """Parallel beams on a detector of so many bins. deepinv's has as many as the image has columns, in whose circle all of the
    image must be; so there is a margin around it."""

    def __init__(self, angles, width, bins):
        self.before, self.width = (bins - width) // 2, width
        self.after = bins - width - self.before
        self.tomography = Tomography(angles=angles, img_width=bins, circle=True, normalize=False)

    def A(self, image):
        return self.tomography.A(pad(image, (self.before, self.after, self.before, self.after)))

    def A_adjoint(self, data):
        inside = slice(self.before, self.before + self.width)
        return self.tomography.A_adjoint(data)[..., inside, inside]


def operators(problem, image, count):
    shape = tuple(image.shape[1:])
    if problem == "deblur":
        kernels = [gaussian_blur(sigma=(3.0, 1.0), angle=180.0 * index / count) for index in range(count)]
        return faster_blurs(kernels, image)
    if problem == "super-resolution":
        frame = {"img_size": shape, "filter": "gaussian", "factor": 2, "padding": "circular"}
        return [Downsampling(**frame) for _ in range(count)]
    if problem == "tomography-2d":
        views = 60
        groups = [torch.arange(index, views, count) * (180.0 / views) for index in range(count)]
        return [Scan(angles, shape[2], shape[2] * 3 // 2) for angles in groups]
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
    trial = json.loads(sys.argv[-1])["trial"]
    configuration, settings = trial["configuration"], trial["settings"]
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(configuration["threads"])
    problem, height, width = (configuration[name] for name in ("problem", "height", "width"))
    channels = 3 if problem in ("deblur", "super-resolution") else 1
    with torch.inference_mode():
        truth = torch.rand(1, channels, height, width)
        physics = operators(problem, truth, configuration["operators"])
        denoiser = ChannelsLast(network(configuration["model"], channels).eval())
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
        for repetition in trial["repetitions"]:
            rows = []

            def note(iteration, total, gradient, prior):
                row = dict(configuration, predicted=False, repetition=repetition, rank=0, iteration=iteration)
                row.update(total_seconds=total, data_seconds=gradient, prior_seconds=prior, peak_bytes=peak_bytes())
                rows.append(row)

            iterate(settings["iterations"], note)
            print(json.dumps({"repetition": {"rows": rows, "image": None}}), flush=True)


if __name__ == "__main__":
    main()
