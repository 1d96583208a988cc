"""How far a training is: on a terminal, in lines, for programs and in TensorBoard."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import SupportsFloat

import torch.distributed as dist

from ._C import _Progress


class Progress:
    """Says how far a training is, and how fast, on rank 0: a bar with rate and time left on a
    terminal, else lines; lines of JSON; event files of TensorBoard, which need no TensorBoard here.

        with unisono.Progress(total=n_steps, tensorboard="runs/mnist") as progress:
            for images, labels in loader:
                ...
                progress.step({"loss": loss}, samples=len(images) * dist.get_world_size())

    Values are this rank's, numbers or tensors of one element: average them first where they are to
    be all ranks'. What can't be written any more (a full disk, a reader that is gone) is a warning,
    and the training goes on. Ranks that don't report return at once. One thread at a time.
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
        """`total`: steps of the whole training, 0 if it is not known; `start`: those made before.
        `format` is auto (a bar on a terminal, else lines), lines, json or none. Lines go to the
        file descriptor `fd`, at least `interval` seconds apart. `json_file` gets a line of JSON,
        and the folder `tensorboard` an event, for every `record_every`-th step. With `all_ranks`
        every rank reports. The rank is that in the default process group, if there is one.

        Raises RuntimeError for options that make no sense, and files that can't be written.
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
        """A step was made, with so many samples; of all ranks, if the rate is to be."""
        self._core.step(_as_pairs(values), samples)

    def record(self, values: Mapping[str, SupportsFloat]) -> None:
        """Values of the training as it is, such as the accuracy after an epoch."""
        self._core.record(_as_pairs(values))

    def set_title(self, title: str) -> None:
        """What lines begin with from now on, such as "epoch 2/3"."""
        self._core.set_title(title)

    def print(self, line: str) -> None:
        """A line of your own, which does not disturb the bar."""
        self._core.print(line)

    def clear(self) -> None:
        """Takes the bar away until the next step: where other ranks print."""
        self._core.clear()

    @property
    def n_steps(self) -> int:
        """Steps of the training so far."""
        return self._core.n_steps()

    def finish(self) -> None:
        """Shows a last line with the mean rate. What comes later is not reported."""
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
