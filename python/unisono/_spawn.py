"""Ranks as processes of a Python program."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing

from . import _rendezvous
from ._C import Store

_HOST = "127.0.0.1"
_SECONDS_TO_END = 30.0


def _environment(rank: int, n_ranks: int, port: int) -> dict[str, str]:
    """Returns the variables that `unisono run` sets, without those of the parent's launcher."""
    return {
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(port),
        "RANK": str(rank),
        "WORLD_SIZE": str(n_ranks),
        "LOCAL_RANK": str(rank),
        "LOCAL_WORLD_SIZE": str(n_ranks),
        "GROUP_RANK": "0",
        "GROUP_WORLD_SIZE": "1",
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "ROLE_WORLD_SIZE": str(n_ranks),
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }


def _end_with(rank: int, parent: Any) -> None:
    """Kills a rank that continues after its parent has ended and torch has interrupted it."""
    parent.join()
    time.sleep(_SECONDS_TO_END)
    line = (
        f"unisono.spawn: SIGKILL for rank {rank}, which had not ended {_SECONDS_TO_END:g} s after "
        "the process that started it\n"
    )
    # Bypasses sys.stderr, because a hung rank may hold the lock of sys.stderr. Skips the message if
    # the write would block.
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 0)[1]:
            os.write(2, line.encode())
    os.kill(os.getpid(), signal.SIGKILL)


def _run_rank(
    rank: int, fn: Callable[..., object], args: tuple[Any, ...], n_ranks: int, port: int
) -> None:
    """Calls fn(rank, *args) in the rank's process, with the environment of a rank."""
    parent = multiprocessing.parent_process()
    threading.Thread(target=_end_with, args=(rank, parent), daemon=True).start()
    os.environ.update(_environment(rank, n_ranks, port))
    _rendezvous.spawned_port = str(port)
    if "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // n_ranks))
    fn(rank, *args)


def spawn(
    fn: Callable[..., object],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> torch.multiprocessing.ProcessContext | None:
    """Starts the ranks of a job on this machine by torch.multiprocessing.spawn().

    Runs fn(rank, *args) in `nprocs` new processes. There, init_process_group("unisono") needs no
    further argument. The first rank that fails ends the others, and its error is raised as
    torch.multiprocessing.ProcessRaisedException, with its traceback, or ProcessExitedException.

    With join=False it returns torch's context at once; call its join() to wait. The ranks can meet
    as long as the context lives. Ranks end with this process, however it ends. The ranks share this
    process's cores, unless OMP_NUM_THREADS is set.

    Raises TypeError if args is not a tuple or list, ValueError for fewer than one process. `fn`
    must be importable by its module and name, and a script must call spawn() under
    `if __name__ == "__main__":`, because the processes import it.
    """
    if not isinstance(args, (tuple, list)):
        raise TypeError(
            f"unisono.spawn: args must be a tuple of what fn takes after the rank, not {args!r} of "
            f"type {type(args).__name__}; for a single one write args=(value,), with the comma"
        )
    if nprocs < 1:
        raise ValueError(f"unisono.spawn: nprocs={nprocs}, but a job has at least one process")
    # A plain store, because torch's own clients connect to this store as well. Bound to loopback,
    # so other machines cannot connect.
    store = Store(_HOST, 0, is_master=True, secret="", tls=False)
    context = torch.multiprocessing.start_processes(
        _run_rank, (fn, tuple(args), nprocs, store.port), nprocs, join, daemon, start_method
    )
    if context is not None:
        context.store = store
    return context
