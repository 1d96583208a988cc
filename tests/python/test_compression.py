#!/usr/bin/env python3
"""Gradients that travel in fewer bits between nodes: unisono.ddp.quantize_hook."""

import unittest

import torch
import torch.distributed as dist
from support import init_again, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono

# The sum of the node is rounded once, and the mean is rounded again.
BOUNDS = {"bfloat16": 2.1 / 256, "int8": 2.1 / 254, "fp8": 2.2 / 16}
SIZES = (300, 5000)
BUCKET_MB = 0.001  # a bucket for each parameter


class Slopes(nn.Module):
    """A model whose gradients are its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(size) for size in SIZES)

    def forward(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        return sum((w * x).sum() for w, x in zip(self.weights, inputs, strict=True))


def slopes(rank: int) -> list[torch.Tensor]:
    return [(torch.arange(1.0, size + 1) * (0.3 + rank)).sin() for size in SIZES]


def mean_slopes(world: int) -> list[torch.Tensor]:
    of_ranks = zip(*[slopes(rank) for rank in range(world)], strict=True)
    return [torch.stack(parts).double().mean(0) for parts in of_ranks]


def hooked_model(type: str) -> DistributedDataParallel:
    model = DistributedDataParallel(Slopes(), bucket_cap_mb=BUCKET_MB)
    model.register_comm_hook(unisono.ddp.QuantizeState(type=type), unisono.ddp.quantize_hook)
    return model


def gradients(model: DistributedDataParallel, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    model.zero_grad()
    model(inputs).backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def join_nodes(rank: int, world: int, n_nodes: int) -> None:
    """A new default group, whose ranks take each other to be on so many nodes."""
    node = {"UNISONO_NODE_ID": f"node {rank % n_nodes}"}
    init_again(rank, world, f"{n_nodes} nodes", environment=node)


def errors(rank: int, world: int, n_nodes: int, n_passes: int) -> dict[str, float]:
    """The largest error of the mean of so many equal passes, by type."""
    join_nodes(rank, world, n_nodes)
    found = {}
    for type in BOUNDS:
        model = hooked_model(type)
        sums = [torch.zeros(size, dtype=torch.float64) for size in SIZES]
        for _ in range(n_passes):
            for total, mine in zip(sums, gradients(model, slopes(rank)), strict=True):
                of_ranks = [torch.empty_like(mine) for _ in range(world)]
                dist.all_gather(of_ranks, mine)
                assert all(torch.equal(mine, other) for other in of_ranks), "ranks differ"
                total += mine
        found[type] = max(
            (total / n_passes - exact).abs().max().item()
            for total, exact in zip(sums, mean_slopes(world), strict=True)
        )
    return found


def sparse_gradients(rank: int, world: int) -> str:
    model = DistributedDataParallel(nn.Embedding(10, 3, sparse=True))
    model.register_comm_hook(unisono.ddp.QuantizeState(), unisono.ddp.quantize_hook)
    try:
        model(torch.tensor([rank])).sum().backward()
    except TypeError as error:
        return str(error)
    return "accepted"


def refused_states(rank: int, world: int) -> None:
    """Nothing is sent for them: the group goes on."""
    for arguments, message in (
        ({"type": "zip"}, "there is no type 'zip'; there are: bfloat16, int8, fp8"),
        (
            {"process_group": dist.new_group(pg_options=unisono.Options(engine="gloo"))},
            "unisono.ddp.QuantizeState: the group's backend for CPU tensors is 'unisono' with "
            "engine 'gloo'",
        ),
    ):
        try:
            unisono.ddp.QuantizeState(**arguments)
        except ValueError as error:
            assert message in str(error), error
        else:
            raise AssertionError(f"{arguments} were accepted")
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == world


class Compression(unittest.TestCase):
    def test_error_is_within_the_bound_and_there(self) -> None:
        for world, n_nodes in ((2, 2), (3, 2), (4, 2)):
            for found in run(errors, world, n_nodes, 1):
                for type, error in found.items():
                    with self.subTest(type=type, world=world):
                        self.assertLess(error, BOUNDS[type])
                        self.assertGreater(error, BOUNDS[type] / 40, "nothing was quantized")

    def test_later_passes_make_up_for_what_is_lost(self) -> None:
        for found in run(errors, 3, 2, 50):
            for type, error in found.items():
                with self.subTest(type=type):
                    self.assertLess(error, BOUNDS[type] / 20)

    def test_nothing_is_lost_inside_a_node(self) -> None:
        for found in run(errors, 2, 1, 1):
            for type, error in found.items():
                with self.subTest(type=type):
                    self.assertLess(error, 1e-6)

    def test_sparse_gradients_are_refused(self) -> None:
        for message in run(sparse_gradients, 2):
            self.assertIn("quantize_hook: it takes dense gradients, not torch.sparse_coo", message)

    def test_states_that_cannot_be_made_are_refused(self) -> None:
        run(refused_states, 2)


if __name__ == "__main__":
    unittest.main()
