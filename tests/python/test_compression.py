#!/usr/bin/env python3
"""Gradients that travel in fewer bits between nodes: Options(compression=...)."""

import unittest

import torch
import torch.distributed as dist
from support import init_again, run

import unisono

# docs/design/algorithms.md: a partial result is rounded once, and the result once more.
BOUNDS = {"bfloat16": 2.1 / 256, "fp8": 2.1 / 16}
EXACT = (
    (torch.float32, dist.ReduceOp.MAX),
    (torch.float64, dist.ReduceOp.SUM),
    (torch.int32, dist.ReduceOp.SUM),
)


def values(rank: int, n: int = 5000) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(rank))


def join_nodes(rank: int, world: int, n_nodes: int, compression: str) -> None:
    """A new default group, whose ranks take each other to be on so many nodes."""
    node = {"UNISONO_NODE_ID": f"node {rank % n_nodes}"}
    options = unisono.Options(compression=compression)
    init_again(rank, world, "nodes", environment=node, pg_options=options)


def sums(rank: int, world: int, n_nodes: int, compression: str) -> float:
    """The largest error of a sum, relative to the ranks' magnitudes."""
    join_nodes(rank, world, n_nodes, compression)
    inputs = torch.stack([values(r) for r in range(world)]).double()
    worst = 0.0
    for is_async in (False, True):
        total = values(rank)
        work = dist.all_reduce(total, async_op=is_async)
        if work is not None:
            work.wait()
        everywhere = [torch.empty_like(total) for _ in range(world)]
        dist.all_gather(everywhere, total)
        assert all(torch.equal(total, other) for other in everywhere)
        # fp8 shares its scale among neighbours: so small errors are of the largest there.
        magnitude = inputs.abs().sum(0).clamp(min=2**-12 * inputs.abs().max().item())
        error = (total.double() - inputs.sum(0)).abs() / magnitude
        worst = max(worst, error.max().item())
        parts = [values(rank, 3000), values(rank + 9, 70)]
        dist.all_reduce_coalesced(parts)
        for i, part in enumerate(parts):
            exact = sum(values(r + 9 * i, part.numel()).double() for r in range(world))
            assert (part - exact).abs().max() < 1, "all_reduce_coalesced"
    return worst


def what_is_left_alone(rank: int, world: int) -> None:
    join_nodes(rank, world, 2, "fp8")
    for dtype, op in EXACT:
        total = (values(rank) * 100).to(dtype)
        dist.all_reduce(total, op)
        parts = [(values(r) * 100).to(dtype) for r in range(world)]
        exact = torch.maximum(*parts) if op == dist.ReduceOp.MAX else sum(parts)
        assert torch.equal(total, exact), f"{op} of {dtype}"
    copied = values(rank)
    dist.broadcast(copied, 0)
    assert torch.equal(copied, values(0))


class Compression(unittest.TestCase):
    def test_error_is_within_the_bound_and_there(self) -> None:
        for compression, bound in BOUNDS.items():
            for world in (2, 3):
                with self.subTest(compression=compression, world=world):
                    for error in run(sums, world, 2, compression):
                        self.assertLess(error, bound)
                        self.assertGreater(error, bound / 40, "nothing was compressed")

    def test_nothing_is_lost_without_it_or_inside_a_node(self) -> None:
        for n_nodes, compression in ((2, "none"), (1, "fp8"), (1, "bfloat16")):
            with self.subTest(n_nodes=n_nodes, compression=compression):
                for error in run(sums, 2, n_nodes, compression):
                    self.assertLess(error, 1e-6)

    def test_what_cannot_lose_bits_does_not(self) -> None:
        run(what_is_left_alone, 2)

    def test_choices(self) -> None:
        self.assertEqual(unisono.Options().compression, "none")
        options = unisono.Options(algorithm="two_shot", compression="fp8")
        self.assertEqual((options.algorithm, options.compression), ("two_shot", "fp8"))
        there_are = "there is no compression 'zip'; there are: none, bfloat16, fp8"
        with self.assertRaisesRegex(ValueError, there_are):
            unisono.Options(compression="zip")
        together = "compression goes with the algorithms auto and two_shot, not with ring"
        with self.assertRaisesRegex(ValueError, together):
            unisono.Options(algorithm="ring", compression="bfloat16")
        with self.assertRaisesRegex(ValueError, together):
            options.algorithm = "ring"
        self.assertEqual(options.algorithm, "two_shot")


if __name__ == "__main__":
    unittest.main()
