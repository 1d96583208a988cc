"""Data parallel training of which rank 1 hangs after a few steps, unless it was started again."""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import unisono

N_STEPS = 6
HANGS_AT = 3


def main() -> None:
    unisono.init_process_group()
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    for step in range(N_STEPS):
        is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
        if step == HANGS_AT and dist.get_rank() == 1 and is_first:
            print("hangs", flush=True)
            while True:
                time.sleep(1)
        model(torch.ones(2, 4)).sum().backward()
    sys.stdout.write(f"rank {dist.get_rank()} is done\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
