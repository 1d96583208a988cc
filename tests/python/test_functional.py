#!/usr/bin/env python3
"""Collectives that return new tensors, also where they are compiled or differentiated."""

import unittest

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from support import run
from torch.distributed.device_mesh import init_device_mesh


def numbers(rank: int, n_rows: int, salt: int = 0) -> torch.Tensor:
    return ((torch.arange(3 * n_rows) * 5 + 3 * rank + salt) % 7).float().reshape(n_rows, 3)


def check(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    if isinstance(actual, functional.AsyncCollectiveTensor):
        actual = actual.wait()
    if not torch.equal(actual, expected):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def collectives(rank: int, world: int) -> None:
    group = dist.group.WORLD
    mesh = init_device_mesh("cpu", (world,))
    everyone = list(range(world))

    def rows(r: int, to: int) -> int:
        return (r + 2 * to) % 3

    for where in (group, mesh, (mesh, 0)):
        mine = numbers(rank, 2)
        total = sum(numbers(r, 2) for r in everyone)
        check(functional.all_reduce(mine, "sum", where), total, "all_reduce")
        check(functional.all_reduce(mine, "avg", where), total / world, "all_reduce avg")
        check(mine, numbers(rank, 2), "what was given")
        for root in everyone:
            check(functional.broadcast(mine, root, where), numbers(root, 2), "broadcast")
        for dim in (0, 1):
            gathered = functional.all_gather_single(mine, dim, where)
            check(gathered, torch.cat([numbers(r, 2) for r in everyone], dim), "all_gather_single")
            parts = [torch.cat([numbers(r, 2, to) for to in everyone], dim) for r in everyone]
            share = functional.reduce_scatter_single(parts[rank], "sum", dim, where)
            check(share, sum(parts).chunk(world, dim)[rank], "reduce_scatter_single")
        ins = [numbers(rank, rows(rank, to), to) for to in everyone]
        swapped = functional.all_to_all_single(
            torch.cat(ins),
            [rows(r, rank) for r in everyone],
            [rows(rank, to) for to in everyone],
            where,
        )
        expected = torch.cat([numbers(r, rows(r, rank), rank) for r in everyone])
        check(swapped, expected, "all_to_all_single")
        even = functional.all_to_all_single(numbers(rank, world), None, None, where)
        expected = torch.stack([numbers(r, world)[rank] for r in everyone])
        check(even, expected, "even all_to_all_single")
        targets = [(r + 1) % world for r in everyone]
        shifted = functional.permute_tensor(mine.flatten(), targets, where)
        check(shifted, numbers((rank - 1) % world, 2).flatten(), "permute_tensor")


def coalesced(rank: int, world: int) -> None:
    group = dist.group.WORLD
    sizes = (1, 4, 0, 2)
    mine = [numbers(rank, n, i) for i, n in enumerate(sizes)]
    everyone = range(world)
    for i, total in enumerate(functional.all_reduce_coalesced(mine, "sum", group)):
        check(total, sum(numbers(r, sizes[i], i) for r in everyone), "all_reduce_coalesced")
    gathered = functional.all_gather_single_coalesced(mine, group)
    for i, tensor in enumerate(gathered):
        expected = torch.cat([numbers(r, sizes[i], i) for r in everyone])
        check(tensor, expected, "all_gather_single_coalesced")
    dims = [0, 1]
    parts = [
        [torch.cat([numbers(r, 2, 5 * d + to) for to in everyone], d) for d in dims]
        for r in everyone
    ]
    shares = functional.reduce_scatter_single_coalesced(list(parts[rank]), "sum", dims, group)
    for d, share in zip(dims, shares, strict=True):
        expected = sum(part[d] for part in parts).chunk(world, d)[rank]
        check(share, expected, "reduce_scatter_single_coalesced")


def in_flight(rank: int, world: int) -> None:
    """Many at once; some are used by other operations, some waited for, some forgotten."""
    group = dist.group.WORLD
    mine = [numbers(rank, 100, i) for i in range(20)]
    totals = [functional.all_reduce(tensor, "sum", group) for tensor in mine]
    for i, total in reversed(list(enumerate(totals))):
        expected = sum(numbers(r, 100, i) for r in range(world))
        if i % 3 == 0:
            check(total + 1, expected + 1, "used")
        elif i % 3 == 1:
            check(functional.wait_tensor(total), expected, "waited for")
    del total, totals
    leaf = numbers(rank, 2)
    functional.all_reduce_inplace(leaf, "sum", group)
    check(leaf, sum(numbers(r, 2) for r in range(world)), "all_reduce_inplace")


def gradients(rank: int, world: int) -> None:
    group = dist.group.WORLD
    weights = [numbers(r, 2 * world, 1) for r in range(world)]
    leaf = numbers(rank, 2).requires_grad_()
    gathered = functional.all_gather_single_autograd(leaf, 0, group)
    (gathered * weights[rank]).sum().backward()
    check(leaf.grad, sum(weights).chunk(world)[rank], "gradient of all_gather_single")
    leaf = numbers(rank, 2 * world).requires_grad_()
    share = functional.reduce_scatter_single_autograd(leaf, "sum", 0, group)
    (share * weights[rank][:2]).sum().backward()
    expected = torch.cat([weight[:2] for weight in weights])
    check(leaf.grad, expected, "gradient of reduce_scatter_single")
    counts = [[(r + to) % 3 for to in range(world)] for r in range(world)]
    outs = [counts[r][rank] for r in range(world)]
    leaf = numbers(rank, sum(counts[rank])).requires_grad_()
    swapped = functional.all_to_all_single_autograd(leaf, outs, counts[rank], group)
    (swapped * (rank + 1)).sum().backward()
    expected = torch.cat([torch.full((n, 3), to + 1.0) for to, n in enumerate(counts[rank])])
    check(leaf.grad, expected, "gradient of all_to_all_single")


def compiled(rank: int, world: int) -> None:
    """In a graph, as torch.compile() makes it."""
    group = dist.group.WORLD

    def step(tensor: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(tensor * 2, "sum", group)
        share = functional.reduce_scatter_single(total, "sum", 0, group)
        return functional.all_gather_single(share + 1, 0, group) * 3

    tensor = numbers(rank, 2 * world)
    expected = sum(numbers(r, 2 * world) for r in range(world)) * 2 * world * 3 + 3
    check(step(tensor), expected, "as it is")
    for backend in ("eager", "aot_eager"):
        compiled_step = torch.compile(step, backend=backend, fullgraph=True)
        for _ in range(2):
            check(compiled_step(tensor), expected, f"compiled by {backend}")


class Functional(unittest.TestCase):
    def run_in_worlds(self, body) -> None:
        for world in (1, 2, 3):
            with self.subTest(world=world):
                run(body, world)

    def test_collectives(self) -> None:
        self.run_in_worlds(collectives)

    def test_coalesced(self) -> None:
        self.run_in_worlds(coalesced)

    def test_in_flight(self) -> None:
        self.run_in_worlds(in_flight)

    def test_gradients(self) -> None:
        self.run_in_worlds(gradients)

    def test_compiled(self) -> None:
        run(compiled, 2)


if __name__ == "__main__":
    unittest.main()
