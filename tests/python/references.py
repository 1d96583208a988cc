"""What the programs in `programs` compute, by one process that does the work of all ranks."""

from __future__ import annotations

import sys
import unittest
from collections.abc import Sequence
from math import ceil
from pathlib import Path

import torch
import torch.nn.functional as F
from jobs import PROGRAMS
from torch import nn
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

sys.path.insert(0, str(PROGRAMS))
import ddp_images
import ddp_linear
import kubeflow_mnist
import mnist_partition
from images import FOLDER, load

torch.set_num_threads(1)
needs_images = unittest.skipUnless(
    FOLDER.exists(), f"no data set in {FOLDER}; IMAGES=FOLDER names another with MNIST's files"
)


class RandomStream:
    """A rank's random numbers: inside of a with block they are what torch takes."""

    def __init__(self) -> None:
        self.state = torch.get_rng_state()

    def __enter__(self) -> None:
        torch.set_rng_state(self.state)

    def __exit__(self, *_) -> None:
        self.state = torch.get_rng_state()


def average(gradients: Sequence[Sequence[torch.Tensor]]) -> list[torch.Tensor]:
    """The mean over ranks. Of more than two it would have to add in the canonical order."""
    first, second = gradients
    return [(a + b) / 2 for a, b in zip(first, second, strict=True)]


def step(optimizer: torch.optim.Optimizer, gradients: Sequence[torch.Tensor]) -> None:
    for parameter, gradient in zip(optimizer.param_groups[0]["params"], gradients, strict=True):
        parameter.grad = gradient
    optimizer.step()


def gradients_of(model: nn.Module, loss: torch.Tensor) -> Sequence[torch.Tensor]:
    return torch.autograd.grad(loss, list(model.parameters()))


def check_saved(file: Path, expected: dict[str, torch.Tensor]) -> None:
    """The file holds these tensors, to the bit."""
    saved = torch.load(file)
    assert list(saved) == list(expected), f"{file.name} holds {list(saved)}"
    for name, tensor in expected.items():
        assert torch.equal(saved[name], tensor), f"{file.name}: {name} differs"


def partitioned_mnist() -> list[list[float]]:
    """Each epoch's mean loss of each rank."""
    streams = [RandomStream() for _ in range(2)]
    loaders, models, optimizers = [], [], []
    for rank, stream in enumerate(streams):
        with stream:
            torch.manual_seed(1234)
            loaders.append(mnist_partition.make_loader(rank, 2))
            models.append(mnist_partition.Net())
        optimizers.append(torch.optim.SGD(models[rank].parameters(), lr=0.01, momentum=0.5))
    n_batches = ceil(len(loaders[0].dataset) / loaders[0].batch_size)
    epochs = []
    for _ in range(mnist_partition.EPOCHS):
        totals, iterators = [0.0, 0.0], []
        for stream, loader in zip(streams, loaders, strict=True):
            with stream:
                iterators.append(iter(loader))
        for _ in range(n_batches):
            gradients = []
            for rank, stream in enumerate(streams):
                with stream:
                    data, target = next(iterators[rank])
                    loss = F.nll_loss(models[rank](data), target)
                totals[rank] += loss.item()
                gradients.append(gradients_of(models[rank], loss))
            for optimizer in optimizers:
                step(optimizer, average(gradients))
        epochs.append([total / n_batches for total in totals])
    return epochs


def linear() -> tuple[list[float], dict[str, torch.Tensor]]:
    """The last loss of each rank, and the parameters at the end."""
    torch.manual_seed(0)
    model = nn.Linear(10, 10)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for number in range(ddp_linear.STEPS):
        losses = []
        for rank in range(2):
            inputs, labels = ddp_linear.batch(rank, number)
            losses.append(F.mse_loss(model(inputs), labels))
        step(optimizer, average([gradients_of(model, loss) for loss in losses]))
    return [loss.item() for loss in losses], model.state_dict()


def shared_images(
    n_images: int, batch: int, n_epochs: int, **sgd: float
) -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    """Each epoch's mean loss of each rank, whose shares a DistributedSampler makes; the parameters
    at the end."""
    torch.manual_seed(0)
    model = ddp_images.make_model()
    optimizer = torch.optim.SGD(model.parameters(), **sgd)
    dataset = load(n_images)
    samplers = [DistributedSampler(dataset, num_replicas=2, rank=rank) for rank in range(2)]
    loaders = [DataLoader(dataset, batch_size=batch, sampler=sampler) for sampler in samplers]
    epochs = []
    for epoch in range(n_epochs):
        for sampler in samplers:
            sampler.set_epoch(epoch)
        totals = [0.0, 0.0]
        for batches in zip(*loaders, strict=True):
            losses = [F.cross_entropy(model(images), labels) for images, labels in batches]
            totals = [total + loss.item() for total, loss in zip(totals, losses, strict=True)]
            step(optimizer, average([gradients_of(model, loss) for loss in losses]))
        epochs.append([total / len(loaders[0]) for total in totals])
    return epochs, model.state_dict()


def sampled_images() -> list[list[float]]:
    return shared_images(ddp_images.IMAGES, 16, ddp_images.EPOCHS, lr=0.05)[0]


def kubeflow() -> tuple[list[list[float]], dict[str, torch.Tensor]]:
    return shared_images(
        kubeflow_mnist.IMAGES,
        kubeflow_mnist.BATCH // 2,
        kubeflow_mnist.EPOCHS,
        lr=0.01,
        momentum=0.5,
    )
