"""A sampler for jobs that are stopped and resumed, also with another number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.distributed as dist
from torch.utils.data import Sampler

from ._C import _ResumableSampler, _SamplerState

_FIELDS = ("epoch", "n_consumed", "dataset_size", "seed", "shuffle")


class ResumableSampler(Sampler[int]):
    """Distributes a data set's indices over the ranks of a job, like torch's DistributedSampler,
    and resumes in the middle of an epoch with any number of ranks and any batch size.

    The training loop reports consumed samples with advance(). The rest of the epoch is distributed
    over the current ranks: each sample once. If fewer samples than ranks are left at the epoch's
    end, the first samples of the epoch fill the gap, or the rest is dropped (`drop_last`).

    All ranks consume equally many samples. Wrong arguments raise RuntimeError. Not thread-safe.
    """

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
    ) -> None:
        """Creates a sampler at the start of epoch 0. `num_replicas` and `rank` default to those of
        the default process group, or to a single rank without a group."""
        has_group = dist.is_available() and dist.is_initialized()
        if num_replicas is None:
            num_replicas = dist.get_world_size() if has_group else 1
        if rank is None:
            rank = dist.get_rank() if has_group else 0
        self._core = _ResumableSampler(len(dataset), num_replicas, rank, shuffle, seed, drop_last)

    @property
    def epoch(self) -> int:
        return self._core.epoch

    def set_epoch(self, epoch: int) -> None:
        """Moves to the start of the epoch. No effect if the sampler is in that epoch already."""
        self._core.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        """Yields this rank's remaining indices of the epoch. Does not consume them, because a
        loader's workers fetch indices ahead.

        Raises RuntimeError if advance() has reached the epoch's end without a set_epoch(). After
        load_state_dict() of an epoch's end, the first iteration is empty instead.
        """
        return iter(self._core.indices())

    def __len__(self) -> int:
        """Number of this rank's remaining indices of the epoch; also the length of a loader."""
        return self._core.num_samples()

    def advance(self, n_samples: int) -> None:
        """Marks the next `n_samples` of this rank as consumed, for example a batch, and as many on
        the other ranks. Raises RuntimeError if fewer are left."""
        self._core.advance(n_samples)

    def state_dict(self) -> dict[str, Any]:
        """Returns the position as numbers to save; equal on ranks that advanced equally far."""
        return {name: getattr(self._core.state, name) for name in _FIELDS}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Moves to the position of the state; its seed and shuffle replace those of the sampler.
        Raises RuntimeError for another data set size, or if it is not a sampler's state."""
        problem = ""
        if set(state_dict) != set(_FIELDS):
            problem = f"it has {sorted(map(str, state_dict))} instead of {sorted(_FIELDS)}"
        else:
            for name in _FIELDS:
                expected = bool if name == "shuffle" else int
                if type(state_dict[name]) is not expected:
                    problem = f"{name!r} is {state_dict[name]!r}, not of type {expected.__name__}"
        if problem:
            raise RuntimeError(
                "ResumableSampler: load_state_dict() needs a state from state_dict(); " + problem
            )
        self._core.load_state(_SamplerState(**state_dict))
