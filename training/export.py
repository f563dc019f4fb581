"""Write a checkpoint's averaged weights as safetensors at half precision, in deepinv's names.

The file says what it is: whoever loads it needs the sizes, and the range of noise levels that it
was trained for.
"""

import argparse
from pathlib import Path

import torch
from safetensors.torch import save_file

from model import IMAGE_CHANNELS, SIGMA_MAX, drunet
from train import newest

# What each kind was trained on.
DATA = {
    "color": "the photographs of training/photos.tsv",
    "gray": "the photographs of training/photos.tsv",
    "volume": "the weights of gray, and the volumes of training/volumes.py",
}

LICENCE = "MIT OR Apache-2.0"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoints", type=Path, help="folder of checkpoints")
    parser.add_argument("output", type=Path)
    options = parser.parse_args()
    state = newest(options.checkpoints)
    if state is None:
        raise SystemExit(f"there is no checkpoint in {options.checkpoints}")
    weights = {
        name: weight.to(torch.float16).contiguous() for name, weight in state["average"].items()
    }
    broken = [name for name, weight in weights.items() if not weight.isfinite().all()]
    if broken:
        raise SystemExit(f"not finite at half precision: {', '.join(broken)}")
    drunet(state["kind"], state["channels"], state["blocks"]).load_state_dict(weights)
    about = {
        "format": "pt",
        "architecture": "drunet",
        "kind": state["kind"],
        "image_channels": str(IMAGE_CHANNELS[state["kind"]]),
        "channels": ",".join(map(str, state["channels"])),
        "blocks": str(state["blocks"]),
        "sigma_min": "0",
        "sigma_max": f"{SIGMA_MAX:.6f}",
        "steps": str(state["step"]),
        "cpu_hours": f"{state['cpu'] / 3600:.2f}",
        "annealed": str(bool(state["annealing"])).lower(),
        "licence": LICENCE,
        "data": DATA[state["kind"]],
    }
    save_file(weights, options.output, about)
    print(options.output, options.output.stat().st_size, "bytes;", about)


if __name__ == "__main__":
    main()
