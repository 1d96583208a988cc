#!/usr/bin/env python3
"""Calls with several tensors of each rank, as Gloo takes them, and what is said of wrong ones."""

from __future__ import annotations

import operator
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from support import message_of, run
from test_operations import check, reduced, spread, values

WORLDS = (1, 2, 3)
COUNTS = (1, 2, 3)


def backend() -> dist.Backend:
    return dist.group.WORLD._get_backend(torch.device("cpu"))


def all_reduced(rank: int, world: int) -> None:
    cases = [
        (dist.ReduceOp.SUM, operator.add, torch.float32),
        (dist.ReduceOp.PRODUCT, operator.mul, torch.int64),
        (dist.ReduceOp.MIN, torch.minimum, torch.float64),
        (dist.ReduceOp.MAX, torch.maximum, torch.bfloat16),
        (dist.ReduceOp.BAND, operator.and_, torch.uint8),
        (dist.ReduceOp.BOR, operator.or_, torch.int32),
        (dist.ReduceOp.BXOR, operator.xor, torch.int16),
    ]
    for n in COUNTS:
        for kind, op, dtype in cases:
            for shape in (spread, torch.clone):
                # Expected: the parts of all ranks, one after the other.
                expected = reduced(op, world * n, lambda i: values(i, (3, 5), dtype))  # noqa: B023
                tensors = [shape(values(rank * n + i, (3, 5), dtype)) for i in range(n)]
                work = backend().allreduce(tensors, kind)
                assert work.wait()
                for tensor in (*tensors, *work.result()):
                    check(tensor, expected, f"all_reduce of {n}, {kind}")


def averaged(rank: int, world: int) -> None:
    tensors = [torch.full((3,), float(rank * 2 + i)) for i in range(2)]
    backend().allreduce(tensors, dist.ReduceOp.AVG).wait()
    mean = sum(range(2 * world)) / (2 * world)
    for tensor in tensors:
        torch.testing.assert_close(tensor, torch.full((3,), mean))


def with_gradients(rank: int, world: int) -> None:
    leaves = [torch.full((2,), float(rank + i), requires_grad=True) for i in range(2)]
    backend().allreduce(leaves).wait()
    for leaf in leaves:
        check(leaf.detach(), torch.full((2,), float(world * world)), "leaves")


def sparse_reduced(rank: int, world: int) -> None:
    def make(i: int) -> torch.Tensor:
        indices = torch.arange(i + 1).repeat(2, 1)
        return torch.sparse_coo_tensor(indices, values(i, (i + 1,), torch.float32), (8, 8))

    for n in COUNTS:
        expected = reduced(operator.add, world * n, lambda i: make(i).to_dense())
        tensors = [make(rank * n + i) for i in range(n)]
        backend().allreduce(tensors).wait()
        for tensor in tensors:
            check(tensor.to_dense(), expected, f"sparse all_reduce of {n}")


def broadcast(rank: int, world: int) -> None:
    for n in COUNTS:
        for root in range(world):
            for index in range(n):
                options = dist.BroadcastOptions()
                options.rootRank, options.rootTensor = root, index
                options.timeout = timedelta(seconds=30)
                tensors = [spread(values(rank * n + i, (7,), torch.float32)) for i in range(n)]
                backend().broadcast(tensors, options).wait()
                expected = values(root * n + index, (7,), torch.float32)
                for tensor in tensors:
                    check(tensor, expected, f"broadcast of {index} of {n}")


def gathered(rank: int, world: int) -> None:
    for n in COUNTS:
        inputs = [values(rank * n + i, (2, 3), torch.int32) for i in range(n)]
        lists = [
            [spread(torch.zeros(2, 3, dtype=torch.int32)) for _ in range(n * world)]
            for _ in range(n)
        ]
        future = backend().allgather(lists, inputs).get_future()
        value = future.wait()
        # Like in c10d, several inputs give one list each.
        for both in zip(lists, [value] if n == 1 else value, strict=True):
            for one in both:
                assert len(one) == n * world
                for i, tensor in enumerate(one):
                    check(tensor, values(i, (2, 3), torch.int32), f"all_gather of {n}")


