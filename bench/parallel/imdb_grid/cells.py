"""The cells of the grid: layouts, batches and chunks, the impossible ones, and the CSV file."""

from __future__ import annotations

import csv
import itertools
import os
from dataclasses import dataclass
from pathlib import Path

# Stages on each rank in these schedules. In other schedules a rank has one stage.
STAGES_PER_RANK = {
    "interleaved_1f1b": 2,
    "v_min": 2,
    "v_half": 2,
    "v_zb": 2,
    "dual_pipe_v": 2,
}
# The modules before and after the layers.
ENCODER_AND_DECODER = 2
MEASURED = ["reviews_per_s", "step_ms", "bubble", "peak_activation_mib"]
COLUMNS = ["ranks", "tasks", "parts", "batch", "chunks", *MEASURED, "reason", "settings"]
FAILED = "failed: "


@dataclass(frozen=True)
class Cell:
    tasks: int  # replicas that train side by side
    parts: int  # ranks that a replica is divided among
    batch: int  # reviews of each replica
    chunks: int

    @property
    def ranks(self) -> int:
        return self.tasks * self.parts

    def __str__(self) -> str:
        return (
            f"{self.tasks} x {self.parts} ranks, batch {self.batch} in "
            f"{self.chunks} chunk{'' if self.chunks == 1 else 's'}"
        )


@dataclass(frozen=True)
class Limits:
    ranks: tuple[int, ...]  # numbers of ranks that are compared
    layers: int
    schedule: str


def divisors(numbers: tuple[int, ...]) -> list[int]:
    """Returns the divisors of any of the numbers."""
    return [d for d in range(1, max(numbers) + 1) if any(n % d == 0 for n in numbers)]


def all_cells(
    tasks: list[int], parts: list[int], batches: list[int], chunks: list[int]
) -> list[Cell]:
    return [Cell(*numbers) for numbers in itertools.product(tasks, parts, batches, chunks)]


def why_impossible(cell: Cell, limits: Limits) -> str | None:
    """Returns the reason, or None for a cell that can be measured."""
    if cell.ranks not in limits.ranks:
        wanted = " or ".join(str(number) for number in limits.ranks)
        return f"{cell.tasks} x {cell.parts} ranks are {cell.ranks}, not {wanted}"
    if cell.parts == 1 and cell.chunks > 1:
        return "one part is no pipeline, which chunks could fill"
    stages = cell.parts * STAGES_PER_RANK.get(limits.schedule, 1)
    modules = limits.layers + ENCODER_AND_DECODER
    if stages > modules:
        return f"{modules} modules can't be cut into {stages} stages"
    if cell.batch % cell.chunks:
        return f"a batch of {cell.batch} can't be divided into {cell.chunks} equal chunks"
    return None


def row_of(cell: Cell, settings: str, result: dict | None, reason: str = "") -> dict[str, str]:
    """Returns the row of a cell that was measured, or that is blank for a reason."""
    numbers = {name: f"{result[name]:g}" if result else "" for name in MEASURED}
    return {
        "ranks": str(cell.ranks),
        "tasks": str(cell.tasks),
        "parts": str(cell.parts),
        "batch": str(cell.batch),
        "chunks": str(cell.chunks),
        **numbers,
        "reason": reason,
        "settings": settings,
    }


def cell_of(row: dict[str, str]) -> Cell:
    return Cell(*(int(row[name]) for name in ("tasks", "parts", "batch", "chunks")))


def is_failed(row: dict[str, str]) -> bool:
    return row["reason"].startswith(FAILED)


def read_rows(path: Path) -> list[dict[str, str]]:
    """Returns the rows of an earlier run, or no rows without a file."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != COLUMNS:
            raise ValueError(f"{path} is no grid's table: its first line is not {COLUMNS}")
        rows = list(reader)
    for number, row in enumerate(rows, start=2):
        try:
            cell_of(row)
        except (TypeError, ValueError):
            raise ValueError(f"{path}: line {number} has no cell of a grid") from None
    return rows


def write_rows(path: Path, rows: list[dict[str, str]]) -> None:
    """Replaces the file at once: a process that is killed here leaves the old file."""
    new = path.with_name(path.name + ".new")
    with new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
