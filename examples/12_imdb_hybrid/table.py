"""The grid's results as a CSV file, which is whole at any time."""

from __future__ import annotations

import csv
import os
from pathlib import Path

from cells import Cell

MEASURED = ["reviews_per_s", "step_ms", "bubble", "peak_activation_mib"]
COLUMNS = ["ranks", "tasks", "parts", "batch", "chunks", *MEASURED, "reason", "settings"]
FAILED = "failed: "


def row_of(cell: Cell, settings: str, result: dict | None, reason: str = "") -> dict[str, str]:
    """A cell that was measured, or is blank for a reason."""
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


def read(path: Path) -> list[dict[str, str]]:
    """The rows of an earlier run; none where there was no such run."""
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


def write(path: Path, rows: list[dict[str, str]]) -> None:
    """Replaces the file: whoever is killed here leaves the old one."""
    new = path.with_name(path.name + ".new")
    with new.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
