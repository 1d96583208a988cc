"""Tensors in memory that the ranks of a node share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist

from . import _C
from ._backend import _backend_of, _describe_backend


def backend_for(group: dist.ProcessGroup | None, who: str) -> _C.Backend:
    """Returns the group's Unisono backend, by default the default group's. `who`: the caller."""
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise ValueError(f"{who}: there is no process group: call init_process_group() before")
    backend = _backend_of(group)
    if backend is None:
        raise ValueError(
            f"{who}: the group's backend for CPU tensors is {_describe_backend(group)}: it is for "
            "groups of backend 'unisono' with its own engine"
        )
    return backend


def empty(
    shape: int | Sequence[int],
    dtype: torch.dtype | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """Returns a tensor of zeros in symmetric memory: the ranks of a node map it, and operations of
    the group's job use it in place, without a copy. A local call.

    The tensor outlives the group. A child of fork() can't access it. Raises RuntimeError if the
    arena (UNISONO_ARENA_BYTES) has no room.
    """
    sizes = [shape] if isinstance(shape, int) else list(shape)
    return _C._empty(backend_for(group, "unisono.empty"), sizes, dtype or torch.get_default_dtype())


def is_symmetric(tensor: torch.Tensor, group: dist.ProcessGroup | None = None) -> bool:
    """Returns whether the tensor is contiguous and in symmetric memory of the group's job."""
    return _C._is_symmetric(backend_for(group, "unisono.is_symmetric"), tensor)
