#!/usr/bin/env python3
"""Pipelines of torch.distributed.pipelining, against one process that has all layers."""

import unittest

import torch
import torch.distributed as dist
from support import run
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleInterleavedZeroBubble,
    ScheduleZBVZeroBubble,
)
from torch.distributed.pipelining.schedules import PipelineScheduleMulti
from training import N_STEPS, adam, batch, check_close, model, share, trained

N_MICROBATCHES = 4


def layers(index: int, n_stages: int) -> nn.Sequential:
    """A stage's share of the model, under the model's names."""
    module = model()
    names = list(module._modules)
    for i, name in enumerate(names):
        if i * n_stages // len(names) != index:
            delattr(module, name)
    return module


def check_pipeline(
    schedule_class: type,
    modules: dict[int, nn.Module],
    n_stages: int,
    group: dist.ProcessGroup | None = None,
    part: int = 0,
    n_parts: int = 1,
) -> None:
    """Trains the stages of this rank, by their index, on one part of each batch."""
    stages = [
        PipelineStage(module, index, n_stages, torch.device("cpu"), group=group)
        for index, module in modules.items()
    ]
    schedule = schedule_class(
        stages if issubclass(schedule_class, PipelineScheduleMulti) else stages[0],
        N_MICROBATCHES,
        loss_fn=nn.functional.mse_loss,
    )
    optimizer = adam(nn.ModuleList(modules.values()))
    has_first, has_last = 0 in modules, n_stages - 1 in modules
    means = []
    for i in range(N_STEPS):
        inputs, targets = (share(tensor, part, n_parts) for tensor in batch(i))
        optimizer.zero_grad()
        losses = []
        options = {"target": targets, "losses": losses} if has_last else {}
        schedule.step(*([inputs] if has_first else []), **options)
        optimizer.step()
        if has_last:
            assert len(losses) == N_MICROBATCHES
            means.append(torch.stack(losses).mean().detach())
    expected, expected_losses = trained()
    theirs = dict(expected.named_parameters())
    for module in modules.values():
        for name, parameter in module.named_parameters():
            check_close(parameter.detach(), theirs[name].detach(), name)
    if n_parts == 1 and has_last:
        check_close(torch.stack(means), torch.stack(expected_losses), "losses")


def one_stage_each(rank: int, world: int) -> None:
    for schedule_class in (ScheduleGPipe, Schedule1F1B):
        check_pipeline(schedule_class, {rank: layers(rank, world)}, world)


def two_stages_each(rank: int, world: int) -> None:
    n_stages = 2 * world
    loop, v = [rank, rank + world], [rank, n_stages - 1 - rank]
    for schedule_class, indices in (
        (ScheduleInterleaved1F1B, loop),
        (ScheduleInterleavedZeroBubble, loop),
        (ScheduleZBVZeroBubble, v),
    ):
        modules = {index: layers(index, n_stages) for index in indices}
        check_pipeline(schedule_class, modules, n_stages)


def with_fsdp(rank: int, world: int) -> None:
    """Two pipelines, whose stages are sharded over both."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stages", "data"))
    index, part = mesh.get_local_rank("stages"), mesh.get_local_rank("data")
    module = fully_shard(layers(index, 2), mesh=mesh["data"])
    group = mesh.get_group("stages")
    check_pipeline(Schedule1F1B, {index: module}, 2, group, part, n_parts=2)


class Pipelining(unittest.TestCase):
    def test_one_stage_each(self) -> None:
        for world in (2, 3):
            with self.subTest(world=world):
                run(one_stage_each, world)

    def test_two_stages_each(self) -> None:
        run(two_stages_each, 2)

    def test_with_fsdp(self) -> None:
        run(with_fsdp, 4)


if __name__ == "__main__":
    unittest.main()
