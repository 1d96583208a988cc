"""DistributedDataParallel in processes that the program spawns."""

import os

import torch
import torch.distributed as dist
from output import say
from torch import multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def train(rank: int, world_size: int) -> None:
    dist.init_process_group("nccl", rank=rank, world_size=world_size)
    model = nn.Linear(4, 1)
    nn.init.constant_(model.weight, rank)
    nn.init.constant_(model.bias, rank)
    model = DistributedDataParallel(model)
    model(torch.full((1, 4), rank + 1.0)).sum().backward()
    gradient = model.module.weight.grad[0].tolist()
    say(f"Rank {rank}: {model.module.weight[0].tolist()} {gradient}")
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ.setdefault("MASTER_ADDR", "localhost")
    os.environ.setdefault("MASTER_PORT", "29500")
    mp.spawn(train, args=(2,), nprocs=2, join=True)
