"""Plug-and-play reconstructions in deepinv, for `haloscope bench compare`.

Gets a question as its last argument and answers in lines of JSON, as haloscope's own measuring processes do: see
`trial.rs`. The image is the one that haloscope reconstructs, from the file that the question names; the noise has the same standard
deviation and other values. Without a file the image is random, and there is no PSNR.

The operators are those of the jobs that haloscope measures (`haloscope bench compare --show-jobs`), as far as they take time:

- deblur: circular Gaussian blurs with the same kernels, of 23 x 23 pixels, at the same angles;
- super-resolution: every second pixel behind the same circular Gaussian filter, of 15 x 15 pixels. deepinv always keeps the
  first one, where haloscope's frames begin with different ones; both filter the whole image and keep a quarter;
- tomography-2d: the same 60 angles in the same groups, on a detector of as many bins: 3/2 of the image's side;
- tomography-3d: 48 angles, slice by slice with parallel beams, because deepinv has no cone beam on a CPU. So its data term is
  another, cheaper one, and only the denoiser's seconds compare.

deepinv gets inference mode, channels-last networks for pictures, the faster of its two circular blurs that use Fourier transforms, and
an allocator that does not give memory back to the system between iterations. Nothing else was tuned. Tiles are denoised one at a time,
as haloscope's are, though larger batches may be faster. On several processes of torchrun it shares the work by `deepinv.distributed`: the
operators always, and the denoiser where it has tiles. The first process reports these settings (`peer`), which go to the raw file.

Iterations start from zeros, as those of haloscope's jobs. PSNR is reported for deblur and tomography-2d; the measurements of the others
differ from haloscope's.
`bench/peers/reconstruction.py` takes operators and networks from here.
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
import deepinv
from deepinv.distributed import DistributedContext, distribute
from deepinv.models import Denoiser, DRUNet, DnCNN, UNet
from deepinv.optim.data_fidelity import L2
from deepinv.physics import Blur, BlurFFT, Downsampling, LinearPhysics, Tomography
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
    """The circular blurs, of deepinv's two ways to compute them, whose forward and adjoint take less time: on the first process, so that
    all have the same."""

    def best(blurs):
        def run():
            for blur in blurs:
                blur.A_adjoint(blur.A(image))

        return min(seconds_of(run)[0] for _ in range(3))

    ways = [
        [BlurFFT(img_size=tuple(image.shape[1:]), filter=kernel) for kernel in kernels],
        [Blur(filter=kernel, padding="circular", use_fft=True) for kernel in kernels],
    ]
    seconds = [best(way) for way in ways]
    choice = [seconds.index(min(seconds))]
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.broadcast_object_list(choice, src=0)
    return ways[choice[0]]


def network(name, channels, axes=2):
    kind, *parts = name.split(":")
    volume = {"dim": 3} if axes == 3 else {}
    lists = [[int(number) for number in part.split("-")] for part in parts]
    if kind == "drunet":
        options = {"nc": lists[0]} if lists else {}
        if len(lists) > 1:
            options["nb"] = lists[1][0]
        return DRUNet(in_channels=channels, out_channels=channels, pretrained=None, **options, **volume)
    if kind == "unet":
        scales = lists[0] if lists else [64, 128, 256, 512]
        return UNet(channels, channels, scales=len(scales), channels_per_scale=scales, batch_norm=True, **volume)
    if kind == "dncnn":
        width = lists[0][0] if lists else 64
        depth = lists[1][0] if len(lists) > 1 else 20
        return DnCNN(channels, channels, depth=depth, nf=width, bias=True, pretrained=None, **volume)
    return of_file(name, channels, volume)


def of_file(name, channels, volume):
    """A network with the weights of a file, of the kind that their names say."""
    weights = torch.load(name, map_location="cpu", weights_only=True)
    if "in_conv.weight" not in weights:
        return DRUNet(in_channels=channels, out_channels=channels, pretrained=name, **volume)
    between = sum(key.startswith("conv_list.") and key.endswith(".weight") for key in weights)
    options = {"depth": between + 2, "nf": weights["in_conv.weight"].shape[0], "bias": "in_conv.bias" in weights}
    model = DnCNN(channels, channels, pretrained=None, **options, **volume)
    model.load_state_dict(weights)
    return model


class Scan(LinearPhysics):
    """Parallel beams on a detector of so many bins. deepinv's has as many as the image has columns, in whose circle all of the
    image must be; so there is a margin around it. The slices of a volume are scanned one by one."""

    def __init__(self, angles, width, bins):
        super().__init__()
        self.before, self.width = (bins - width) // 2, width
        self.after = bins - width - self.before
        self.tomography = Tomography(angles=angles, img_width=bins, circle=True, normalize=False)

    def A(self, image, **_):
        flat = image.flatten(0, 2).unsqueeze(1) if image.ndim == 5 else image
        data = self.tomography.A(pad(flat, (self.before, self.after, self.before, self.after)))
        return data.reshape(*image.shape[:3], *data.shape[2:]) if image.ndim == 5 else data

    def A_adjoint(self, data, **_):
        inside = slice(self.before, self.before + self.width)
        flat = data.flatten(0, 2).unsqueeze(1) if data.ndim == 5 else data
        image = self.tomography.A_adjoint(flat)[..., inside, inside]
        return image.reshape(*data.shape[:3], *image.shape[2:]) if data.ndim == 5 else image


def operators(problem, image, count):
    shape = tuple(image.shape[1:])
    if problem == "deblur":
        kernels = [gaussian_blur(sigma=(3.0, 1.0), angle=180.0 * index / count) for index in range(count)]
        return faster_blurs(kernels, image)
    if problem == "super-resolution":
        frame = {"img_size": shape, "filter": "gaussian", "factor": 2, "padding": "circular"}
        return [Downsampling(**frame) for _ in range(count)]
    if problem in ("tomography-2d", "tomography-3d"):
        views = 60 if problem == "tomography-2d" else 48
        groups = [torch.arange(index, views, count) * (180.0 / views) for index in range(count)]
        return [Scan(angles, shape[-1], shape[-1] * 3 // 2) for angles in groups]
    sys.exit(f"the problem {problem} is unknown here")


def norm(physics, x):
    for _ in range(4):
        x = x / x.norm()
        x = sum(operator.A_adjoint(operator.A(x)) for operator in physics)
    return x.norm()


# The problems whose measurements are those of haloscope, but for the values of the noise.
SAME = ("deblur", "tomography-2d")

# The standard deviations that the jobs have. Those of scans are for projectors with a norm of 1.
NOISE = {"deblur": 0.03, "super-resolution": 0.02, "tomography-2d": 0.005, "tomography-3d": 0.005}


def peak_bytes():
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024


def tell(ctx, answer):
    if ctx.rank == 0:
        print(json.dumps(answer), flush=True)


def gathered(ctx, rows):
    """The rows of all processes, on the first."""
    if ctx.world_size == 1:
        return rows
    every = [None] * ctx.world_size
    torch.distributed.all_gather_object(every, rows)
    return [row for part in every for row in part]


class Reconstruction:
    """What one process does of the iterations."""

    def __init__(self, ctx, trial):
        self.ctx, self.configuration, self.settings = ctx, trial["configuration"], trial["settings"]
        of = self.configuration
        sides = [of[name] for name in ("depth", "height", "width") if of.get(name)]
        channels = 3 if of["problem"] in ("deblur", "super-resolution") else 1
        self.truth = torch.rand(1, channels, *sides)
        self.is_known = bool(trial.get("truth"))
        if self.is_known:
            import numpy

            self.truth = torch.from_numpy(numpy.load(trial["truth"])).float().reshape(1, channels, *sides)
        physics = operators(of["problem"], self.truth, of["operators"])
        whole = norm(physics, torch.ones_like(self.truth))
        sigma = self.settings.get("noise")
        sigma = NOISE[of["problem"]] if sigma is None else sigma
        if of["problem"].startswith("tomography"):
            sigma = sigma * math.sqrt(whole)
        self.data = [operator.A(self.truth) for operator in physics]
        self.data = [data + sigma * torch.randn_like(data) for data in self.data]
        self.step = 0.99 / whole
        denoiser = network(of["model"], channels, len(sides)).eval()
        self.denoiser = ChannelsLast(denoiser) if len(sides) == 2 else denoiser
        tiles = {"patch_size": of["patch"], "overlap": of["overlap"], "max_batch_size": of["batch"]} if of.get("patch") else None
        self.peer = {
            "deepinv": deepinv.__version__,
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "processes": ctx.world_size,
            "operators": type(physics[0]).__name__,
            "operators distributed": ctx.world_size > 1,
            "denoiser": tiles or "the whole image on every process",
            "channels last": len(sides) == 2,
            "inference mode": True,
            "noise": float(sigma),
            "allocator": THRESHOLDS,
        }
        if tiles:
            self.denoiser = distribute(self.denoiser, ctx, type_object="denoiser", **tiles)
        if ctx.world_size > 1:
            self.physics = distribute(physics, ctx, type_object="linear_physics")
            self.fidelity = distribute(L2(), ctx, num_operators=len(physics))
        else:
            self.physics, self.fidelity = physics, None

    def gradient(self, x):
        if self.fidelity is not None:
            return self.fidelity.grad(x, deepinv.utils.TensorList(self.data), self.physics)
        gradient = torch.zeros_like(x)
        for operator, y in zip(self.physics, self.data):
            gradient += operator.A_adjoint(operator.A(x) - y)
        return gradient

    def iterate(self, iterations, note):
        x = torch.zeros_like(self.truth)
        for iteration in range(1, iterations + 1):
            begin = time.perf_counter()
            gradient = self.gradient(x)
            middle = time.perf_counter()
            x = self.denoiser((x - self.step * gradient).clamp(0, 1), self.settings["sigma"]).clamp(0, 1)
            end = time.perf_counter()
            if not math.isfinite(float(x.norm())):
                sys.exit("the image is not finite")
            note(iteration, end - begin, middle - begin, end - middle, x)
            # Nobody's next iteration begins while the first process still compares.
            if self.ctx.world_size > 1:
                torch.distributed.barrier()

    def psnr(self, x):
        if not self.is_known or self.configuration["problem"] not in SAME:
            return None
        error = float(((x - self.truth).double() ** 2).mean())
        return 10 * math.log10(1 / error) if error > 0 else None


def main():
    trial = json.loads(sys.argv[-1])["trial"]
    settings = trial["settings"]
    torch.manual_seed(settings["seed"])
    torch.set_num_threads(trial["configuration"]["threads"])
    with torch.inference_mode(), DistributedContext(device_mode="cpu", seed=settings["seed"], seed_offset=False) as ctx:
        work = Reconstruction(ctx, trial)
        tell(ctx, {"peer": work.peer})
        work.iterate(settings["warm_up"], lambda *_: None)
        for repetition in trial["repetitions"]:
            rows = []

            def note(iteration, total, gradient, prior, x):
                row = dict(work.configuration, predicted=False, repetition=repetition, rank=ctx.rank, iteration=iteration)
                row.update(total_seconds=total, data_seconds=gradient, prior_seconds=prior, peak_bytes=peak_bytes())
                row.update(psnr_db=work.psnr(x) if ctx.rank == 0 else None)
                rows.append(row)

            work.iterate(settings["iterations"], note)
            tell(ctx, {"repetition": {"rows": gathered(ctx, rows), "image": None}})


if __name__ == "__main__":
    main()
