"""Draw the curves of the runs: validation PSNR and loss against CPU hours."""

import argparse
import csv
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("curves", type=Path, nargs="+", help="curve.tsv files")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    figure, (psnr, loss) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for path in options.curves:
        with open(path, encoding="utf8", newline="") as file:
            rows = list(csv.DictReader(file, delimiter="\t"))
        hours = [float(row["cpu_seconds"]) / 3600 for row in rows]
        # An annealing is in a folder of its own, within that of the run.
        folder = path.parent
        name = folder.parent.name if folder.name.startswith("annealed-") else folder.name
        psnr.plot(hours, [float(row["psnr25"]) for row in rows], label=name)
        loss.plot(hours, [float(row["loss"]) for row in rows], label=name)
    psnr.set(xlabel="CPU hours", ylabel="validation PSNR at σ = 25/255 (dB)")
    loss.set(xlabel="CPU hours", ylabel="mean absolute error", yscale="log")
    psnr.legend()
    figure.savefig(options.output, dpi=110)


if __name__ == "__main__":
    main()
