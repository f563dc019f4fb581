"""Train one denoiser, from nothing or from where it was left.

The learning rate warms up and then stays, so that a run has no planned end: it can be stopped and
continued at any time, and annealed at any time. Annealing (`--decay-steps`) takes the newest
checkpoint, lowers the rate to zero over that many steps, and keeps its own checkpoints in
`annealed-STEP/`, so that the unannealed run can go on from where it was.

Only one process works, with no loaders beside it: patches are in memory, and noise is cheap.
"""

import argparse
import copy
import math
import os
import signal
import time
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

from model import (
    BLOCKS,
    CHANNELS,
    SIGMA_MAX,
    denoise,
    drunet,
    gray_from_color,
    inflate,
    memory_format,
    start_from_identity,
    widen,
)

# The columns of curve.tsv; PSNR is that of the averaged weights on the held-out patches.
CURVE = ["step", "wall_seconds", "cpu_seconds", "rate", "loss", "psnr15", "psnr25", "psnr50"]


class Patches:
    """Random crops of the patches, flipped and rotated, with noise of a random level."""

    def __init__(self, path, kind, seed):
        self.patches = np.load(path, mmap_mode="r")
        self.gray = kind == "gray"
        self.random = np.random.default_rng(seed)
        self.noise = torch.Generator().manual_seed(seed)

    def batch(self, count, size):
        random = self.random
        crops = []
        for index in random.integers(len(self.patches), size=count):
            patch = self.patches[index]
            y, x = random.integers(patch.shape[0] - size + 1, size=2)
            crop = np.rot90(patch[y : y + size, x : x + size], random.integers(4))
            crops.append(crop[::-1] if random.integers(2) else crop)
        clean = torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).float().div_(255)
        if self.gray:
            clean = luma(clean)
        sigma = torch.rand(count, generator=self.noise) * SIGMA_MAX
        noise = torch.randn(clean.shape, generator=self.noise)
        return clean, clean + noise * sigma.view(-1, 1, 1, 1), sigma


