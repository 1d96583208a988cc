#!/usr/bin/env python3
"""Draws a value of a training, step by step, from the JSON lines of unisono::Progress: an SVG.

    plot_loss.py steps.json > loss.svg
    plot_loss.py "one.json=1 rank" "two.json=2 ranks" --title "Two ranks" --output loss.svg

Each curve is the mean of neighbouring steps, on a band from their least to their greatest value. A
file with several ranks has a curve of each. `--value` names another value than the loss.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 380
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 44  # around the plot
COLORS = ("#2f6db5", "#c7592b", "#3f8f4f", "#8a5aa8", "#a8872d", "#4a8f94")


class PlotError(Exception):
    """What is wrong with a file."""


@dataclass
class Point:
    step: float
    mean: float
    least: float
    greatest: float


def parse(text: str, name: str, value: str) -> dict[int, list[tuple[int, float]]]:
    """By rank: step and value, in order of steps. What is written twice counts the second time, as
    after a training that went on from a checkpoint; what is not finite is left out."""
    found: dict[int, dict[int, float]] = {}
    # What stands behind the last end of a line is left out: a process was killed while it wrote.
    for number, line in enumerate(text.split("\n")[:-1], 1):
        try:
            record = json.loads(line)
            rank, step, values = int(record["rank"]), int(record["step"]), record["values"]
            if value in values and math.isfinite(float(values[value])):
                found.setdefault(rank, {})[step] = float(values[value])
        except (ValueError, TypeError, KeyError) as error:
            raise PlotError(f"{name}:{number}: no line of unisono::Progress: {error}") from None
    if not found:
        raise PlotError(f'{name}: no line has a finite value "{value}"')
    return {rank: sorted(found[rank].items()) for rank in sorted(found)}


def summarize(steps: list[tuple[int, float]], n_points: int) -> list[Point]:
    """At most n_points, of equally many steps each but the last."""
    length = math.ceil(len(steps) / n_points)
    points = []
    for begin in range(0, len(steps), length):
        part = steps[begin : begin + length]
        values = [value for _, value in part]
        step = sum(step for step, _ in part) / len(part)
        points.append(Point(step, sum(values) / len(values), min(values), max(values)))
    return points


def ticks(low: float, high: float, n_wanted: int) -> list[float]:
    """Round numbers from low to high, about so many."""
    rough = (high - low) / n_wanted
    power = 10.0 ** math.floor(math.log10(rough))
    width = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
    first, last = math.ceil(low / width - 1e-9), math.floor(high / width + 1e-9)
    return [i * width for i in range(first, last + 1)]


def draw(curves: list[tuple[str, list[Point]]], title: str, value: str) -> str:
    """The SVG; a legend where there are several curves."""
    points = [point for _, curve in curves for point in curve]
    left, right = 0.0, max(max(point.step for point in points), 1.0)
    low, high = min(point.least for point in points), max(point.greatest for point in points)
    if low >= 0:
        low = 0.0  # so that heights can be compared
    if high <= low:
        high = low + 1

    def x(step: float) -> float:
        return round(LEFT + (step - left) / (right - left) * (WIDTH - LEFT - RIGHT), 1)

    def y(height: float) -> float:
        return round(HEIGHT - BOTTOM - (height - low) / (high - low) * (HEIGHT - TOP - BOTTOM), 1)

    def label(at_x: float, at_y: float, anchor: str, words: str, more: str = "") -> str:
        return f'<text x="{at_x}" y="{at_y}" text-anchor="{anchor}"{more}>{escape(words)}</text>'

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12" fill="#222222">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        label(LEFT, 24, "start", title, ' font-size="15"'),
        label(WIDTH - RIGHT, HEIGHT - 10, "end", "step"),
        label(LEFT - 8, TOP - 8, "end", value),
    ]
    for tick in ticks(low, high, 5):
        parts.append(f'<path d="M{LEFT} {y(tick)}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        parts.append(label(LEFT - 8, y(tick) + 4, "end", f"{tick:g}"))
    for tick in ticks(left, right, 8):
        parts.append(label(x(tick), HEIGHT - BOTTOM + 18, "middle", f"{tick:g}"))
    for number, (name, curve) in enumerate(curves):
        color = COLORS[number % len(COLORS)]
        top = [f"{x(point.step)},{y(point.greatest)}" for point in curve]
        bottom = [f"{x(point.step)},{y(point.least)}" for point in reversed(curve)]
        line = " ".join(f"{x(point.step)},{y(point.mean)}" for point in curve)
        parts.append(f'<polygon points="{" ".join(top + bottom)}" fill="{color}" opacity="0.2"/>')
        parts.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        if len(curves) > 1:
            at_y = TOP + 14 + 18 * number
            more = f' fill="{color}" font-weight="bold"'
            parts.append(label(WIDTH - RIGHT - 8, at_y, "end", name, more))
    return "\n".join([*parts, "</svg>", ""])


def read_curves(words: list[str], value: str, n_points: int) -> list[tuple[str, list[Point]]]:
    """Of `file` or `file=name`, whose several ranks are named, too."""
    curves = []
    for word in words:
        path, _, name = word.partition("=")
        try:
            text = Path(path).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise PlotError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        by_rank = parse(text, path, value)
        for rank, steps in by_rank.items():
            who = f"{name or path} rank {rank}" if len(by_rank) > 1 else name or path
            curves.append((who, summarize(steps, n_points)))
    return curves


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", metavar="FILE[=NAME]")
    parser.add_argument("--value", default="loss", help="what is drawn (default: loss)")
    parser.add_argument("--title", help="above the plot (default: the value's name)")
    parser.add_argument("--points", type=int, default=150, help="of a curve (default: 150)")
    parser.add_argument("--output", type=Path, help="a file instead of stdout")
    options = parser.parse_args()
    if options.points < 1:
        parser.error("--points: at least 1")
    try:
        curves = read_curves(options.files, options.value, options.points)
        image = draw(curves, options.title or options.value, options.value)
        if options.output:
            options.output.write_text(image)
        else:
            sys.stdout.write(image)
    except PlotError as error:
        print(f"plot_loss: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"plot_loss: {error.filename}: {error.strerror}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
