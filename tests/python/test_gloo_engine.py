#!/usr/bin/env python3
"""Groups of backend "unisono" whose operations PyTorch's own Gloo carries out."""

import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from support import init_again, run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono

_GLOO = unisono.Options(engine="gloo")


def _engine_of(group: dist.ProcessGroup) -> type:
    backend = group._get_backend(torch.device("cpu"))
    return type(getattr(backend, "wrapped_pg", backend))


def _gloo_threads() -> list[str]:
    names = [path.read_text() for path in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo_runloop" in name]


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
    backend = gloo._get_backend(torch.device("cpu"))
    assert _gloo_threads()
    dist.destroy_process_group(gloo)
    assert not _gloo_threads(), "threads of Gloo outlive the group"
    try:
        backend.allreduce([tensor], dist.AllreduceOptions()).wait()
        raise AssertionError("a destroyed group has carried out an all_reduce")
    except dist.DistBackendError as error:
        assert "the group was destroyed" in str(error), error
    dist.barrier(native)


def _messages(rank: int, group: dist.ProcessGroup) -> None:
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        dist.send(tensor, 1, group)
    elif rank == 1:
        dist.recv(tensor, 0, group)
    assert tensor.item() == (1 if rank < 2 else 0)
    # All ranks send first.
    received = [torch.zeros(3) for _ in range(4)]
    sent = [torch.full((3,), 10.0 * rank + peer) for peer in range(4)]
    others = [peer for peer in range(4) if peer != rank]
    works = [dist.isend(sent[peer], peer, group) for peer in others]
    works += [dist.irecv(received[peer], peer, group) for peer in others]
    for work in reversed(works):
        work.wait()
    for peer in others:
        assert torch.equal(received[peer], torch.full((3,), 10.0 * peer + rank))


def _reductions(rank: int, group: dist.ProcessGroup) -> None:
    for op, expected in (
        (dist.ReduceOp.SUM, [10, 14]),
        (dist.ReduceOp.PRODUCT, [24, 120]),
        (dist.ReduceOp.MAX, [4, 5]),
        (dist.ReduceOp.MIN, [1, 2]),
        (dist.ReduceOp.BOR, [7, 7]),
    ):
        tensor = torch.tensor([rank + 1, rank + 2])
        dist.all_reduce(tensor, op, group)
        assert tensor.tolist() == expected, (op, tensor)
    tensor = torch.tensor([rank + 1.0])
    dist.reduce(tensor, 1, group=group)
    # Gloo also changes the tensors of the other ranks.
    assert rank != 1 or tensor.item() == 10


def _movements(rank: int, group: dist.ProcessGroup) -> None:
    for source in range(4):
        tensor = torch.full((2,), float(rank))
        dist.broadcast(tensor, source, group)
        assert tensor.tolist() == [source, source]
    part = torch.zeros(1)
    tens = [torch.tensor([10.0 + peer]) for peer in range(4)]
    dist.scatter(part, tens if rank == 0 else None, 0, group)
    assert part.item() == 10 + rank
    squares = [torch.zeros(1) for _ in range(4)]
    square = torch.tensor([float(rank * rank)])
    dist.gather(square, squares if rank == 3 else None, 3, group)
    assert rank != 3 or [tensor.item() for tensor in squares] == [0, 1, 4, 9]
    ranks = [torch.zeros(1) for _ in range(4)]
    dist.all_gather(ranks, torch.tensor([float(rank)]), group)
    assert [tensor.item() for tensor in ranks] == [0, 1, 2, 3]
    out = torch.zeros(4)
    dist.all_to_all_single(out, 10.0 * rank + torch.arange(4.0), group=group)
    assert out.tolist() == [rank, 10 + rank, 20 + rank, 30 + rank]


def _strided(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Memory, and every second element of it, which are the values."""
    memory = torch.full((*values.shape, 2), -1.0)
    memory[..., 0] = values
    return memory, memory[..., 0]


def _strided_calls(rank: int, world: int, group: dist.ProcessGroup, is_async: bool) -> list:
    """All memory that operations on strided tensors have written to."""
    memories = []

    def tensor(start: float, rows: int = 2) -> torch.Tensor:
        memory, view = _strided(torch.arange(3.0 * rows).reshape(rows, 3) + start)
        memories.append(memory)
        return view

    def finish(work: dist.Work | None) -> None:
        if work is not None:
            work.wait()

    options = {"group": group, "async_op": is_async}
    mine = 10.0 * rank
    finish(dist.all_reduce(tensor(mine), **options))
    finish(dist.all_reduce(tensor(mine).t(), dist.ReduceOp.MAX, **options))
    finish(dist.broadcast(tensor(mine), world - 1, **options))
    reduced = tensor(mine)
    finish(dist.reduce(reduced, 0, **options))
    if rank != 0:
        memories.pop()  # Engines leave other things there.
    finish(dist.all_gather([tensor(r) for r in range(world)], tensor(mine), **options))
    finish(dist.all_gather_into_tensor(tensor(0, 2 * world), tensor(mine), **options))
    lists = [tensor(r + mine) for r in range(world)]
    finish(dist.gather(tensor(mine), lists if rank == 0 else None, 0, **options))
    finish(dist.scatter(tensor(mine), lists if rank == 0 else None, 0, **options))
    finish(dist.reduce_scatter(tensor(mine), lists, **options))
    finish(dist.reduce_scatter_tensor(tensor(0), tensor(mine, 2 * world), **options))
    finish(dist.all_to_all_single(tensor(0, 2 * world), tensor(mine, 2 * world), **options))
    finish(dist.all_to_all([tensor(0) for _ in lists], lists, **options))
    works = [dist.isend(tensor(mine), (rank + 1) % world, group)]
    dist.recv(tensor(0), (rank - 1) % world, group)
    works[0].wait()
    future = dist.all_reduce(tensor(mine), group=group, async_op=True).get_future()
    memories.append(torch.stack(future.wait()))
    return memories


def strided(rank: int, world: int) -> None:
    groups = [dist.new_group(pg_options=unisono.Options(engine=e)) for e in ("gloo", "native")]
    for is_async in (False, True):
        results = [_strided_calls(rank, world, group, is_async) for group in groups]
        for i, (one, other) in enumerate(zip(*results, strict=True)):
            assert torch.equal(one, other), (i, one, other)


def what_the_tutorials_print(rank: int, world: int) -> None:
    store = dist.distributed_c10d._get_default_store()
    for engine in ("gloo", "native"):
        options = unisono.Options(engine=engine)
        group = dist.new_group(pg_options=options)
        _messages(rank, group)
        _reductions(rank, group)
        _movements(rank, group)
        pair = dist.new_group([0, 1], pg_options=options)
        tensor = torch.ones(1)
        if rank < 2:
            dist.all_reduce(tensor, group=pair)
        assert tensor.item() == (2 if rank < 2 else 1)
        # No rank leaves a barrier before the last rank has arrived.
        if rank == 0:
            store.set(f"rank 0 comes to the barrier of {engine}", "yes")
        dist.barrier(group)
        assert store.check([f"rank 0 comes to the barrier of {engine}"])


def as_default_group(rank: int, world: int) -> None:
    init_again(rank, world, "gloo", pg_options=_GLOO)
    assert _engine_of(dist.group.WORLD) is dist.ProcessGroupGloo
    torch.manual_seed(rank)
    model = DistributedDataParallel(nn.Linear(3, 2))
    model(torch.full((1, 3), rank + 1.0)).sum().backward()
    mean = sum(range(1, world + 1)) / world
    assert torch.equal(model.module.weight.grad, torch.full((2, 3), mean))
    # An additional group with our backend. Its ranks have not met yet.
    native = dist.new_group(pg_options=unisono.Options())
    assert _engine_of(native) is unisono.Backend
    tensor = torch.ones(1)
    dist.all_reduce(tensor, group=native)
    assert tensor.item() == world


def what_is_refused(rank: int, world: int) -> list[str]:
    gloo = dist.new_group(pg_options=_GLOO)
    # When new_group() returns, Gloo has connected this rank but not necessarily the others.
    dist.barrier(gloo)
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

    def test_strided_tensors(self) -> None:
        for world in (2, 3):
            run(strided, world)

    def test_what_the_tutorials_print(self) -> None:
        run(what_the_tutorials_print, 4)

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
