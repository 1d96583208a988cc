"""Starts a program's processes, as tutorials do by hand; under a launcher it is one of them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable

import torch._dynamo  # noqa: F401 - Here once for all processes: optimizers need it.
import torch.distributed as dist
from torch.multiprocessing import Process

Body = Callable[[int, int], None]


def init_processes(rank: int, size: int, body: Body, backend: str, init_method: str) -> None:
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29500")
    dist.init_process_group(backend, init_method=init_method, rank=rank, world_size=size)
    body(rank, size)
    dist.destroy_process_group()


def run_processes(size: int, body: Body, backend: str, init_method: str) -> None:
    processes = []
    for rank in range(size):
        arguments = (rank, size, body, backend, init_method)
        process = Process(target=init_processes, args=arguments)
        process.start()
        processes.append(process)
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit(1)


def start(body: Body) -> None:
    """Runs body(rank, size) on each rank, with every backend and number of ranks asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", nargs="+", default=["tcp"])
    parser.add_argument("--init-method", default="env://")
    parser.add_argument("--size", nargs="+", type=int, default=[2])
    options = parser.parse_args()
    if "RANK" in os.environ:
        rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        init_processes(rank, size, body, options.backend[0], options.init_method)
        return
    for backend in options.backend:
        for size in options.size:
            run_processes(size, body, backend, options.init_method)
