"""Throughput over batch size, a line for each layout, as SVG."""

from __future__ import annotations

import math
from html import escape

from cells import Cell

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 50, 60
COLOURS = ["#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"]
GRID = "#dddddd"


def kind_of(tasks: int, parts: int) -> str:
    if parts == 1:
        return "data parallel"
    return "model parallel" if tasks == 1 else "hybrid"


def round_up(value: float) -> float:
    """Returns the next number that is 1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


class Axes:
    """Maps batches and throughputs to places in the picture."""

    def __init__(self, batches: list[int], highest: float):
        self.batches = batches
        self.tick = round_up(highest / 5)
        self.top = self.tick * math.ceil(highest / self.tick)

    def x(self, batch: int) -> float:
        steps = max(1, len(self.batches) - 1)
        return LEFT + (WIDTH - LEFT - RIGHT) * self.batches.index(batch) / steps

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.top


def text(x: float, y: float, words: str, anchor: str = "start", **more: str) -> str:
    attributes = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in more.items())
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attributes}>{escape(words)}</text>'
    )


def frame(axes: Axes, title: str) -> list[str]:
    lines = [text(LEFT, 28, title, font_size="15", font_weight="bold")]
    for number in range(round(axes.top / axes.tick) + 1):
        value = number * axes.tick
        y = axes.y(value)
        lines.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        lines.append(text(LEFT - 8, y + 4, f"{value:g}", "end"))
    for batch in axes.batches:
        lines.append(text(axes.x(batch), HEIGHT - BOTTOM + 20, str(batch), "middle"))
    middle = (LEFT + WIDTH - RIGHT) / 2
    lines.append(text(middle, HEIGHT - BOTTOM + 42, "batch of each replica", "middle"))
    turn = f"rotate(-90 18 {HEIGHT / 2:.0f})"
    lines.append(text(18, HEIGHT / 2, "reviews per second", "middle", transform=turn))
    return lines


def curve(axes: Axes, points: dict[int, float], colour: str, is_dashed: bool) -> list[str]:
    """Returns a line through the batches that have a point, with a gap at a missing one."""
    lines, path = [], ""
    previous_is_there = False
    for batch in axes.batches:
        if batch in points:
            place = f"{axes.x(batch):.1f} {axes.y(points[batch]):.1f}"
            path += f"{'L' if previous_is_there else 'M'}{place}"
            if not is_dashed:
                x, y = place.split()
                lines.append(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"/>')
        previous_is_there = batch in points
    dashes = ' stroke-dasharray="5 4"' if is_dashed else ""
    return [f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="2"{dashes}/>', *lines]


def draw(title: str, throughputs: dict[Cell, float]) -> str:
    """Draws a line for each layout, with the best number of chunks; dashed, one chunk."""
    batches = sorted({cell.batch for cell in throughputs})
    axes = Axes(batches, max(throughputs.values()))
    lines = frame(axes, title)
    layouts = sorted({(cell.tasks, cell.parts) for cell in throughputs}, reverse=True)
    for number, (tasks, parts) in enumerate(layouts):
        colour = COLOURS[number % len(COLOURS)]
        best: dict[int, tuple[float, int]] = {}
        naive: dict[int, float] = {}
        for cell, value in throughputs.items():
            if (cell.tasks, cell.parts) == (tasks, parts):
                best[cell.batch] = max(best.get(cell.batch, (0, 0)), (value, cell.chunks))
                if cell.chunks == 1:
                    naive[cell.batch] = value
        if parts > 1:
            lines += curve(axes, naive, colour, is_dashed=True)
        lines += curve(axes, {b: value for b, (value, _) in best.items()}, colour, is_dashed=False)
        for batch, (value, chunks) in best.items() if parts > 1 else []:
            place = (axes.x(batch) + 6, axes.y(value) - 6)
            lines.append(text(*place, str(chunks), font_size="11", fill=colour))
        y = TOP + 24 * number
        x = WIDTH - RIGHT + 20
        lines.append(f'<path d="M{x} {y}h22" stroke="{colour}" stroke-width="3"/>')
        lines.append(text(x + 30, y + 4, f"{tasks} x {parts}: {kind_of(tasks, parts)}"))
    y = TOP + 24 * len(layouts) + 8
    for words in ("tasks x parts; numbers:", "the best count of chunks;", "dashed: one chunk"):
        lines.append(text(WIDTH - RIGHT + 20, y, words, font_size="12", fill="#555555"))
        y += 16
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="13">'
    )
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *lines, "</svg>\n"])
