#!/usr/bin/env python3
"""How groups are made, and DistributedDataParallel on them."""

import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from support import hear, run, tell
from torch import nn

import unisono


def subgroups(rank: int, world: int) -> None:
    pair = dist.new_group([0, 2])
    reverse = dist.new_group([2, 1], backend="unisono")
    late = dist.new_group([1, 2], timeout=timedelta(seconds=20))
    for group, members in ((pair, [0, 2]), (reverse, [1, 2]), (late, [1, 2])):
        if rank not in members:
            assert group is dist.GroupMember.NON_GROUP_MEMBER
            continue
        assert dist.get_backend(group) == "unisono"
        assert dist.get_process_group_ranks(group) == members
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        assert tensor.tolist() == [sum(members)] * 3
        objects = [None, None]
        dist.all_gather_object(objects, {"rank": rank}, group=group)
        assert objects == [{"rank": r} for r in members]
        dist.broadcast(tensor, members[1], group=group)
        dist.destroy_process_group(group)
    dist.barrier()


def of_one_name(rank: int, world: int) -> None:
    """Groups without common ranks, which torch gives the same name."""
    group = dist.new_group([rank], use_local_synchronization=True)
    dist.barrier(group)
    pair = [0, 2] if rank % 2 == 0 else [1, 3]
    group, _ = dist.new_subgroups_by_enumeration([[0, 2], [1, 3]])
    alone, _ = dist.new_subgroups(group_size=1, group=group)
    assert dist.get_process_group_ranks(group) == pair
    assert dist.get_process_group_ranks(alone) == [rank]
    for members, size in ((group, 2), (alone, 1)):
        tensor = torch.ones(1)
        dist.all_reduce(tensor, group=members)
        assert tensor.item() == size


def split(rank: int, world: int) -> None:
    """As split_group() does, which torch offers beside an accelerator only."""
    members = [2, 0] if rank in (0, 2) else [1, 3]
    # Torch preserves the list's order since 2.14.
    keeps_order = [int(part) for part in torch.__version__.split(".")[:2]] >= [2, 14]
    order = members if keeps_order else sorted(members)
    whole = dist.group.WORLD._get_backend(torch.device("cpu")).options
    before = whole._timeout
    for _ in range(2):
        part = dist.group.WORLD.split_group(members, timeout=timedelta(seconds=20))
        assert part.size() == 2 and part.rank() == order.index(rank)
        backend = part._get_backend(torch.device("cpu"))
        assert backend.options._timeout == timedelta(seconds=20)
        # Before 2.14 torch shares the options between the parent group and the part.
        assert not keeps_order or whole._timeout == before
        tensor = torch.full((3,), float(rank))
        part.allreduce([tensor]).wait()
        assert tensor.tolist() == [sum(members)] * 3
        half = part.split_group([0])
        assert (half is None) == (part.rank() == 1)
        part.shutdown()


def merged(rank: int, world: int) -> None:
    """Two jobs become one."""
    dist.destroy_process_group()
    store = dist.FileStore(f"{Path.cwd()}/jobs", world)
    job = dist.PrefixStore(f"job {rank // 2}", store)
    unisono.init_process_group(store=job, rank=rank % 2, world_size=2)
    both = dist.group.WORLD.merge_remote_group(
        dist.PrefixStore("both", store), world, group_name="both"
    )
    assert both.size() == world
    tensor = torch.ones(2)
    both.allreduce([tensor]).wait()
    assert tensor.tolist() == [world, world]
    dist.all_reduce(tensor)
    assert tensor.tolist() == [2 * world, 2 * world]
    both.shutdown()


class DelegatingStore(dist.Store):
    """A store in Python: has no more than torch demands of one."""

    def __init__(self, inner: dist.Store) -> None:
        super().__init__()
        self.inner = inner

    def clone(self) -> dist.Store:
        return DelegatingStore(self.inner.clone())

    def set(self, key: str, value: bytes) -> None:
        self.inner.set(key, value)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def add(self, key: str, amount: int) -> int:
        return self.inner.add(key, amount)

    def check(self, keys: list[str]) -> bool:
        return self.inner.check(keys)

    def compare_set(self, key: str, expected: str, desired: str) -> bytes:
        return self.inner.compare_set(key, expected, desired)

    def wait(self, keys: list[str], timeout: timedelta = timedelta(seconds=60)) -> None:
        self.inner.wait(keys, timeout)


def in_stores(rank: int, world: int) -> None:
    """Groups of jobs that meet in stores of every kind."""
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        server = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        tell("port", str(server.port))
    client = dist.TCPStore("127.0.0.1", int(hear("port")), is_master=False)
    file = dist.FileStore(f"{Path.cwd()}/other", world)
    in_python = DelegatingStore(client)  # Lives as long as Python knows it, says torch.
    stores = [client, file, DelegatingStore(file), dist.PrefixStore("x", in_python)]
    for i, store in enumerate(stores):
        store = dist.PrefixStore(f"job {i}", store)
        # The second round uses the same keys again, as with a store of the launcher.
        for _ in range(2):
            unisono.init_process_group(store=store, rank=rank, world_size=world)
            group = dist.new_group([0, 1])
            for one in (group, dist.group.WORLD):
                tensor = torch.ones(1)
                dist.all_reduce(tensor, group=one)
                assert tensor.item() == world
            dist.destroy_process_group()


