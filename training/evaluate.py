"""PSNR on CBSD68, Kodak24 (colour) and Set12 (gray) at noise levels 15, 25 and 50.

Only reported, never tuned on. Noise is seeded for each image and level and the noisy image is not
clipped; the result is rounded to 8 bits, as published figures are.
"""

import argparse
import math
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open

import photos
from model import denoise, drunet

LEVELS = (15, 25, 50)


def test_sets(kind):
    images = photos.data_folder() / "images"
    if kind == "gray":
        return {"Set12": sorted((images / "Set12").glob("*.png"))}
    names = (photos.HERE / "cbsd68.txt").read_text().split()
    return {
        "CBSD68": [images / "BSDS500" / "val" / f"{name}.jpg" for name in names],
        "Kodak24": sorted((images / "Kodak24").glob("*.png")),
    }


def load(path):
    """A network of a checkpoint (its averaged weights) or of exported weights, and its kind."""
    if path.is_dir():
        path = sorted(path.glob("step-*.pt"))[-1]
    if path.suffix == ".pt":
        state = torch.load(path, weights_only=False, map_location="cpu")
        kind, channels, blocks = state["kind"], state["channels"], state["blocks"]
        weights = state["average"]
        print(f"{path}: step {state['step']}, {state['cpu'] / 3600:.2f} CPU hours")
    else:
        with safe_open(path, "pt") as file:
            about = file.metadata()
            weights = {name: file.get_tensor(name).float() for name in file.keys()}
        kind, blocks = about["kind"], int(about["blocks"])
        channels = [int(count) for count in about["channels"].split(",")]
    network = drunet(kind, channels, blocks)
    network.load_state_dict(weights)
    return network.to(memory_format=torch.channels_last).eval(), kind


@torch.no_grad()
def psnr(network, path, gray, level):
    image = Image.open(path).convert("L" if gray else "RGB")
    clean = torch.from_numpy(np.array(image)).float().div(255)
    clean = clean[None, None] if gray else clean.permute(2, 0, 1)[None]
    noise = torch.randn(clean.shape, generator=torch.Generator().manual_seed(level))
    sigma = torch.tensor([level / 255])
    height, width = clean.shape[2:]
    # The network halves three times.
    pad = (0, -width % 8, 0, -height % 8)
    noisy = torch.nn.functional.pad(clean + noise * sigma, pad, mode="replicate")
    output = denoise(network, noisy, sigma)[..., :height, :width]
    output = output.clamp(0, 1).mul(255).round().div(255)
    return -10 * math.log10((output - clean).square().mean().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("weights", type=Path, help="folder of checkpoints, .pt or .safetensors")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--levels", type=int, nargs="+", default=LEVELS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    network, kind = load(options.weights)
    for name, paths in test_sets(kind).items():
        for level in options.levels:
            values = [psnr(network, path, kind == "gray", level) for path in paths]
            print(f"{name} ({len(paths)} images) at {level}: {np.mean(values):.2f} dB", flush=True)


if __name__ == "__main__":
    main()
