"""A sampler whose job can be stopped, and gone on with by another number of ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.distributed as dist
from torch.utils.data import Sampler

from ._C import _ResumableSampler, _SamplerState

_FIELDS = ("epoch", "n_consumed", "dataset_size", "seed", "shuffle")


class ResumableSampler(Sampler[int]):
    """Deals a data set's indices to the ranks of a job, as DistributedSampler of torch does, and
    goes on in the middle of an epoch with any number of ranks and any size of batches.

    The training loop says with advance() what it has consumed. What is left of the epoch is dealt
    to the ranks that there are; no sample twice, and none left out, but at the epoch's end, where
    fewer are left than there are ranks: the first ones of the epoch fill them up, or with
    `drop_last` they are left out.

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
        """The sampler at the start of epoch 0. Without `num_replicas` and `rank` those of the
        default process group count, or one rank where there is none."""
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
        """Goes to the start of the epoch; in that epoch already, it stays where it is."""
        self._core.set_epoch(epoch)

    def __iter__(self) -> Iterator[int]:
        """What this rank still gets of the epoch. It consumes nothing, as a loader's workers take
        indices ahead.

        Raises RuntimeError where advance() has come to the epoch's end without a set_epoch(); once
        after load_state_dict() of an epoch's end it is empty instead.
        """
        return iter(self._core.indices())

    def __len__(self) -> int:
        """Indices that this rank still gets of the epoch: a loader's length is that of the rest."""
        return self._core.num_samples()

    def advance(self, n_samples: int) -> None:
        """This rank has consumed its next `n_samples`, the length of a batch say, and the other
        ranks as many of theirs. Raises RuntimeError if so many are not left."""
        self._core.advance(n_samples)

    def state_dict(self) -> dict[str, Any]:
        """Where the job is: numbers to save, equal on all ranks that have advanced equally far."""
        return {name: getattr(self._core.state, name) for name in _FIELDS}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Goes to where the job was whose state it is; the state's seed and shuffle count from now
        on. Raises RuntimeError if it is of a data set of another size, or of no sampler."""
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
                "ResumableSampler: load_state_dict() needs what state_dict() has returned; "
                + problem
            )
        self._core.load_state(_SamplerState(**state_dict))
