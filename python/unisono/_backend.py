"""Creation and shutdown of the backend "unisono" for torch.distributed."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from . import _C, _rendezvous
from ._C import Backend, _close_watches, _hold_waiting_threads

_CPU = torch.device("cpu")
_ENGINES = ("native", "gloo")

_leaving_process: int | None = None


class Options(_C.Options):
    """Options of a group: pg_options of init_process_group() and new_group().

    With engine="gloo" PyTorch's own Gloo runs the group's operations, to compare the two in one
    program.
    """

    def __init__(
        self,
        *,
        timeout: timedelta = dist.default_pg_timeout,
        algorithm: str = "auto",
        engine: str = "native",
    ) -> None:
        super().__init__(timeout=timeout, algorithm=algorithm)
        self.engine = engine

    @property
    def engine(self) -> str:
        return self._engine

    @engine.setter
    def engine(self, name: str) -> None:
        if name not in _ENGINES:
            raise ValueError(f"there is no engine {name!r}; there are: {', '.join(_ENGINES)}")
        self._engine = name


def _backend_of(group: dist.ProcessGroup) -> Backend | None:
    """Returns the group's backend for CPU tensors if it is Unisono's, else None."""
    try:
        backend = group._get_backend(_CPU)
    except RuntimeError:
        return None
    # TORCH_DISTRIBUTED_DEBUG=DETAIL wraps the backend.
    backend = getattr(backend, "wrapped_pg", backend)
    return backend if isinstance(backend, Backend) else None


def _describe_backend(group: dist.ProcessGroup) -> str:
    """Returns the name of a foreign group's backend for CPU tensors, for messages."""
    name = dist.get_backend(group)
    return f"{name!r} with engine 'gloo'" if name == "unisono" else repr(name)


def _parent_of(ranks: list[int]) -> Backend | None:
    """Returns the default group's backend, in which the ranks of a new group already met."""
    if not ranks or not dist.is_initialized():
        return None
    return _backend_of(dist.group.WORLD)


def _options_for(plan: Any, given: _C.Options) -> _C.Options:
    """Returns a copy of the options for one group: several groups may share the given ones."""
    is_set = given._timeout != dist.default_pg_timeout
    options = _C.Options(
        timeout=given._timeout if is_set else plan.timeout,
        algorithm=given.algorithm,
    )
    options.global_ranks_in_group = plan.global_ranks_in_group
    options.group_name = plan.group_id
    return options


def _create_gloo(plan: Any, options: _C.Options) -> dist.Backend:
    """Creates PyTorch's own Gloo with the same store. It gets contiguous tensors only."""
    if options.algorithm != "auto":
        raise ValueError(
            f"unisono.Options: algorithm={options.algorithm!r} is for the native engine; leave it "
            "out, or engine='gloo'"
        )
    if not dist.is_gloo_available():
        raise RuntimeError(
            "unisono.Options: engine='gloo' needs PyTorch's Gloo, and this PyTorch was built "
            "without it; leave it out, or install PyTorch's own wheel"
        )
    return _C._GlooBackend(
        dist.ProcessGroupGloo(
            plan.store, plan.group_rank, plan.group_size, timeout=options._timeout
        )
    )


def _create(plan: Any, given: dist.Backend.Options | None) -> dist.Backend:
    """Creates a group's backend. Called by torch.distributed."""
    _leave_all_at_end()
    # Options of another type belong to the backend of another device.
    chosen = given if isinstance(given, _C.Options) else Options()
    options = _options_for(plan, chosen)
    if getattr(chosen, "engine", "native") == "gloo":
        return _create_gloo(plan, options)
    parent = _parent_of(plan.global_ranks_in_group)
    return Backend(
        store=plan.store,
        rank=plan.group_rank,
        size=plan.group_size,
        timeout=options._timeout,
        options=options,
        parent_ranks=plan.global_ranks_in_group if parent else [],
        parent=parent,
    )


def _has_failed() -> bool:
    """Returns whether an exception ends the program or the multiprocessing process."""
    error = sys.exc_info()[1]
    if isinstance(error, SystemExit):
        return error.code not in (None, 0)
    return error is not None or hasattr(sys, "last_type")


def _leave_all_at_end() -> None:
    """Registers the exit handler, once per process: forked children skip atexit."""
    global _leaving_process
    if multiprocessing.parent_process() is not None and _leaving_process != os.getpid():
        _leaving_process = os.getpid()
        multiprocessing.util.Finalize(None, _leave_all, exitpriority=0)


def _leave_all() -> None:
    """Closes all groups while Python still runs: their threads may call back into it."""
    if not dist.is_initialized():
        return
    found = map(_backend_of, dist.distributed_c10d._world.pg_map)
    backends = [backend for backend in found if backend is not None]
    _hold_waiting_threads()
    Backend._leave_all(backends, _has_failed())


def init_process_group(
    backend: str = "unisono",
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: dist.Store | None = None,
    pg_options: Options | None = None,
) -> None:
    """torch.distributed.init_process_group() with backend "unisono"; needs no argument under
    `unisono run`, torchrun, Slurm's srun, mpirun and Kubeflow."""
    if init_method is None and store is None:
        init_method = "unisono://"
    dist.init_process_group(
        backend,
        init_method=init_method,
        timeout=timeout,
        world_size=world_size,
        rank=rank,
        store=store,
        pg_options=pg_options,
    )


dist.Backend.register_backend(
    "unisono",
    _create,
    extended_api=True,
    devices=["cpu", "cuda", torch._C._get_privateuse1_backend_name()],
)
_rendezvous.register()
atexit.register(_close_watches)
atexit.register(_leave_all)
