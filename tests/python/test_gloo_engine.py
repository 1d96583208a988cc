#!/usr/bin/env python3
"""Groups of backend "unisono" whose operations PyTorch's own Gloo carries out."""

import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from support import init_again, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono

_GLOO = unisono.Options(engine="gloo")


def _engine_of(group: dist.ProcessGroup) -> type:
    return type(group._get_backend(torch.device("cpu")))


def both_in_one_program(rank: int, world: int) -> None:
    gloo = dist.new_group(pg_options=_GLOO, timeout=timedelta(seconds=20))
    native = dist.new_group(pg_options=unisono.Options())
    assert _engine_of(gloo) is dist.ProcessGroupGloo
    assert _engine_of(native) is unisono.Backend
    assert dist.get_backend(gloo) == dist.get_backend(native) == "unisono"
    for dtype in (torch.float32, torch.int64):
        results = []
        for group in (gloo, native):
            tensor = (torch.arange(5) + rank).to(dtype)
            dist.all_reduce(tensor, group=group)
            gathered = [torch.empty_like(tensor) for _ in range(world)]
            dist.all_gather(gathered, tensor + rank, group=group)
            dist.broadcast(tensor, world - 1, group=group)
            results.append((tensor, torch.stack(gathered)))
        for one, other in zip(*results, strict=True):
            assert torch.equal(one, other), (one, other)
    dist.destroy_process_group(gloo)
    dist.barrier(native)


def as_default_group(rank: int, world: int) -> None:
    init_again(rank, world, "gloo", pg_options=_GLOO)
    assert _engine_of(dist.group.WORLD) is dist.ProcessGroupGloo
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(3, 2))
    model(torch.full((1, 3), rank + 1.0)).sum().backward()
    mean = sum(range(1, world + 1)) / world
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), mean))
    # A group of ours beside it, whose ranks have not met yet.
    native = dist.new_group(pg_options=unisono.Options())
    assert _engine_of(native) is unisono.Backend
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=native)
    assert tensor.item() == world


def what_is_refused(rank: int, world: int) -> list[str]:
    gloo = dist.new_group(pg_options=_GLOO)
    problems = []
    for call in (
        lambda: unisono.Options(engine="nccl"),
        lambda: unisono.empty(3, group=gloo),
        lambda: unisono.check_consistent({}, group=gloo),
        lambda: dist.new_group(pg_options=unisono.Options(engine="gloo", algorithm="ring")),
    ):
        try:
            call()
        except (ValueError, RuntimeError) as error:
            problems.append(str(error))
    return problems


class GlooEngine(unittest.TestCase):
    def test_both_in_one_program(self) -> None:
        for world in (1, 2, 3):
            run(both_in_one_program, world)

    def test_as_default_group(self) -> None:
        run(as_default_group, 2)

    def test_what_is_refused(self) -> None:
        for problems in run(what_is_refused, 2):
            self.assertEqual(len(problems), 4, problems)
            self.assertEqual(problems[0], "there is no engine 'nccl'; there are: native, gloo")
            self.assertIn("backend for CPU tensors is 'unisono' with engine 'gloo'", problems[1])
            self.assertIn("the group's backend is 'unisono' with engine 'gloo'", problems[2])
            self.assertIn("algorithm='ring' is for the native engine", problems[3])


if __name__ == "__main__":
    unittest.main()
