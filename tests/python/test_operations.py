#!/usr/bin/env python3
"""Every operation of the backend against what one process computes from all ranks' inputs."""

import functools
import operator
import threading
import unittest

import torch
import torch.distributed as dist
from support import run

WORLDS = (1, 2, 3)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
WIDE_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
ALL_TYPES = (*FLOATS, *COMPLEX, *INTEGERS, *WIDE_UNSIGNED, torch.bool)
SIZES = ((), (0,), (1,), (5,), (3, 7), (2, 0, 3), (100_003,))


def values(rank: int, size: tuple, dtype: torch.dtype, salt: int = 0) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in every type; each rank's are others."""
    n = 1
    for dim in size:
        n *= dim
    numbers = (torch.arange(n, dtype=torch.int64) * 7 + rank * 3 + salt) % 5
    if dtype == torch.bool:
        return (numbers % 2 == 1).reshape(size)
    if dtype.is_complex:
        return torch.complex(numbers.double(), (numbers - rank).double()).to(dtype).reshape(size)
    return numbers.to(dtype).reshape(size)


def spread(tensor: torch.Tensor) -> torch.Tensor:
    """The same elements, not contiguous."""
    room = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
    room[..., 0] = tensor
    return room[..., 0]


def check(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    if actual.dtype != expected.dtype or not torch.equal(actual, expected):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def reduced(op, world: int, make) -> torch.Tensor:
    return functools.reduce(op, [make(r) for r in range(world)])


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype in WIDE_UNSIGNED:
        return (a.to(torch.int64) + b.to(torch.int64)).to(a.dtype)
    return a | b if a.dtype == torch.bool else a + b


def every_type(rank: int, world: int) -> None:
    for dtype in ALL_TYPES:
        for size in SIZES:
            what = f"{dtype} {size}"
            expected = reduced(add, world, lambda r: values(r, size, dtype))  # noqa: B023
            tensor = values(rank, size, dtype)
            dist.all_reduce(tensor)
            check(tensor, expected, f"all_reduce {what}")
            if len(size) > 0:
                tensor = spread(values(rank, size, dtype))
                dist.all_reduce(tensor)
                check(tensor, expected, f"all_reduce, not contiguous, {what}")
            for root in range(world):
                tensor = spread(values(rank, size, dtype, root))
                dist.broadcast(tensor, root)
                check(tensor, values(root, size, dtype, root), f"broadcast {what}")
            outs = [spread(torch.zeros(size, dtype=dtype)) for _ in range(world)]
            dist.all_gather(outs, values(rank, size, dtype))
            for r in range(world):
                check(outs[r], values(r, size, dtype), f"all_gather {what}")


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    return torch.tensor([], dtype=torch.uint8).set_(tensor.untyped_storage())


def filled(rank: int, dtype: torch.dtype) -> torch.Tensor:
    tensor = torch.empty(3, dtype=dtype)
    n_bytes = bytes_of(tensor).numel()
    bytes_of(tensor).copy_(torch.arange(n_bytes, dtype=torch.uint8) + 50 * rank)
    return tensor


def moved(rank: int, world: int) -> None:
    """What computes nothing takes every type but quantized ones, which c10d does not take."""
    kinds = {kind for kind in vars(torch).values() if isinstance(kind, torch.dtype)}
    dtypes = [kind for kind in kinds if not str(kind).startswith(("torch.q", "torch.uint0"))]
    assert torch.float8_e8m0fnu in dtypes and torch.bits16 in dtypes and torch.complex32 in dtypes
    for dtype in sorted(dtypes, key=str):

        def same(tensor: torch.Tensor, r: int) -> None:
            check(bytes_of(tensor), bytes_of(filled(r, dtype)), str(dtype))  # noqa: B023

        tensors = [filled(9, dtype) for _ in range(world)]
        dist.all_gather(tensors, filled(rank, dtype))
        for r in range(world):
            same(tensors[r], r)
        out = filled(9, dtype)
        dist.scatter(out, tensors if rank == 0 else None, 0)
        same(out, rank)
        dist.gather(out, tensors if rank == 0 else None, 0)
        others = [filled(9, dtype) for _ in range(world)]
        dist.all_to_all(others, tensors)
        dist.broadcast(out, world - 1)
        same(out, world - 1)
        sent = dist.isend(filled(rank, dtype), (rank + 1) % world)
        dist.recv(out, (rank - 1) % world)
        same(out, (rank - 1) % world)
        sent.wait()


def reductions(rank: int, world: int) -> None:
    cases = [
        (dist.ReduceOp.PRODUCT, operator.mul, (*FLOATS, *INTEGERS)),
        (dist.ReduceOp.MIN, torch.minimum, (*FLOATS, *INTEGERS)),
        (dist.ReduceOp.MAX, torch.maximum, (*FLOATS, *INTEGERS)),
        (dist.ReduceOp.BAND, operator.and_, INTEGERS),
        (dist.ReduceOp.BOR, operator.or_, INTEGERS),
        (dist.ReduceOp.BXOR, operator.xor, INTEGERS),
    ]
    for op, reference, dtypes in cases:
        for dtype in dtypes:
            tensor = values(rank, (33,), dtype)
            dist.all_reduce(tensor, op)
            expected = reduced(reference, world, lambda r: values(r, (33,), dtype))  # noqa: B023
            check(tensor, expected, f"{op} {dtype}")
    mean = torch.full((4,), float(rank * world))
    dist.all_reduce(mean, dist.ReduceOp.AVG)
    check(mean, torch.full((4,), float(sum(range(world)))), "AVG")
    scaled = values(rank, (9,), torch.float32)
    dist.all_reduce(scaled, dist._make_nccl_premul_sum(0.5))
    total = reduced(operator.add, world, lambda r: values(r, (9,), torch.float32))
    check(scaled, total * 0.5, "PREMUL_SUM")
    for root in range(world):
        tensor = spread(values(rank, (6,), torch.float32))
        dist.reduce(tensor, root)
        total = reduced(operator.add, world, lambda r: values(r, (6,), torch.float32))
        mine = values(rank, (6,), torch.float32)
        check(tensor, total if rank == root else mine, "reduce")


def scatters(rank: int, world: int) -> None:
    def block(r: int, to: int) -> torch.Tensor:
        return values(r, (2, 3), torch.float32, to)

    def total(to: int) -> torch.Tensor:
        return reduced(operator.add, world, lambda r: block(r, to))

    for is_async in (False, True):
        out = spread(torch.zeros(2, 3))
        blocks = [spread(block(rank, r)) for r in range(world)]
        finish(dist.reduce_scatter(out, blocks, async_op=is_async))
        check(out, total(rank), "reduce_scatter")
        out = torch.zeros(2, 3)
        joined = torch.cat([block(rank, r) for r in range(world)])
        finish(dist.reduce_scatter_tensor(out, joined, async_op=is_async))
        check(out, total(rank), "reduce_scatter_tensor")
        for root in range(world):
            out = spread(torch.zeros(2, 3))
            ins = [block(root, r) for r in range(world)] if rank == root else None
            finish(dist.scatter(out, ins, src=root, async_op=is_async))
            check(out, block(root, rank), "scatter")
            outs = [torch.zeros(2, 3) for _ in range(world)] if rank == root else None
            finish(dist.gather(block(rank, 1), outs, dst=root, async_op=is_async))
            for r, out in enumerate(outs or []):
                check(out, block(r, 1), "gather")
        out = torch.zeros(2 * world, 3)
        finish(dist.all_gather_into_tensor(out, block(rank, 0), async_op=is_async))
        check(out, torch.cat([block(r, 0) for r in range(world)]), "all_gather_into_tensor")


def uneven_lists(rank: int, world: int) -> None:
    def block(r: int, to: int) -> torch.Tensor:
        return values(r, (to % 3, 2), torch.float32, to)  # Some have no rows.

    for is_async in (False, True):
        outs = [spread(torch.zeros(r % 3, 2)) for r in range(world)]
        finish(dist.all_gather(outs, block(rank, rank), async_op=is_async))
        for r, out in enumerate(outs):
            check(out, block(r, r), "all_gather of different sizes")
        out = torch.zeros(rank % 3, 2)
        finish(dist.reduce_scatter(out, [block(rank, r) for r in range(world)], async_op=is_async))
        total = reduced(operator.add, world, lambda r: block(r, rank))
        check(out, total, "reduce_scatter of different sizes")


def finish(work: dist.Work | None) -> None:
    if work is not None:
        work.wait()
        assert work.is_completed() and work.is_success()


def exchanges(rank: int, world: int) -> None:
    def rows(r: int, to: int) -> int:
        return (r + 2 * to) % 3  # Uneven, some none.

    def block(r: int, to: int, dtype: torch.dtype) -> torch.Tensor:
        return values(r, (rows(r, to), 2), dtype, to)

    for dtype in (torch.float32, torch.complex64, torch.int64):
        for is_async in (False, True):
            ins = [block(rank, r, dtype) for r in range(world)]
            outs = [torch.zeros(rows(r, rank), 2, dtype=dtype) for r in range(world)]
            finish(dist.all_to_all(outs, ins, async_op=is_async))
            for r in range(world):
                check(outs[r], block(r, rank, dtype), "all_to_all")
            joined = torch.zeros(sum(rows(r, rank) for r in range(world)), 2, dtype=dtype)
            finish(
                dist.all_to_all_single(
                    joined,
                    torch.cat(ins),
                    [rows(r, rank) for r in range(world)],
                    [rows(rank, r) for r in range(world)],
                    async_op=is_async,
                )
            )
            expected = torch.cat([block(r, rank, dtype) for r in range(world)])
            check(joined, expected, "all_to_all_single")
            even = torch.zeros(world, 2, dtype=dtype)
            dist.all_to_all_single(even, values(rank, (world, 2), dtype))
            for r in range(world):
                check(even[r], values(r, (world, 2), dtype)[rank], "even all_to_all_single")


def coalesced(rank: int, world: int) -> None:
    sizes = ((3,), (), (2, 2), (0,))
    tensors = [
        spread(values(rank, size, torch.float32)) if size else values(rank, size, torch.float32)
        for size in sizes
    ]
    dist.all_reduce_coalesced(tensors)
    for tensor, size in zip(tensors, sizes, strict=True):
        expected = reduced(operator.add, world, lambda r: values(r, size, torch.float32))  # noqa: B023
        check(tensor, expected, "all_reduce_coalesced")
    tied = values(rank, (3,), torch.float32)
    dist.all_reduce_coalesced([tied, torch.ones(2), tied])
    expected = reduced(operator.add, world, lambda r: values(r, (3,), torch.float32))
    check(tied, expected, "all_reduce_coalesced of one tensor twice")
    ins = [values(rank, (4,), torch.float32, i) for i in range(3)]
    outs = [torch.zeros(4 * world) for _ in range(3)]
    with dist._coalescing_manager():
        for one_out, one_in in zip(outs, ins, strict=True):
            dist.all_gather_into_tensor(one_out, one_in)
    for i, out in enumerate(outs):
        expected = torch.cat([values(r, (4,), torch.float32, i) for r in range(world)])
        check(out, expected, "all_gather_into_tensor, coalesced")
    shares = [torch.zeros(4) for _ in range(3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for share, out in zip(shares, outs, strict=True):
            dist.reduce_scatter_tensor(share, out)
    manager.wait()
    for i, share in enumerate(shares):
        check(
            share, values(rank, (4,), torch.float32, i) * world, "reduce_scatter_tensor, coalesced"
        )


def coalesced_by_hand(rank: int, world: int) -> None:
    """A block that is never ended, and one beside which another thread works."""
    cpu, group = torch.device("cpu"), dist.group.WORLD
    group._start_coalescing(cpu)
    unended = [torch.ones(1) for _ in range(5)]
    for tensor in unended:
        group.allreduce([tensor]).wait()
    group._start_coalescing(cpu)
    others = [torch.ones(1) for _ in range(3)]
    of_others = []

    def work() -> None:
        of_others.extend(group.allreduce([tensor]) for tensor in others)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    tensor = torch.ones(1)
    group.allreduce([tensor])
    group._end_coalescing(cpu).wait()
    for one in of_others:
        one.wait()
    for one in [tensor, *unended, *others]:
        assert one.item() == world
    try:
        group._end_coalescing(cpu)
        raise AssertionError("a second end was accepted")
    except RuntimeError as error:
        assert "there was no start_coalescing" in str(error)


def sparse(rank: int, world: int) -> None:
    def make(r: int) -> torch.Tensor:
        indices = torch.arange(r + 1).repeat(2, 1)
        return torch.sparse_coo_tensor(indices, values(r, (r + 1, 3), torch.float32), (8, 8, 3))

    expected = reduced(operator.add, world, lambda r: make(r).to_dense())
    for is_async in (False, True):
        tensor = make(rank)
        finish(dist.all_reduce(tensor, async_op=is_async))
        check(tensor.to_dense(), expected, "sparse all_reduce")
    nothing = torch.sparse_coo_tensor(torch.zeros(1, 0, dtype=torch.int64), torch.zeros(0), (4,))
    dist.all_reduce(nothing)
    check(nothing.to_dense(), torch.zeros(4), "sparse all_reduce of nothing")


def messages(rank: int, world: int) -> None:
    right, left = (rank + 1) % world, (rank - 1) % world
    for dtype in ALL_TYPES:
        for size in ((), (0,), (70_000,)):
            into = torch.zeros(size, dtype=dtype)
            sending = dist.isend(values(rank, size, dtype), right, tag=4)
            dist.recv(into, left, tag=4)
            sending.wait()
            check(into, values(left, size, dtype), f"message {dtype} {size}")
    into = spread(torch.zeros(5))
    sending = dist.isend(spread(values(rank, (5,), torch.float32)), right)
    assert dist.recv(into) == left
    sending.wait()
    check(into, values(left, (5,), torch.float32), "message from any source")
    into = torch.zeros(6)
    batch = [
        dist.P2POp(dist.isend, values(rank, (6,), torch.float32), right),
        dist.P2POp(dist.irecv, into, left),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    check(into, values(left, (6,), torch.float32), "batch")


def handles(rank: int, world: int) -> None:
    tensors = [values(rank, (1000,), torch.float32, i) for i in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for i, work in reversed(list(enumerate(works))):
        work.wait()
        expected = reduced(operator.add, world, lambda r: values(r, (1000,), torch.float32, i))  # noqa: B023
        check(tensors[i], expected, "asynchronous all_reduce")
        check(work.result()[0], expected, "result")
        check(work.get_future().value()[0], expected, "future")

    # A callback of a future may wait for another operation of the group.
    def again(future: torch.futures.Future) -> torch.Tensor:
        (tensor,) = future.value()
        return dist.all_reduce(tensor, async_op=True).get_future().wait()[0]

    tensor = torch.ones(3)
    chained = dist.all_reduce(tensor, async_op=True).get_future().then(again)
    check(chained.wait(), torch.full((3,), float(world**2)), "chained futures")


def views(rank: int, world: int) -> None:
    total = float(sum(range(1, world + 1)))
    leaf = torch.full((3,), rank + 1.0, requires_grad=True)
    dist.all_reduce(leaf)
    check(leaf.detach(), torch.full((3,), total), "a leaf")
    transposed = torch.full((2, 3), rank + 1.0).t()
    with torch.inference_mode():
        inference = torch.full((2, 3), rank + 1.0).t()
    for tensor in (transposed, inference):
        finish(dist.all_reduce(tensor, async_op=True))
        check(tensor, torch.full((3, 2), total), "a transposed tensor")
    conjugate = torch.full((2,), complex(rank, rank)).conj()
    # dist.broadcast() itself rejects lazy conjugates.
    options = dist.BroadcastOptions()
    options.rootRank, options.rootTensor = world - 1, 0
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    backend.broadcast([conjugate], options).wait()
    n = float(world - 1)
    check(conjugate.resolve_conj(), torch.full((2,), complex(n, -n)), "a conjugate")


def titles(rank: int, world: int) -> None:
    whole, part = torch.zeros(2 * world), torch.zeros(2)
    parts, lists = list(whole.chunk(world)), rank == 0
    calls = {
        "all_reduce": lambda: dist.all_reduce(part),
        "broadcast": lambda: dist.broadcast(part, 0),
        "reduce": lambda: dist.reduce(part, 0),
        "all_gather": lambda: dist.all_gather_into_tensor(whole, part),
        "gather": lambda: dist.gather(part, parts if lists else None),
        "scatter": lambda: dist.scatter(part, parts if lists else None),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, whole),
        "all_to_all": lambda: dist.all_to_all_single(torch.zeros(2 * world), whole),
        "barrier": dist.barrier,
        "send" if lists else "recv": lambda: (dist.send if lists else dist.recv)(part, 1 - rank),
    }
    for name, call in calls.items():
        with torch.profiler.profile() as profile:
            call()
        seen = {event.key for event in profile.key_averages() if event.key.startswith("unisono:")}
        assert seen == {f"unisono:{name}"}, (name, seen)


class Operations(unittest.TestCase):
    def run_in_all_worlds(self, body) -> None:
        for world in WORLDS:
            with self.subTest(world=world):
                run(body, world)

    def test_every_type_and_size(self) -> None:
        self.run_in_all_worlds(every_type)

    def test_every_type_is_moved(self) -> None:
        run(moved, 2)

    def test_reductions(self) -> None:
        self.run_in_all_worlds(reductions)

    def test_gather_and_scatter(self) -> None:
        self.run_in_all_worlds(scatters)

    def test_lists_of_different_sizes(self) -> None:
        self.run_in_all_worlds(uneven_lists)

    def test_all_to_all(self) -> None:
        self.run_in_all_worlds(exchanges)

    def test_coalesced(self) -> None:
        self.run_in_all_worlds(coalesced)
        self.run_in_all_worlds(coalesced_by_hand)

    def test_sparse(self) -> None:
        self.run_in_all_worlds(sparse)

    def test_messages(self) -> None:
        for world in WORLDS[1:]:
            with self.subTest(world=world):
                run(messages, world)

    def test_handles(self) -> None:
        self.run_in_all_worlds(handles)

    def test_profiler_shows_the_names(self) -> None:
        run(titles, 2)

    def test_views(self) -> None:
        self.run_in_all_worlds(views)


if __name__ == "__main__":
    unittest.main()
