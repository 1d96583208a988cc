"""A small model and its data, the same in every process, and how parallel training compares."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch._dynamo  # Here once for all ranks: optimizers need it.
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

N_STEPS = 4
N_ROWS = 24
N_IN, N_OUT = 12, 6


def model(seed: int = 3) -> nn.Sequential:
    """Layers of sizes that few worlds divide."""
    torch.manual_seed(seed)
    layers = [nn.Linear(N_IN, 18), nn.Tanh(), nn.Linear(18, 7), nn.Tanh(), nn.Linear(7, N_OUT)]
    return nn.Sequential(*layers).double()


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The inputs and targets of all ranks in a step."""
    generator = torch.Generator().manual_seed(step)
    inputs = torch.randn(N_ROWS, N_IN, generator=generator, dtype=torch.float64)
    targets = torch.randn(N_ROWS, N_OUT, generator=generator, dtype=torch.float64)
    return inputs, targets


def share(tensor: torch.Tensor, part: int, n_parts: int) -> torch.Tensor:
    return tensor.chunk(n_parts)[part]


def train(
    module: nn.Module,
    optimizer: torch.optim.Optimizer,
    part: int = 0,
    n_parts: int = 1,
    steps: Iterable[int] = range(N_STEPS),
) -> list[torch.Tensor]:
    """Trains on one part of each step's batch; the losses on it."""
    losses = []
    for step in steps:
        inputs, targets = (share(tensor, part, n_parts) for tensor in batch(step))
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(module(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(module.parameters(), lr=0.01)


def trained() -> tuple[nn.Module, list[torch.Tensor]]:
    """What one process comes to with the whole batch: the model and the losses."""
    module = model()
    return module, train(module, adam(module))


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def check_close(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    torch.testing.assert_close(
        whole(actual), whole(expected), rtol=1e-9, atol=1e-12, msg=lambda text: f"{what}: {text}"
    )


def check_parameters(actual: nn.Module, expected: nn.Module) -> None:
    theirs = dict(expected.named_parameters())
    ours = dict(actual.named_parameters())
    assert ours.keys() == theirs.keys(), f"{ours.keys()} instead of {theirs.keys()}"
    for name, parameter in ours.items():
        check_close(parameter.detach(), theirs[name].detach(), name)


def check_losses(actual: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """The mean of the ranks' losses is that of the whole batch."""
    means = torch.stack([whole(loss) for loss in actual])
    dist.all_reduce(means, dist.ReduceOp.AVG)
    check_close(means, torch.stack(expected), "losses")


def bits(module: nn.Module) -> bytes:
    """The parameters' bytes."""
    parameters = [whole(parameter.detach()).flatten() for parameter in module.parameters()]
    return torch.cat(parameters).numpy().tobytes()
