"""What names of backends mean, and what a program can ask about them; prints it on rank 0."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from output import say
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def total(group=None) -> float:
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    return tensor[0].item()


def try_name(name: str | None, **options) -> None:
    dist.init_process_group(name, **options)
    if dist.get_rank() == 0:
        say(f"{name}: {dist.get_backend()}")
    assert total() == dist.get_world_size()
    model = DistributedDataParallel(nn.Linear(2, 1))
    model(torch.ones(1, 2)).sum().backward()
    dist.destroy_process_group()


def groups() -> None:
    dist.init_process_group("gloo")
    for backend in ("gloo", "NCCL", "unisono", None, "cpu:gloo,cuda:nccl"):
        group = dist.new_group([0, 1], backend=backend)
        assert total(group) == 2
        if dist.get_rank() == 0:
            say(f"new_group {backend}: {dist.get_backend(group)}")
    dist.monitored_barrier(group, timeout=timedelta(seconds=20))
    dist.monitored_barrier(wait_all_ranks=True)
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=7), group)
    assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=7)
    dist.destroy_process_group()


def answers() -> None:
    names = ("gloo", "nccl", "tcp", "unisono", "mpi", "cpu:gloo,cuda:nccl")
    say(f"available: {[name for name in names if dist.is_backend_available(name)]}")
    functions = (dist.is_gloo_available, dist.is_nccl_available, dist.is_mpi_available)
    say(f"functions: {[function() for function in functions]}")
    default = dist.Backend(dist.get_default_backend_for_device("cpu"))
    say(f"default for cpu: {default}")


if __name__ == "__main__":
    options = torch._C._distributed_c10d.ProcessGroupGloo._Options()
    for name in (None, "gloo", "GLOO", dist.Backend.GLOO, "nccl", "tcp", "unisono"):
        try_name(name)
    try_name("cpu:gloo,cuda:nccl")
    try_name("gloo", pg_options=options, timeout=timedelta(seconds=30))
    groups()
    if os.environ["RANK"] == "0":
        answers()
