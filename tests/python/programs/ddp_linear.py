"""DistributedDataParallel of one layer; rank 0 saves it, without the wrapper.

Takes its local rank from the command line, as old launchers give it, or from the environment.
"""

import argparse
import os

import torch
import torch.distributed as dist
from output import say
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS = 5


def batch(rank: int, step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(100 * rank + step)
    return torch.randn(20, 10, generator=generator), torch.randn(20, 10, generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser()
    default = int(os.environ.get("LOCAL_RANK", -1))
    parser.add_argument("--local-rank", "--local_rank", type=int, default=default)
    parser.add_argument("--save", required=True)
    options = parser.parse_args()
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", options.local_rank)
        torch.cuda.set_device(device)
    dist.init_process_group(backend="nccl")

    torch.manual_seed(dist.get_rank())  # The wrapper makes all ranks begin as rank 0.
    model = nn.Linear(10, 10).to(device)
    ids = [options.local_rank] if device.type == "cuda" else None
    model = DistributedDataParallel(model, device_ids=ids)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(STEPS):
        inputs, labels = (tensor.to(device) for tensor in batch(dist.get_rank(), step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), labels)
        loss.backward()
        optimizer.step()
    say(f"Rank {dist.get_rank()}, local {options.local_rank}: {loss.item()}")
    if dist.get_rank() == 0:
        torch.save(model.module.state_dict(), options.save)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
