"""DistributedDataParallel on images: each rank has its share by a DistributedSampler."""

import os

import torch
import torch.distributed as dist
from images import load
from output import say
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

IMAGES, EPOCHS = 256, 2


def make_model() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10))


def train() -> None:
    local_rank = int(os.environ["LOCAL_RANK"])
    dist.init_process_group(backend="nccl", init_method="env://")
    device = torch.device("cuda", local_rank) if torch.cuda.is_available() else "cpu"
    dataset = load(IMAGES)
    sampler = DistributedSampler(dataset)
    loader = DataLoader(dataset, batch_size=16, sampler=sampler)
    torch.manual_seed(0)
    model = DistributedDataParallel(make_model().to(device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(EPOCHS):
        sampler.set_epoch(epoch)
        total = 0.0
        for images, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        say(f"Rank {dist.get_rank()}, epoch {epoch}: {total / len(loader)}")
    dist.destroy_process_group()


if __name__ == "__main__":
    train()
