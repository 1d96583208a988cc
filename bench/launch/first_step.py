"""first_step.py BACKEND START: two workers that make one step of training and say when it was done.

Where a launcher started it, it is one of them; else it starts them, twice, and says when it did.
"""

import multiprocessing
import os
import socket
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

BACKEND, START = sys.argv[1:]
if BACKEND == "unisono":
    import unisono

N_WORKERS = 2


def say(what):
    # Uses one write, which output of the other worker does not interrupt.
    os.write(1, f"{what} {time.monotonic()}\n".encode())


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def train():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(256, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(8, 256)).sum().backward()
    optimizer.step()
    say("step")
    dist.destroy_process_group()


def worker(rank, port):
    if BACKEND == "unisono":
        unisono.init_process_group()
    else:
        torch.set_num_threads(1)
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        dist.init_process_group(BACKEND, rank=rank, world_size=N_WORKERS)
    train()


def start_workers():
    start = torch.multiprocessing.start_processes
    if BACKEND == "unisono":
        start = unisono.spawn
    start(worker, (free_port(),), nprocs=N_WORKERS, start_method=START)


def main():
    if START == "launcher":
        begin = unisono.init_process_group if BACKEND == "unisono" else dist.init_process_group
        begin(BACKEND)
        train()
        return
    # Preloading is the purpose of a fork server.
    multiprocessing.set_forkserver_preload(["torch.distributed", BACKEND])
    for _ in range(2):
        say("call")
        start_workers()


if __name__ == "__main__":
    main()
