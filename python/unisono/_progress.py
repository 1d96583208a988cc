"""Progress of a training: on a terminal, in lines, for programs and in TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import SupportsFloat

import torch.distributed as dist

from ._C import _Progress


class Progress:
    """Reports progress and rate of a training on rank 0: a bar with rate and time left on a
    terminal, else lines; lines of JSON; event files of TensorBoard, which need no TensorBoard here.

        with unisono.Progress(total=n_steps, tensorboard="runs/mnist") as progress:
            for images, labels in loader:
                ...
                progress.step({"loss": loss}, samples=len(images) * dist.get_world_size())

    Values are numbers or tensors of one element, of this rank: average them over the ranks first if
    needed. A failed write (a full disk, a closed pipe) is a warning, and the training continues.
    Ranks that don't report return at once. Not thread-safe.
    """

    def __init__(
        self,
        total: int = 0,
        *,
        start: int = 0,
        unit: str = "samples",
        title: str = "",
        format: str = "auto",
        interval: float = 5.0,
        fd: int = 1,
        json_file: str | os.PathLike[str] = "",
        tensorboard: str | os.PathLike[str] = "",
        record_every: int = 1,
        all_ranks: bool = False,
    ) -> None:
        """`total`: steps of the whole training, 0 if unknown; `start`: steps made before.
        `format` is auto (a bar on a terminal, else lines), lines, json or none. Lines go to the
        file descriptor `fd`, at least `interval` seconds apart. `json_file` gets a line of JSON,
        and the folder `tensorboard` an event, for every `record_every`-th step. With `all_ranks`
        every rank reports. The rank is that in the default process group, if there is one.

        Raises RuntimeError for invalid options, and for files that can't be written.
        """
        has_group = dist.is_available() and dist.is_initialized()
        self._core = _Progress(
            rank=dist.get_rank() if has_group else 0,
            world_size=dist.get_world_size() if has_group else 1,
            total=total,
            start=start,
            unit=unit,
            title=title,
            format=format,
            interval=timedelta(seconds=interval),
            fd=fd,
            json_file=os.fspath(json_file),
            tensorboard=os.fspath(tensorboard),
            record_every=record_every,
            all_ranks=all_ranks,
        )

    def step(self, values: Mapping[str, SupportsFloat] | None = None, samples: int = 0) -> None:
        """Reports a step. `samples`: its samples, of all ranks for a rate over all ranks."""
        self._core.step(_as_pairs(values), samples)

    def record(self, values: Mapping[str, SupportsFloat]) -> None:
        """Reports values without a step, such as the accuracy after an epoch."""
        self._core.record(_as_pairs(values))

    def set_title(self, title: str) -> None:
        """Sets the beginning of the following lines, such as "epoch 2/3"."""
        self._core.set_title(title)

    def print(self, line: str) -> None:
        """Prints a line above the bar."""
        self._core.print(line)

    def clear(self) -> None:
        """Removes the bar until the next step, for output of other ranks."""
        self._core.clear()

    @property
    def n_steps(self) -> int:
        """Number of steps of the training so far."""
        return self._core.n_steps()

    def finish(self) -> None:
        """Prints a last line with the mean rate. Later calls report nothing."""
        self._core.finish()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.finish()


def _as_pairs(values: Mapping[str, SupportsFloat] | None) -> list[tuple[str, float]]:
    return [(name, float(value)) for name, value in (values or {}).items()]
