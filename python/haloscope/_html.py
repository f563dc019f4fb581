"""What notebooks show: pictures and curves as SVG and PNG inside of HTML, without scripts and without anything from the net."""

from __future__ import annotations

import base64
import html
import io
import struct
import zlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

COLOURS = ("#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb")


def tiles_html(shape: Sequence[int], tiles: Sequence[tuple[Sequence[tuple[int, int]], int]], title: str) -> str:
    """The tiles in the last two axes, coloured by rank."""
    height, width = shape[-2], shape[-1]
    scale = 320 / max(height, width, 1)
    boxes = []
    for ranges, owner in tiles:
        (top, bottom), (left, right) = ranges[-2], ranges[-1]
        colour = COLOURS[owner % len(COLOURS)]
        boxes.append(
            f'<rect x="{left * scale:.1f}" y="{top * scale:.1f}" width="{(right - left) * scale:.1f}" '
            f'height="{(bottom - top) * scale:.1f}" fill="{colour}" fill-opacity="0.6" stroke="white">'
            f"<title>rank {owner}</title></rect>"
        )
    size = f'width="{width * scale:.0f}" height="{height * scale:.0f}"'
    return f"<div><p>{html.escape(title)}</p><svg {size} xmlns='http://www.w3.org/2000/svg'>{''.join(boxes)}</svg></div>"


def curve(values: Sequence[float], title: str) -> str:
    """A curve over the iterations."""
    finite = [value for value in values if np.isfinite(value)]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    points = " ".join(
        f"{10 + 220 * place / (len(values) - 1):.1f},{90 - 80 * (value - low) / span:.1f}"
        for place, value in enumerate(values)
        if np.isfinite(value)
    )
    return (
        f"<figure style='display:inline-block;margin:4px'><svg width='240' height='100'>"
        f"<polyline fill='none' stroke='{COLOURS[0]}' stroke-width='1.5' points='{points}'/></svg>"
        f"<figcaption>{html.escape(title)}: {values[0]:.4g} to {values[-1]:.4g}</figcaption></figure>"
    )


def picture(image: npt.NDArray[np.float32]) -> str:
    """The first image of a batch, or the middle slice of its first volume."""
    shown = image[0]
    while shown.ndim > 3:
        shown = shown[:, shown.shape[1] // 2]
    shown = shown[:, :: max(1, shown.shape[1] // 512), :: max(1, shown.shape[2] // 512)]
    if shown.shape[0] != 3:
        shown = shown[:1]
    low, high = (0.0, 1.0) if shown.min() >= -0.2 and 0.3 < shown.max() <= 1.2 else (float(shown.min()), float(shown.max()))
    pixels = np.clip((shown - low) / ((high - low) or 1.0) * 255 + 0.5, 0, 255).astype(np.uint8).transpose(1, 2, 0)
    data = base64.b64encode(png(pixels)).decode()
    return f"<img style='max-width:512px' src='data:image/png;base64,{data}'/>"


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    """A PNG of (height, width, 1 or 3) bytes."""
    height, width, channels = pixels.shape
    rows = np.concatenate([np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)], axis=1)
    file = io.BytesIO(b"")
    file.write(b"\x89PNG\r\n\x1a\n")
    header = struct.pack(">IIBBBBB", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    for name, content in ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes())), (b"IEND", b"")):
        file.write(struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content)))
    return file.getvalue()


def table(rows: Sequence[Sequence[str]]) -> str:
    """Names and values."""
    lines = (
        "".join(f"<td style='text-align:left'>{html.escape(cell)}</td>" for cell in row)
        for row in rows
    )
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"