def gathered_coalesced(rank: int, world: int) -> None:
    inputs = [values(rank * 2 + i, (2 + i,), torch.int32) for i in range(2)]
    lists = [[torch.zeros(2 + i, dtype=torch.int32) for i in range(2)] for _ in range(world)]
    value = backend().allgather_coalesced(lists, inputs).get_future().wait()
    for r, one in enumerate([value] if world == 1 else value):
        for i, tensor in enumerate(one):
            check(tensor, values(r * 2 + i, (2 + i,), torch.int32), "all_gather_coalesced")


def refused(rank: int, world: int) -> None:
    """In the words of Gloo's that torch's tests look for."""
    group = backend()
    t, longer, double = torch.ones(2), torch.ones(3), torch.ones(2, dtype=torch.float64)
    sparse = torch.eye(2).to_sparse()
    root = dist.BroadcastOptions()
    root.rootRank, root.rootTensor = 0, 0
    second = dist.BroadcastOptions()
    second.rootRank, second.rootTensor = 0, 2
    reduce, other = dist.ReduceOptions(), dist.ReduceOptions()
    reduce.rootRank, other.rootRank, other.rootTensor = 0, 0, 1
    full = [torch.zeros(2) for _ in range(2 * world)]
    same_length = "requires input/output tensor lists to have the same length"
    calls = [
        ("requires non-empty tensor list", lambda: group.allreduce([])),
        ("invalid tensor type at index 1", lambda: group.allreduce([t, double])),
        ("invalid tensor size at index 1", lambda: group.allreduce([t, longer])),
        (
            "invalid tensor layout at index 1 (expected Strided, got Sparse)",
            lambda: group.allreduce([torch.eye(2), sparse]),
        ),
        ("unsupported layout", lambda: group.allreduce([torch.eye(2).to_sparse_csr()])),
        ("invalid root tensor: 0", lambda: group.broadcast([], root)),
        ("invalid root tensor: 2", lambda: group.broadcast([t, t], second)),
        ("invalid tensor size at index 1", lambda: group.broadcast([t, longer], root)),
        ("invalid tensor type at index 1", lambda: group.broadcast([t, double], root)),
        ("only supports dense tensors", lambda: group.broadcast([sparse], root)),
        ("invalid root tensor: 0", lambda: group.reduce([], reduce)),
        ("invalid root tensor: 1", lambda: group.reduce([t], other)),
        ("requires a single-element tensor list", lambda: group.reduce([t, t], reduce)),
        ("requires non-empty input tensor list", lambda: group.allgather([], [])),
        (same_length, lambda: group.allgather([full, full], [t])),
        (same_length, lambda: group.allgather([full], [t, t])),
        (
            f"invalid output tensor list at index 1 (expected length {2 * world}, got 1)",
            lambda: group.allgather([full, [t]], [t, t]),
        ),
        ("invalid tensor size at index 1", lambda: group.allgather([full, full], [t, longer])),
        ("invalid tensor type at index 0", lambda: group.allgather([full] * 2, [double, double])),
        ("tensors must all have the same type", lambda: group.allreduce_coalesced([t, double])),
        ("invalid tensor layout", lambda: group.allreduce_coalesced([torch.eye(2), sparse])),
        ("unsupported layout", lambda: group.allreduce_coalesced([sparse])),
    ]
    for text, call in calls:
        message = message_of(RuntimeError, call)
        assert text in message, f"{message} instead of {text}"
    dist.all_reduce(t)  # Nothing was sent.
    assert t.tolist() == [world, world]


class TensorLists(unittest.TestCase):
    def run_in_all_worlds(self, body) -> None:
        for world in WORLDS:
            with self.subTest(world=world):
                run(body, world)

    def test_all_reduce(self) -> None:
        self.run_in_all_worlds(all_reduced)

    def test_average(self) -> None:
        self.run_in_all_worlds(averaged)

    def test_leaves_of_autograd(self) -> None:
        run(with_gradients, 2)

    def test_sparse_all_reduce(self) -> None:
        self.run_in_all_worlds(sparse_reduced)

    def test_broadcast(self) -> None:
        self.run_in_all_worlds(broadcast)

    def test_all_gather(self) -> None:
        self.run_in_all_worlds(gathered)

    def test_all_gather_coalesced(self) -> None:
        self.run_in_all_worlds(gathered_coalesced)

    def test_refused(self) -> None:
        run(refused, 2)


if __name__ == "__main__":
    unittest.main()
