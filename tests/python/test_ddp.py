#!/usr/bin/env python3
"""DistributedDataParallel with its buckets in memory that the ranks share, and such tensors."""

import contextlib
import copy
import itertools
import os
import re
import unittest
import warnings
from pathlib import Path

import torch
import torch.distributed as dist
from ddp_net import WIDTH, backward, refused, wrap
from support import init_again, run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import unisono

WORLDS = (1, 2, 3)


def train(
    model: DistributedDataParallel, rank: int, hook=None, *, set_to_none: bool = True
) -> list[torch.Tensor]:
    """All parameters and gradients, after each of some steps."""
    if hook is not None:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    history = []
    for step in range(5):
        optimizer.zero_grad(set_to_none)
        if step == 3:
            with model.no_sync():
                backward(model, rank, 50)
        backward(model, rank, step)
        history += [p.grad.clone() for p in model.parameters() if p.grad is not None]
        optimizer.step()
        history += [p.detach().clone() for p in model.parameters()]
    return history


def twice(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """A hook whose result is another tensor than the bucket."""
    total = bucket.buffer() * 2
    work = dist.all_reduce(total, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


CASES = [
    ({**kind, "gradient_as_bucket_view": views}, hook)
    for kind, views, hook in itertools.product(
        ({}, {"static_graph": True}, {"find_unused_parameters": True, "has_rare_layer": True}),
        (False, True),
        (None, twice, default_hooks.fp16_compress_hook),
    )
]


def same_bits(rank: int, world: int) -> None:
    for (options, hook), set_to_none in itertools.product(CASES, (True, False)):
        if hook is not None and not set_to_none:
            continue  # What the gradients were before does not concern hooks.
        plain = train(wrap(False, **options), rank, hook, set_to_none=set_to_none)
        fast = train(wrap(True, **options), rank, hook, set_to_none=set_to_none)
        assert len(plain) == len(fast)
        for i, (a, b) in enumerate(zip(plain, fast, strict=True)):
            assert torch.equal(a, b), f"{options}, {hook}: tensor {i} differs"


def uneven(rank: int, world: int) -> None:
    results = []
    for is_enabled in (False, True):
        model = wrap(is_enabled)
        with model.join():
            for step in range(2 + rank):
                backward(model, rank, step)
        results.append([parameter.grad for parameter in model.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def compiled(rank: int, world: int) -> None:
    results = []
    for is_enabled in (False, True):
        # torch does not compile the model with smaller buckets.
        model = wrap(is_enabled, gradient_as_bucket_view=True, bucket_cap_mb=1)
        run_model = torch.compile(model, backend="eager")
        for step in range(3):
            backward(run_model, rank, step)
        results.append([parameter.grad for parameter in model.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b) and unisono.is_symmetric(b)


def where_buckets_are(rank: int, world: int, is_enabled: bool, options: dict) -> list[list[bool]]:
    """Of each step, whether each bucket was symmetric when it was reduced."""
    seen = []

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen[-1].append(unisono.is_symmetric(bucket.buffer()))
        return default_hooks.allreduce_hook(None, bucket)

    model = wrap(is_enabled, **options)
    model.register_comm_hook(None, hook)
    for step in range(4):
        seen.append([])
        backward(model, rank, step)
    return seen


def enabled_twice(rank: int, world: int) -> None:
    model = wrap(True)
    for step in range(2):
        backward(model, rank, step)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    unisono.ddp.enable(model)  # In the midst of it: nothing changes.
    refused(
        ValueError,
        "the other choice of views",
        lambda: unisono.ddp.enable(model, gradient_as_bucket_view=False),
    )
    assert len(model._forward_hooks) == 1
    for old, parameter in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, parameter.grad)


def enabled_late(rank: int, world: int) -> None:
    """After some steps, with gradients that lie in the buckets: they move along."""
    model = wrap(False, gradient_as_bucket_view=True)
    for step in range(3):
        backward(model, rank, step)
    gradients = [parameter.grad for parameter in model.parameters()]
    before = [gradient.clone() for gradient in gradients]
    unisono.ddp.enable(model)
    for old, gradient, parameter in zip(before, gradients, model.parameters(), strict=True):
        assert gradient is parameter.grad and torch.equal(old, gradient)
        assert unisono.is_symmetric(gradient)
    backward(model, rank, 3)


def copied(rank: int, world: int) -> None:
    model = wrap(True, gradient_as_bucket_view=True)
    for step in range(2):
        backward(model, rank, step)
    other = copy.deepcopy(model)
    for step in range(3):
        for one in (model, other):
            one.zero_grad()
            backward(one, rank, step)
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            assert torch.equal(a.grad, b.grad) and a.grad is not b.grad
            assert unisono.is_symmetric(a.grad) and unisono.is_symmetric(b.grad)


def outlive(rank: int, world: int) -> None:
    model = wrap(True, gradient_as_bucket_view=True)
    for step in range(3):
        backward(model, rank, step)
    before = [parameter.grad.clone() for parameter in model.parameters()]
    numbers = unisono.empty(1000)
    numbers += rank
    init_again(rank, world, "second")
    assert not unisono.is_symmetric(numbers), "it is of another job"
    dist.all_reduce(numbers)
    assert numbers.tolist() == [sum(range(world))] * 1000
    again = wrap(True, gradient_as_bucket_view=True)
    for step in range(3):
        backward(again, rank, step)
    for old, a, b in zip(before, model.parameters(), again.parameters(), strict=True):
        assert torch.equal(old, a.grad) and torch.equal(old, b.grad)
        assert unisono.is_symmetric(b.grad) and not unisono.is_symmetric(a.grad)
    dist.destroy_process_group()
    torch.optim.SGD(again.parameters(), lr=0.1).step()
    del model, again, numbers


def fork_children(rank: int, world: int) -> None:
    model = wrap(True, gradient_as_bucket_view=True)
    numbers = unisono.empty(5000)
    numbers += 7
    data = TensorDataset(torch.arange(12.0).repeat(WIDTH, 1).t().contiguous())
    # The loader forks its workers in each epoch.
    loader = DataLoader(data, batch_size=3, num_workers=2, multiprocessing_context="fork")
    for _ in range(2):
        for step, (batch,) in enumerate(loader):
            model(batch, step).square().mean().backward()
    before = [parameter.grad.clone() for parameter in model.parameters()]
    child = os.fork()
    if child == 0:
        # The child releases resources of the parent, and a new file may reuse the number of a
        # descriptor.
        with contextlib.ExitStack() as stack:
            files = [stack.enter_context(Path(f"{rank}-{i}").open("w+b")) for i in range(100)]
            for file in files:
                file.write(b"x" * 8192)
                file.flush()
            model, numbers = None, None
            are_whole = all(file.seek(0) == 0 and b"\0" not in file.read() for file in files)
        os._exit(3 if are_whole else 4)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    for old, parameter in zip(before, model.parameters(), strict=True):
        assert torch.equal(old, parameter.grad)
    dist.all_reduce(numbers)
    assert numbers.tolist() == [7 * world] * 5000


def in_full_arena(rank: int, world: int) -> None:
    init_again(rank, world, "small", environment={"UNISONO_ARENA_BYTES": "32M"})
    room = [unisono.empty(1 << 18)]  # Given back, it has room for a bucket, and not for all.
    for n_elements in (1 << 18, 1 << 12):
        try:
            while True:
                room.append(unisono.empty(n_elements))
        except RuntimeError as error:
            assert "UNISONO_ARENA_BYTES" in str(error)
    del room[0]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = wrap(True)
        fast = train(model, rank)
    texts = [str(warning.message) for warning in caught if "unisono.ddp" in str(warning.message)]
    assert len(texts) == 2, texts  # When it is wrapped, and when torch has made other buckets.
    assert "1 of 1 gradient buckets stay in private memory" in texts[0], texts
    assert re.search(r"[1-9] of [2-9] gradient buckets stay", texts[1]), texts
    assert "UNISONO_ARENA_BYTES" in texts[1], texts
    for a, b in zip(train(wrap(False), rank), fast, strict=True):
        assert torch.equal(a, b)


def tensors(rank: int, world: int) -> None:
    group = dist.new_group(list(range(world)))
    for shape, size in ((5, (5,)), ((2, 3), (2, 3)), ([], ()), (0, (0,)), (torch.Size([4]), (4,))):
        for dtype in (None, torch.float64, torch.int32, torch.bfloat16, torch.bool):
            tensor = unisono.empty(shape, dtype=dtype, group=group)
            assert tensor.shape == size and tensor.dtype == (dtype or torch.float32)
            assert not tensor.any()
            for one in (None, group):
                assert unisono.is_symmetric(tensor, group=one) == (tensor.numel() > 0)
    tensor = unisono.empty((300, 400))
    for view, is_symmetric in ((tensor[7:9], True), (tensor.t(), False), (tensor[:, 1], False)):
        assert unisono.is_symmetric(view) == is_symmetric
    assert not unisono.is_symmetric(torch.ones(3))
    assert not unisono.is_symmetric(torch.ones(3).to_sparse())
    tensor += rank + 1
    for is_async in (False, True):
        work = dist.all_reduce(tensor[5:], async_op=is_async)
        if work is not None:
            work.wait()
    total = sum(range(1, world + 1))
    assert tensor[:5].eq(rank + 1).all() and tensor[5:].eq(total * world).all()


def wrong_arguments(rank: int, world: int) -> None:
    refused(TypeError, "not a Linear: wrap the model", lambda: unisono.ddp.enable(nn.Linear(2, 2)))
    refused(RuntimeError, "size is negative", lambda: unisono.empty(-1))
    refused(RuntimeError, "of type Float8_e4m3fn", lambda: unisono.empty(3, torch.float8_e4m3fn))
    model = nn.Linear(2, 2)
    dist.destroy_process_group()
    refused(ValueError, "unisono.empty: there is no process group", lambda: unisono.empty(3))
    dist.init_process_group(
        "gloo", init_method=f"file://{Path.cwd()}/gloo", rank=rank, world_size=world
    )
    on_gloo = DistributedDataParallel(model)
    refused(
        ValueError,
        "unisono.ddp.enable: the group's backend for CPU tensors is 'gloo'",
        lambda: unisono.ddp.enable(on_gloo),
    )


class DataParallel(unittest.TestCase):
    def test_same_bits_as_without(self) -> None:
        for world in WORLDS:
            with self.subTest(world=world):
                run(same_bits, world)

    def test_buckets_are_symmetric_in_every_step(self) -> None:
        for is_enabled, options in itertools.product(
            (False, True),
            ({}, {"static_graph": True}, {"find_unused_parameters": True, "has_rare_layer": True}),
        ):
            with self.subTest(is_enabled=is_enabled, options=options):
                for steps in run(where_buckets_are, 2, is_enabled, options):
                    for step in steps:
                        self.assertGreaterEqual(len(step), 1)
                        self.assertEqual(set(step), {is_enabled})
                    self.assertGreater(len(steps[-1]), 1, "torch has not made several buckets")

    def test_enabled_twice(self) -> None:
        run(enabled_twice, 2)

    def test_uneven_inputs(self) -> None:
        run(uneven, 2)

    def test_compiled_model(self) -> None:
        run(compiled, 2)

    def test_enabled_after_some_steps(self) -> None:
        run(enabled_late, 2)

    def test_copies_have_symmetric_buckets_of_their_own(self) -> None:
        run(copied, 2)

    def test_gradients_outlive_the_group(self) -> None:
        run(outlive, 2)

    def test_forked_children_leave_the_memory_alone(self) -> None:
        run(fork_children, 2)

    def test_full_arena_is_a_warning(self) -> None:
        run(in_full_arena, 2)

    def test_wrong_arguments(self) -> None:
        run(wrong_arguments, 2)


class Tensors(unittest.TestCase):
    def test_in_symmetric_memory(self) -> None:
        for world in WORLDS:
            with self.subTest(world=world):
                run(tensors, world)


if __name__ == "__main__":
    unittest.main()
