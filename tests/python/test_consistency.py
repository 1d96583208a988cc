#!/usr/bin/env python3
"""unisono.check_consistent(): what it says, on every rank the same."""

from __future__ import annotations

import unittest

import torch
import torch.distributed as dist
from support import message_of, run
from torch import nn

import unisono


def model() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(12, 31), nn.BatchNorm1d(31), nn.Linear(31, 5))


def compared(rank: int, world: int) -> list[str]:
    module = model()
    unisono.check_consistent(module)
    unisono.check_consistent(module.state_dict())
    unisono.check_consistent(parameter.t() for parameter in module[0].parameters())
    unisono.check_consistent(torch.tensor([float("nan")]))

    def problem(tensors: object) -> str:
        return message_of(dist.DistBackendError, lambda: unisono.check_consistent(tensors))

    messages = []
    if rank == 2:
        with torch.no_grad():
            module[2].weight[3, 4] = torch.nextafter(module[2].weight[3, 4], torch.tensor(9.0))
            module[2].bias += 1
    messages.append(problem(module))
    module = model()
    if rank == 1:
        module[1].running_mean[0] = -0.0
    messages.append(problem(module))
    messages.append(problem({"x": torch.ones(3 + rank // 2, 2)}))
    messages.append(problem([torch.ones(2)] * (3 if rank == 0 else 2)))
    unisono.check_consistent(model())
    return messages


class Consistency(unittest.TestCase):
    def test_names_the_first_tensor_that_differs_and_the_ranks(self) -> None:
        results = run(compared, 3)
        self.assertEqual(results, [results[0]] * 3)
        weight, mean, shape, missing = results[0]
        hashed = "with hash [0-9a-f]{16}"
        self.assertRegex(
            weight,
            "check_consistent: the ranks differ: tensor '2.weight' is "
            rf"f32\[5, 31\] {hashed} on rank 0 and f32\[5, 31\] {hashed} on rank 2",
        )
        self.assertRegex(mean, rf"'1.running_mean' is f32\[31\] {hashed} on rank 0 .* on rank 1")
        self.assertRegex(
            shape, rf"'x' is f32\[3, 2\] {hashed} on rank 0 and f32\[4, 2\] {hashed} on rank 2"
        )
        self.assertRegex(
            missing, rf"rank 0 has tensor '2' \(f32\[2\] {hashed}\), which rank 1 lacks"
        )

    def test_says_what_can_not_be_compared(self) -> None:
        run(not_comparable, 1)


def not_comparable(rank: int, world: int) -> None:
    sparse = {"s": torch.eye(3).to_sparse()}
    assert "tensor 's' is sparse; only dense tensors" in message_of(
        RuntimeError, lambda: unisono.check_consistent(sparse)
    )
    assert "'step' is a int; only tensors" in message_of(
        TypeError, lambda: unisono.check_consistent({"step": 3})
    )


def not_comparable_on_the_last(rank: int, world: int) -> list[str]:
    is_last = rank == world - 1

    def broken():
        yield torch.ones(2)
        if is_last:
            raise ValueError("no more of them")

    matrix = torch.eye(3)
    cases = [
        {"step": 3 if is_last else torch.tensor(3)},
        {"s": matrix.to_sparse() if is_last else matrix},
        broken(),
    ]
    kind = dist.DistBackendError
    messages = [message_of(kind, lambda: unisono.check_consistent(c)) for c in cases]  # noqa: B023
    unisono.check_consistent(model())
    return messages


if __name__ == "__main__":
    unittest.main()
