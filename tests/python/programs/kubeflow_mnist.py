"""Data parallel training in the pods of a Kubeflow job, with a wrapper of the program's own.

The operator sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from ddp_images import make_model
from images import load
from output import say
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

IMAGES, BATCH, EPOCHS = 512, 128, 3


class FlattenedAverage(nn.Module):
    """Begins as rank 0, and averages all gradients of a step in one operation."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        for tensor in module.state_dict().values():
            dist.broadcast(tensor, 0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.module(x)

    def average(self) -> None:
        gradients = [parameter.grad for parameter in self.module.parameters()]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= dist.get_world_size()
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--modelpath", type=Path, required=True)
    options = parser.parse_args()
    dist.init_process_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    device = torch.device("cuda" if options.gpu else "cpu")

    torch.manual_seed(rank)
    model = FlattenedAverage(make_model().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    dataset = load(IMAGES)
    sampler = DistributedSampler(dataset, num_replicas=size, rank=rank)
    loader = DataLoader(dataset, batch_size=BATCH // size, sampler=sampler)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            model.average()
            optimizer.step()
            total += loss.item()
        loss = total / len(loader)
        say(f"Epoch {epoch} Loss {loss:.6f} Global batch size {BATCH} on {size} ranks")
    if rank == 0:
        name = "model_gpu.dat" if options.gpu else "model_cpu.dat"
        torch.save(model.module.state_dict(), options.modelpath / name)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
