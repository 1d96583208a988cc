"""Synchronous SGD by hand: each rank trains on its part, and the gradients are averaged."""

from __future__ import annotations

from math import ceil
from random import Random

import torch
import torch.distributed as dist
import torch.nn.functional as F
from images import load
from output import say
from start import start
from torch import nn

IMAGES, BATCH, EPOCHS = 512, 128, 2


class Partition:
    def __init__(self, data, index: list[int]) -> None:
        self.data = data
        self.index = index

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, position: int):
        return self.data[self.index[position]]


class DataPartitioner:
    """Shuffled parts of the data, of the given sizes."""

    def __init__(self, data, sizes=(0.7, 0.2, 0.1), seed: int = 1234) -> None:
        self.data = data
        indexes = list(range(len(data)))
        Random(seed).shuffle(indexes)
        self.partitions = []
        for size in sizes:
            length = int(size * len(data))
            self.partitions.append(indexes[:length])
            indexes = indexes[length:]

    def use(self, number: int) -> Partition:
        return Partition(self.data, self.partitions[number])


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.drop(self.conv2(x)), 2))
        x = F.dropout(F.relu(self.fc1(x.flatten(1))), training=self.training)
        return F.log_softmax(self.fc2(x), dim=1)


def make_loader(rank: int, size: int) -> torch.utils.data.DataLoader:
    part = DataPartitioner(load(IMAGES), [1 / size] * size).use(rank)
    return torch.utils.data.DataLoader(part, batch_size=BATCH // size, shuffle=True)


def partition_dataset() -> torch.utils.data.DataLoader:
    return make_loader(dist.get_rank(), dist.get_world_size())


def average_gradients(model: nn.Module) -> None:
    size = float(dist.get_world_size())
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.data, op=dist.ReduceOp.SUM)
        parameter.grad.data /= size


def run(rank: int, size: int) -> None:
    torch.manual_seed(1234)
    train_set = partition_dataset()
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    num_batches = ceil(len(train_set.dataset) / train_set.batch_size)
    for epoch in range(EPOCHS):
        epoch_loss = 0.0
        for data, target in train_set:
            optimizer.zero_grad()
            loss = F.nll_loss(model(data), target)
            epoch_loss += loss.item()
            loss.backward()
            average_gradients(model)
            optimizer.step()
        say(f"Rank  {dist.get_rank()} , epoch  {epoch} :  {epoch_loss / num_batches}")


if __name__ == "__main__":
    start(run)
