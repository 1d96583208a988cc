"""A model for DistributedDataParallel with several buckets, and what its tests share."""

import torch
import torch._dynamo  # Here once for all ranks: optimizers need it.
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono

WIDTH = 300


class Net(nn.Module):
    """Has several buckets, and a layer that only some ranks use in some steps, if any may."""

    def __init__(self, has_rare_layer: bool) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.rare = nn.Linear(WIDTH, WIDTH) if has_rare_layer else None
        self.last = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(x))
        if self.rare is not None and (step + dist.get_rank()) % 3 == 0:
            x = x + self.rare(x)
        return self.last(x)


def wrap(is_enabled: bool, has_rare_layer: bool = False, **options) -> DistributedDataParallel:
    model = DistributedDataParallel(Net(has_rare_layer), **{"bucket_cap_mb": 0.5, **options})
    return unisono.ddp.enable(model) if is_enabled else model


def backward(model: nn.Module, rank: int, step: int) -> None:
    torch.manual_seed(100 * step + rank)
    model(torch.randn(7, WIDTH), step).square().mean().backward()


def refused(error: type[Exception], text: str, function) -> None:
    try:
        function()
    except error as problem:
        assert text in str(problem), problem
        return
    raise AssertionError(f"no {error.__name__} with '{text}'")
