#!/usr/bin/env python3
"""Draws published and modelled efficiency side by side, one panel for each image.

    curves.py --published bench/published.json --predictions FOLDER --out docs/scaling/curves.svg

FOLDER has the predictions of `haloscope bench predict` as `cpu/rows.csv` and `gpu/rows.csv`. Solid lines with dots were measured by the authors
of the sources; dashed lines are what the model says, with its interval as a band. A curve that starts at several devices is relative to those.
"""

import argparse
import csv
import json
import math
from collections import defaultdict
from pathlib import Path

IMAGES = ["2048x2048", "4096x4096", "8192x8192", "512x512x512"]
PUBLISHED = {"A": "#1a1a1a", "B": "#7a7a7a", "D": "#1a1a1a"}
# Okabe and Ito's colours, which colour-blind readers can tell apart.
MODELLED = {
    ("cpu", "replicated"): ("#e69f00", "cores, replicated"),
    ("cpu", "sharded"): ("#0072b2", "cores, sharded"),
    ("gpu", "replicated"): ("#d55e00", "ranks 40 times as fast, replicated"),
    ("gpu", "sharded"): ("#009e73", "ranks 40 times as fast, sharded"),
}
MOST = 1024
WIDTH, HEIGHT, LEFT, TOP, GAP_X, GAP_Y = 330, 210, 60, 40, 70, 70


def modelled(folder):
    """Seconds by image, machine, layout and ranks: the prediction, the least and the most."""
    found = defaultdict(dict)
    for machine in ("cpu", "gpu"):
        with open(folder / machine / "rows.csv", newline="") as file:
            for row in csv.DictReader(file):
                if row["predicted"] == "true":
                    image = "x".join(side for side in (row["depth"], row["height"], row["width"]) if side)
                    seconds = [float(row[name]) for name in ("total_seconds", "low_seconds", "high_seconds")]
                    found[image, machine, row["layout"]][int(row["ranks"])] = seconds
    return found


def efficiency(curve):
    """Percent of ideal scaling from the fewest ranks, and its interval, by ranks."""
    fewest = min(curve)
    work = curve[fewest][0] * fewest
    return {ranks: [100 * work / (ranks * seconds) for seconds in times] for ranks, times in sorted(curve.items())}


class Panel:
    def __init__(self, index, image):
        self.left = LEFT + (index % 2) * (WIDTH + GAP_X)
        self.top = TOP + (index // 2) * (HEIGHT + GAP_Y)
        sides = image.split("x")
        self.parts = [f'<text x="{self.left}" y="{self.top - 10}" class="title">{sides[0]}{"²³"[len(sides) - 2]}</text>']
        for percent in range(0, 101, 25):
            y = self.y(percent)
            self.parts.append(f'<line x1="{self.left}" x2="{self.left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
            self.parts.append(f'<text x="{self.left - 6}" y="{y + 4:.1f}" text-anchor="end">{percent} %</text>')
        for power in range(0, int(math.log2(MOST)) + 1, 2):
            x = self.x(2**power)
            self.parts.append(f'<text x="{x:.1f}" y="{self.top + HEIGHT + 16}" text-anchor="middle">{2**power}</text>')

    def x(self, ranks):
        return self.left + WIDTH * math.log2(ranks) / math.log2(MOST)

    def y(self, percent):
        return self.top + HEIGHT * (1 - min(percent, 105) / 105)

    def points(self, values):
        return " ".join(f"{self.x(ranks):.1f},{self.y(percent):.1f}" for ranks, percent in values)

    def measured(self, curve):
        values = sorted((int(ranks), percent) for ranks, percent in curve["percent"].items())
        colour = PUBLISHED[curve["source"]]
        self.parts.append(f'<polyline points="{self.points(values)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for ranks, percent in values:
            self.parts.append(f'<circle cx="{self.x(ranks):.1f}" cy="{self.y(percent):.1f}" r="3.5" fill="{colour}"/>')

    def predicted(self, curve, colour):
        values = efficiency(curve)
        # The shortest time is the highest efficiency.
        band = [(ranks, three[1]) for ranks, three in values.items()] + [(ranks, three[2]) for ranks, three in reversed(values.items())]
        self.parts.append(f'<polygon points="{self.points(band)}" fill="{colour}" opacity="0.15"/>')
        line = [(ranks, three[0]) for ranks, three in values.items()]
        self.parts.append(f'<polyline points="{self.points(line)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="6 4"/>')


def legend(top):
    entries = [(PUBLISHED["A"], "", "published, measured on GPUs (A, D)"), (PUBLISHED["B"], "", "published, measured on GPUs (B)")]
    entries += [(colour, ' stroke-dasharray="6 4"', f"modelled, {words}") for colour, words in MODELLED.values()]
    parts = []
    for index, (colour, dash, words) in enumerate(entries):
        x, y = LEFT + (index % 2) * (WIDTH + GAP_X), top + 20 * (index // 2)
        parts.append(f'<line x1="{x}" x2="{x + 36}" y1="{y - 4}" y2="{y - 4}" stroke="{colour}" stroke-width="2"{dash}/>')
        if not dash:
            parts.append(f'<circle cx="{x + 18}" cy="{y - 4}" r="3.5" fill="{colour}"/>')
        parts.append(f'<text x="{x + 44}" y="{y}">{words}</text>')
    return parts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--published", type=Path, required=True)
    parser.add_argument("--predictions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    published = json.loads(options.published.read_text())["curves"]
    predictions = modelled(options.predictions)
    parts = []
    for index, image in enumerate(IMAGES):
        panel = Panel(index, image)
        for key, (colour, _) in MODELLED.items():
            curve = predictions.get((image, *key))
            if curve is None:
                parser.error(f"there are no predictions of {image}, {key[1]}, in {options.predictions / key[0]}")
            panel.predicted(curve, colour)
        for curve in published:
            if curve["image"] == image:
                panel.measured(curve)
        parts += panel.parts
    bottom = TOP + 2 * (HEIGHT + GAP_Y)
    parts.append(f'<text x="{LEFT}" y="{bottom - 22}">devices or ranks; efficiency against the fewest of each curve</text>')
    parts += legend(bottom + 6)
    width, height = 2 * WIDTH + GAP_X + LEFT + 30, bottom + 60
    style = "text{font:12px sans-serif;fill:#333}.title{font-size:15px;font-weight:600}.grid{stroke:#ddd}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    body = "\n".join(parts)
    options.out.write_text(f'{head}\n<style>{style}</style>\n<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n')


if __name__ == "__main__":
    main()
