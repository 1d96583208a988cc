"""The cells of the grid: layouts, batches and chunks, and which of them can't be."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

# Stages that a rank has in these schedules; in the others, one.
STAGES_PER_RANK = {
    "interleaved_1f1b": 2,
    "v_min": 2,
    "v_half": 2,
    "v_zb": 2,
    "dual_pipe_v": 2,
}
# What stands before and behind the layers.
ENCODER_AND_DECODER = 2


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
    """All that divide one of the numbers."""
    return [d for d in range(1, max(numbers) + 1) if any(n % d == 0 for n in numbers)]


def all_cells(
    tasks: list[int], parts: list[int], batches: list[int], chunks: list[int]
) -> list[Cell]:
    return [Cell(*numbers) for numbers in itertools.product(tasks, parts, batches, chunks)]


def why_impossible(cell: Cell, limits: Limits) -> str | None:
    """A reason, or None for a cell that can be measured."""
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
