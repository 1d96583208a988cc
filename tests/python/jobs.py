"""Starts the programs in `programs`, and others, under each launcher."""

from __future__ import annotations

import importlib.util
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs"
ALIAS = "gloo=unisono,nccl=unisono,tcp=unisono"
_PACKAGE = Path(importlib.util.find_spec("unisono").origin).parent
UNISONO = str(_PACKAGE / "bin" / "unisono")
STARTUP = str(_PACKAGE / "_startup")
_TORCH = [sys.executable, "-m"]


def with_alias(names: str) -> list[str]:
    """The arguments that follow run with the environment that `unisono alias` asks for."""
    return ["sh", "-c", 'eval "$("$0" alias "$1")" && shift && exec "$@"', UNISONO, names]


_WITH_ALIAS = with_alias(ALIAS)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def environment(**changes: str) -> dict[str, str]:
    """A user's environment. Gloo itself fails in it, so that nothing runs on Gloo unnoticed."""
    ours = ("UNISONO_", "PYTHON", "MASTER_", "RANK", "WORLD_SIZE", "LOCAL_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return kept | {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "no-such-interface"} | changes


def by_hand() -> list[str]:
    """One process."""
    return [*_WITH_ALIAS, sys.executable]


def unisono_run() -> list[str]:
    return [UNISONO, "run", "--backend-alias", ALIAS, "-n", "2", sys.executable]


def launch() -> list[str]:
    options = ["--nproc_per_node=2", "--nnodes=1", "--node_rank=0"]
    port = f"--master_port={free_port()}"
    return [*_WITH_ALIAS, *_TORCH, "torch.distributed.launch", *options, port]


def torchrun() -> list[str]:
    options = ["--standalone", "--nproc_per_node=2"]
    return [*_WITH_ALIAS, *_TORCH, "torch.distributed.run", *options]


def run(command: Sequence[str], **changes: str) -> subprocess.CompletedProcess:
    """How the command ended."""
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=environment(**changes)
    )


def lines_of(command: Sequence[str], **changes: str) -> list[str]:
    """What the command printed; it must succeed."""
    job = run(command, **changes)
    if job.returncode != 0:
        raise AssertionError(f"{command}: exit code {job.returncode}\n{job.stdout}\n{job.stderr}")
    return job.stdout.splitlines()


def program(launcher: Callable[[], list[str]], name: str, *arguments: str) -> list[str]:
    """What one of the programs printed."""
    command = [*launcher(), str(PROGRAMS / f"{name}.py"), *arguments]
    return lines_of(command, MASTER_PORT=str(free_port()))
