"""Peak memory of denoising networks in PyTorch, as lines of JSON: what `haloscope bench memory` measures of its own.

    memory.py [--height N] [--widths LIST] [--networks LIST] [--threads N]

Each case runs once in a process of its own, in inference mode. `before_bytes` is what the process had when the network and the image were
made (VmHWM), `peak_bytes` what it had at most. Networks are deepinv's with random weights, called as users call them.
"""

import argparse
import json
import subprocess
import sys
import time


def peak_bytes():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def measure(network, height, width, threads):
    import deepinv.models
    import torch

    torch.set_num_threads(threads)
    make = {
        "drunet": lambda: deepinv.models.DRUNet(pretrained=None),
        "unet": lambda: deepinv.models.UNet(3, 3, scales=4, batch_norm=True),
        "dncnn": lambda: deepinv.models.DnCNN(3, 3, depth=20, bias=True, nf=64, pretrained=None),
    }
    model = make[network]().eval()
    image = torch.rand(1, 3, height, width)
    before = peak_bytes()
    start = time.perf_counter()
    with torch.inference_mode():
        model(image, 0.05)
    seconds = time.perf_counter() - start
    case = {"network": network, "height": height, "width": width, "threads": threads}
    return {**case, "torch": torch.__version__, "deepinv": deepinv.__version__, "before_bytes": before,
            "peak_bytes": peak_bytes(), "seconds": round(seconds, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--height", type=int, default=2048)
    parser.add_argument("--widths", default="1024,1228,1296,2048")
    parser.add_argument("--networks", default="drunet,unet,dncnn")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", action="store_true", help="measure the one case in this process")
    given = parser.parse_args()
    cases = [(network, int(width)) for network in given.networks.split(",") for width in given.widths.split(",")]
    if given.one:
        [(network, width)] = cases
        print(json.dumps(measure(network, given.height, width, given.threads)), flush=True)
        return
    for network, width in cases:
        one = ["--one", "--networks", network, "--widths", str(width), "--height", str(given.height)]
        subprocess.run([sys.executable, __file__, *one, "--threads", str(given.threads)], check=True)


if __name__ == "__main__":
    main()