class Volumes:
    """Random crops of the cubes of volumes.py, half as deep as wide, in any of 48 orientations, some inverted."""

    def __init__(self, path, seed, focus):
        self.cubes = np.load(path)
        self.focus = focus
        self.random = np.random.default_rng(seed)
        self.noise = torch.Generator().manual_seed(seed)

    def batch(self, count, size):
        random = self.random
        crops = []
        for index in random.integers(len(self.cubes), size=count):
            cube = self.cubes[index].transpose(random.permutation(3))
            sides = (size // 2, size, size)
            begins = (random.integers(length - side + 1) for length, side in zip(cube.shape, sides))
            crop = cube[tuple(slice(begin, begin + side) for begin, side in zip(begins, sides))]
            crop = crop[tuple(slice(None, None, random.choice([1, -1])) for _ in range(3))]
            crop = crop / np.float32(255)
            if random.integers(4) == 0:
                crop = 1 - crop
            crops.append(crop * np.float32(random.uniform(0.5, 1)))
        clean = torch.from_numpy(np.stack(crops))[:, None]
        sigma = torch.rand(count, generator=self.noise) ** self.focus * SIGMA_MAX
        noise = torch.randn(clean.shape, generator=self.noise)
        return clean, clean + noise * sigma.view(-1, 1, 1, 1, 1), sigma


def luma(color):
    """ITU-R 601, as the gray test images were made."""
    return (color * torch.tensor([0.299, 0.587, 0.114]).view(1, 3, 1, 1)).sum(1, keepdim=True)


class Run:
    """Everything that a checkpoint holds."""

    def __init__(self, options):
        self.kind = options.kind
        self.channels, self.blocks = options.channels, options.blocks
        self.network = drunet(self.kind, self.channels, self.blocks)
        start_from_identity(self.network, torch.Generator().manual_seed(options.seed))
        if self.kind == "volume":
            self.data = Volumes(options.folder / "volumes-training.npy", options.seed, options.focus)
        else:
            self.data = Patches(options.folder / "training.npy", self.kind, options.seed)
        self.average = None
        self.step, self.wall, self.cpu = 0, 0.0, 0.0
        self.annealing = None
        self.curve = []

    def prepare(self, rate):
        """After the weights are in place: the average starts as a copy, and the optimiser."""
        self.network = self.network.to(memory_format=memory_format(self.kind))
        self.average = copy.deepcopy(self.network).requires_grad_(False)
        self.optimiser = torch.optim.Adam(self.network.parameters(), rate, (0.9, 0.99), fused=True)

    def save(self, folder):
        """Written beside, then renamed; the newest two are kept."""
        folder.mkdir(parents=True, exist_ok=True)
        state = {
            "kind": self.kind,
            "channels": self.channels,
            "blocks": self.blocks,
            "network": self.network.state_dict(),
            "average": self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "crops": self.data.random.bit_generator.state,
            "noise": self.data.noise.get_state(),
            "step": self.step,
            "wall": self.wall,
            "cpu": self.cpu,
            "annealing": self.annealing,
            "curve": self.curve,
        }
        path = folder / f"step-{self.step:08}.pt"
        with open(path.with_suffix(".partial"), "wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        path.with_suffix(".partial").replace(path)
        for old in sorted(folder.glob("step-*.pt"))[:-2]:
            old.unlink()
        lines = ["\t".join(CURVE)] + ["\t".join(f"{v:.6g}" for v in row) for row in self.curve]
        (folder / "curve.tsv").write_text("\n".join(lines) + "\n")

    def restore(self, state):
        self.network.load_state_dict(state["network"])
        self.average.load_state_dict(state["average"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.data.random.bit_generator.state = state["crops"]
        self.data.noise.set_state(state["noise"])
        self.step, self.wall, self.cpu = state["step"], state["wall"], state["cpu"]
        self.annealing, self.curve = state["annealing"], state["curve"]

    def rate(self, options):
        """Warm-up, then constant; when annealing, a straight line to zero."""
        factor = min(1.0, (self.step + 1) / options.warmup)
        if self.annealing:
            start, steps = self.annealing
            factor *= max(0.0, 1 - (self.step - start) / steps)
        return options.rate * factor

    def advance(self, options):
        """One step; returns its loss."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.rate(options)
        clean, noisy, sigma = self.data.batch(options.batch, options.patch)
        noisy = noisy.contiguous(memory_format=memory_format(self.kind))
        errors = (denoise(self.network, noisy, sigma) - clean).abs().flatten(1).mean(1)
        if options.focus != 1:
            # Of crops with little noise there is little error, which would count for nothing.
            errors = errors / (sigma + 3 / 255).sqrt() * 0.4
        loss = errors.mean()
        self.optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), options.clip)
        self.optimiser.step()
        self.step += 1
        # A young average must forget its start quickly.
        keep = min(0.999, self.step / (self.step + 10))
        with torch.no_grad():
            own, mean = list(self.network.parameters()), list(self.average.parameters())
            torch._foreach_lerp_(mean, own, 1 - keep)
        return loss.item()

    @torch.no_grad()
    def validate(self, patches):
        """PSNR of the averaged weights on fixed patches with fixed noise."""
        if self.kind == "volume":
            clean = torch.from_numpy(patches)[:, None].float().div(255)
        else:
            clean = torch.from_numpy(patches).permute(0, 3, 1, 2).float().div(255)
        if self.kind == "gray":
            clean = luma(clean)
        result = []
        for level in (15, 25, 50):
            noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(level))
            psnr = 0.0
            for one, noise_of_one in zip(clean.split(1), noise.split(1)):
                sigma = torch.tensor([level / 255])
                output = denoise(self.average, one + noise_of_one * sigma, sigma).clamp(0, 1)
                psnr -= 10 * math.log10((output - one).square().mean().item())
            result.append(psnr / len(clean))
        return result


def newest(folder):
    """The newest checkpoint of a folder, or None."""
    paths = sorted(folder.glob("step-*.pt"))
    return torch.load(paths[-1], weights_only=False) if paths else None


def annealing(folder, steps):
    """The state and folder of an annealing: the last one if it is unfinished, or a new one."""
    for target in sorted(folder.glob("annealed-*"))[-1:]:
        state = newest(target)
        if state is not None and state["step"] < sum(state["annealing"]):
            return state, target
    state = newest(folder)
    if state is None:
        raise SystemExit(f"there is no checkpoint in {folder} to anneal")
    state["annealing"] = (state["step"], steps)
    return state, folder / f"annealed-{state['step']:08}"


def weights_of(path):
    """The kind and averaged weights of a run's newest checkpoint, or of a file that was exported."""
    if path.suffix != ".safetensors":
        state = newest(path)
        return state["kind"], state["average"]
    with safe_open(path, framework="pt") as file:
        weights = {name: file.get_tensor(name).float() for name in file.keys()}
        return file.metadata()["kind"], weights


def begin(options):
    """A run at its start or at its newest checkpoint, and the folder where it goes on."""
    target = options.folder / (options.name or options.kind)
    if options.decay_steps:
        state, target = annealing(target, options.decay_steps)
    else:
        state = newest(target)
    if state is not None:
        options.channels, options.blocks = state["channels"], state["blocks"]
    run = Run(options)
    if state is None and options.start_from:
        kind, weights = weights_of(options.start_from)
        if run.kind == "volume" != kind:
            inflate(run.network, weights)
        else:
            widen(run.network, weights if kind == run.kind else gray_from_color(weights))
    run.prepare(options.rate)
    if state is not None:
        run.restore(state)
    return run, target


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=["color", "gray", "volume"], required=True)
    parser.add_argument("--folder", type=Path, required=True, help="patches and checkpoints")
    parser.add_argument("--name", help="folder of the checkpoints within, if not the kind")
    parser.add_argument(
        "--start-from",
        type=Path,
        help="checkpoints or exported weights that a new run starts as: colour, narrower, or gray for volumes",
    )
    parser.add_argument("--decay-steps", type=int, default=0, help="anneal over so many steps")
    parser.add_argument("--minutes", type=float, default=math.inf, help="stop after so long")
    parser.add_argument("--until", type=float, default=math.inf, help="stop at this step")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--patch", type=int, default=64)
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument(
        "--focus",
        type=float,
        default=1,
        help="for volumes: levels are this power of uniform ones, and above 1 low levels count more in the loss",
    )
    parser.add_argument("--clip", type=float, default=0.1)
    parser.add_argument("--channels", type=int, nargs=4, default=CHANNELS)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=int, default=500, help="steps between validations")
    parser.add_argument("--save-seconds", type=float, default=240)
    return parser.parse_args()


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    run, target = begin(options)
    cubes = "volumes-" if options.kind == "volume" else ""
    validation = np.load(options.folder / f"{cubes}validation.npy")
    stopping = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.append(True))
    began = saved = time.monotonic()
    wall_before, cpu_before = run.wall, run.cpu - time.process_time()
    losses = []

    def finished():
        annealed = run.annealing and run.step >= sum(run.annealing)
        late = time.monotonic() - began > 60 * options.minutes
        return stopping or annealed or late or run.step >= options.until

    while not finished():
        losses.append(run.advance(options))
        run.wall = wall_before + time.monotonic() - began
        run.cpu = cpu_before + time.process_time()
        annealed = run.annealing and run.step == sum(run.annealing)
        if run.step % options.report == 0 or annealed:
            numbers = [run.step, run.wall, run.cpu, run.rate(options), float(np.mean(losses))]
            run.curve.append(numbers + run.validate(validation))
            losses.clear()
            line = zip(CURVE, run.curve[-1])
            print(run.kind, *(f"{name} {value:.5g}" for name, value in line), flush=True)
        if time.monotonic() - saved > options.save_seconds:
            run.save(target)
            saved = time.monotonic()
    run.save(target)


if __name__ == "__main__":
    main()