def many_groups(rank: int, world: int) -> float:
    begin = time.monotonic()
    for _ in range(20):
        group = dist.new_group()
        dist.barrier(group)
        dist.destroy_process_group(group)
    return time.monotonic() - begin


def on_gloo(rank: int, world: int) -> None:
    """A group of ours beside a default group that is Gloo's."""
    dist.destroy_process_group()
    dist.init_process_group(
        "gloo", init_method=f"file://{Path.cwd()}/gloo", rank=rank, world_size=world
    )
    group = dist.new_group([0, 1], backend="unisono")
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert tensor.tolist() == [world, world]


def options(rank: int, world: int) -> None:
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert isinstance(backend, unisono.Backend)
    assert backend.options.algorithm == "ring"
    assert backend.name() == "unisono" and dist.get_backend() == "unisono"
    tensor = torch.arange(10.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [world * i for i in range(10)]
    chosen = dist.new_group(pg_options=unisono.Options(algorithm="one_shot"))
    dist.all_reduce(tensor, group=chosen)
    limits = {
        timedelta(seconds=9): dist.new_group(
            pg_options=unisono.Options(timeout=timedelta(seconds=9))
        ),
        timedelta(seconds=8): dist.new_group(timeout=timedelta(seconds=8)),
    }
    for limit, group in limits.items():
        assert group._get_backend(torch.device("cpu")).options._timeout == limit
    before = backend._get_sequence_number_for_group()
    dist.barrier()
    assert backend._get_sequence_number_for_group() == before + 1
    backend.set_timeout(timedelta(seconds=7))
    assert backend.options._timeout == timedelta(seconds=7)


def model() -> nn.Module:
    torch.manual_seed(3)
    layers = nn.Sequential(nn.Linear(12, 31), nn.Tanh(), nn.BatchNorm1d(31), nn.Linear(31, 5))
    return layers.double()


def inputs(rank: int) -> torch.Tensor:
    return torch.randn(8, 12, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)


def gradients(module: nn.Module, data: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    module(data).square().mean().backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


def ddp_step(rank: int, world: int) -> None:
    module = model()
    parallel = nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.001)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1)
    reference = model()
    reference_optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        actual = gradients(parallel, inputs(rank))
        # BatchNorm's running values do not affect the gradient.
        parts = [gradients(reference, inputs(r)) for r in range(world)]
        for parameter, *theirs in zip(reference.parameters(), *parts, strict=True):
            parameter.grad = sum(theirs) / world
        for mine, parameter in zip(actual, reference.parameters(), strict=True):
            torch.testing.assert_close(mine, parameter.grad, rtol=1e-12, atol=1e-15)
        optimizer.step()
        reference_optimizer.step()
    flat = nn.utils.parameters_to_vector(parallel.parameters())
    first = flat.clone()
    dist.broadcast(first, 0)
    assert torch.equal(flat, first), "the ranks' parameters differ"


def join_unevenly(rank: int, world: int) -> None:
    parallel = nn.parallel.DistributedDataParallel(model().eval())
    with parallel.join():
        for _ in range(rank + 1):
            gradients(parallel, inputs(rank))


JOB = """
import torch, torch.distributed as dist, unisono
unisono.init_process_group()
tensor = torch.ones(1)
dist.all_reduce(tensor)
print(f"rank {dist.get_rank()}: {tensor.item():g} {dist.get_backend()}")
dist.destroy_process_group()
"""


class Groups(unittest.TestCase):
    def test_of_some_ranks(self) -> None:
        run(subgroups, 3)

    def test_of_one_name(self) -> None:
        run(of_one_name, 4)

    def test_split(self) -> None:
        run(split, 4)

    def test_merged(self) -> None:
        run(merged, 4)

    def test_in_stores_of_every_kind(self) -> None:
        run(in_stores, 2)

    def test_made_and_destroyed_many_times(self) -> None:
        self.assertLess(max(run(many_groups, 2)), 20)

    def test_beside_a_default_group_of_gloo(self) -> None:
        run(on_gloo, 2)

    def test_options(self) -> None:
        run(options, 2, pg_options=unisono.Options(algorithm="ring"))
        with self.assertRaisesRegex(ValueError, "there is no algorithm 'fast'; there are: auto,"):
            unisono.Options(algorithm="fast")

    def test_ddp_equals_one_process(self) -> None:
        for world in (1, 2, 3):
            with self.subTest(world=world):
                run(ddp_step, world)

    def test_ddp_with_uneven_inputs(self) -> None:
        run(join_unevenly, 2)

    def test_launched_by_unisono_run_and_by_torchrun(self) -> None:
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            script = Path(folder) / "job.py"
            script.write_text(JOB)
            launchers = (
                ["-m", "unisono", "run", "-n", "2", sys.executable],
                ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
            )
            for launcher in launchers:
                with self.subTest(launcher=launcher[1]):
                    job = subprocess.run(
                        [sys.executable, *launcher, str(script)],
                        capture_output=True,
                        text=True,
                        timeout=90,
                    )
                    self.assertEqual(job.returncode, 0, job.stderr)
                    for rank in range(2):
                        self.assertIn(f"rank {rank}: 2 unisono", job.stdout)


if __name__ == "__main__":
    unittest.main()
