"""tutorial.py PORT [mpi]: sets the place itself, as tutorials do, and starts its two processes; or
is one of those that mpirun starts."""

import os
import sys
from multiprocessing import Process

import torch
import torch.distributed as dist
from output import say


def run(rank, size):
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    say(f"Rank {dist.get_rank()} of {dist.get_world_size()} has {tensor[0]!r}")
    dist.destroy_process_group()


def init_processes(rank, size, fn, backend="tcp"):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = sys.argv[1]
    dist.init_process_group(backend, rank=rank, world_size=size)
    fn(rank, size)


if __name__ == "__main__":
    if "mpi" in sys.argv:
        init_processes(0, 0, run, backend="mpi")
        sys.exit()
    size = 2
    processes = [Process(target=init_processes, args=(rank, size, run)) for rank in range(size)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))
