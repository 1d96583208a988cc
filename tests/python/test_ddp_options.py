#!/usr/bin/env python3
"""What DistributedDataParallel and its optimizers offer beyond a step, against one process."""

import unittest
from collections.abc import Callable

import torch
import torch.distributed as dist
from support import run
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.algorithms.ddp_comm_hooks.ddp_zero_hook import hook_with_zero_step
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import (
    PostLocalSGDState,
    post_localSGD_hook,
)
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer, ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
from training import (
    N_STEPS,
    adam,
    batch,
    bits,
    check_close,
    check_losses,
    check_parameters,
    model,
    share,
    train,
    trained,
)

BUCKET_MB = 0.001  # Several buckets.


def parallel(module: nn.Module, **options) -> DistributedDataParallel:
    return DistributedDataParallel(module, bucket_cap_mb=BUCKET_MB, **options)


def zero(module: nn.Module, **options) -> ZeroRedundancyOptimizer:
    return ZeroRedundancyOptimizer(
        module.parameters(), optimizer_class=torch.optim.Adam, lr=0.01, **options
    )


def gradients(module: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    nn.functional.mse_loss(module(inputs), targets).backward()
    return [parameter.grad.clone() for parameter in module.parameters()]


def gradients_of_parts(n_parts: int) -> list[list[torch.Tensor]]:
    """What each rank has before it is averaged, of the first batch."""
    inputs, targets = batch(0)
    return [
        gradients(model(), share(inputs, part, n_parts), share(targets, part, n_parts))
        for part in range(n_parts)
    ]


def in_bfloat16(state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """torch accepts the hook itself on GPUs only."""
    return default_hooks.bf16_compress_hook(state, bucket)


def compressed(rank: int, world: int) -> None:
    """Gradients that travel as 16 bits: the very sums of those."""
    inputs, targets = (share(tensor, rank, world) for tensor in batch(0))
    for hook, dtype in (
        (in_bfloat16, torch.bfloat16),
        (default_hooks.fp16_compress_hook, torch.float16),
    ):
        module = parallel(model())
        module.register_comm_hook(None, hook)
        actual = gradients(module, inputs, targets)
        for mine, *parts in zip(actual, *gradients_of_parts(world), strict=True):
            expected = sum(part.to(dtype) / world for part in parts).double()
            assert torch.equal(mine, expected), f"{dtype}: {mine} instead of {expected}"


def of_low_rank(rank: int, world: int) -> None:
    """PowerSGD is exact where the gradient has no more rank than it is given: a row each."""
    inputs, targets = (tensor[:world] for tensor in batch(0))
    expected = gradients(model(), inputs, targets)
    module = parallel(model())
    state = PowerSGDState(
        None,
        matrix_approximation_rank=world,
        start_powerSGD_iter=0,
        use_error_feedback=False,
        warm_start=False,
        min_compression_rate=1,
    )
    module.register_comm_hook(state, powerSGD_hook)
    actual = gradients(module, inputs[rank : rank + 1], targets[rank : rank + 1])
    for mine, theirs in zip(actual, expected, strict=True):
        check_close(mine, theirs, "gradient")
    assert state.compression_stats()[0] > 1, "nothing was compressed"


def post_local(rank: int, world: int) -> None:
    """Averages gradients of all at first, of pairs later, and parameters now and then."""
    n_global_steps, period = 2, 2
    pair, _ = dist.new_subgroups(group_size=2)
    module = parallel(model())
    state = PostLocalSGDState(None, pair, start_localSGD_iter=n_global_steps)
    module.register_comm_hook(state, post_localSGD_hook)
    averager = PeriodicModelAverager(period=period, warmup_steps=n_global_steps)
    optimizer = PostLocalSGDOptimizer(adam(module), averager)
    n_steps = 6
    train(module, optimizer, rank, world, range(n_steps))
    replicas = [model() for _ in range(world)]
    optimizers = [adam(replica) for replica in replicas]
    for step in range(n_steps):
        parts = [[share(t, r, world) for t in batch(step)] for r in range(world)]
        found = [gradients(m, *part) for m, part in zip(replicas, parts, strict=True)]
        size = world if step < n_global_steps else 2
        for r, replica in enumerate(replicas):
            together = found[r // size * size :][:size]
            for parameter, *theirs in zip(replica.parameters(), *together, strict=True):
                parameter.grad = sum(theirs) / size
            optimizers[r].step()
        if step >= n_global_steps and (step - n_global_steps) % period == 0:
            with torch.no_grad():
                for of_all in zip(*[m.parameters() for m in replicas], strict=True):
                    mean = sum(of_all) / world
                    for parameter in of_all:
                        parameter.copy_(mean)
    check_parameters(module.module, replicas[rank])
    assert bits(replicas[0]) != bits(replicas[-1])


class Uneven(nn.Module):
    """A layer that is used twice, one that never is, and one that is computed anew."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(9)
        self.first = nn.Linear(12, 12)
        self.unused = nn.Linear(3, 3)
        self.last = nn.Linear(12, 6)
        self.double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.first(x).tanh()).tanh()
        return checkpoint(self.last, x, use_reentrant=False)


def unusual_graphs(rank: int, world: int) -> None:
    expected = Uneven()
    expected_losses = train(expected, torch.optim.SGD(expected.parameters(), lr=0.1))
    for options in (
        {"static_graph": True},
        {"static_graph": True, "gradient_as_bucket_view": True},
        {"find_unused_parameters": True},
    ):
        module = parallel(Uneven(), **options)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        check_losses(train(module, optimizer, rank, world), expected_losses)
        check_parameters(module.module, expected)


def accumulated(rank: int, world: int) -> None:
    """no_sync() leaves gradients on their ranks until the next step."""
    module = parallel(model())
    n_parts = 2 * world
    halves = [[share(t, 2 * rank + i, n_parts) for t in batch(0)] for i in range(2)]
    with module.no_sync():
        (nn.functional.mse_loss(module(halves[0][0]), halves[0][1]) / 2).backward()
    (nn.functional.mse_loss(module(halves[1][0]), halves[1][1]) / 2).backward()
    expected = gradients(model(), *batch(0))
    for parameter, theirs in zip(module.parameters(), expected, strict=True):
        check_close(parameter.grad, theirs, "gradient")


def sharded_optimizer(rank: int, world: int) -> None:
    expected, expected_losses = trained()
    for as_views in (False, True):
        module = parallel(model())
        optimizer = zero(module, parameters_as_bucket_view=as_views)
        check_losses(train(module, optimizer, rank, world), expected_losses)
        check_parameters(module.module, expected)
        n_mine = sum(len(group["params"]) for group in optimizer.optim.param_groups)
        assert 0 < n_mine < len(list(module.parameters())), "each rank updates all"
    # Collects the whole state on each rank in turn.
    reference = model()
    theirs = adam(reference)
    train(reference, theirs)
    for to in range(world):
        optimizer.consolidate_state_dict(to=to)
        if rank == to:
            state = optimizer.state_dict()["state"]
            for i, of_parameter in theirs.state_dict()["state"].items():
                check_close(state[i]["exp_avg"], of_parameter["exp_avg"], f"moments of {i}")


def sharded_optimizer_in_backward(rank: int, world: int) -> None:
    """Each rank's share is updated as soon as its gradients are there."""
    module = parallel(model())
    optimizer = zero(module, overlap_with_ddp=True)
    hook = hook_with_zero_step(default_hooks.allreduce_hook, module, optimizer)
    module.register_comm_hook(None, hook)
    for step in range(N_STEPS + 2):  # It looks at the graph in the first two.
        inputs, targets = (share(t, rank, world) for t in batch(max(0, step - 2)))
        module.zero_grad()
        nn.functional.mse_loss(module(inputs), targets).backward()
    expected, _ = trained()
    check_parameters(module.module, expected)


def joined(rank: int, world: int) -> None:
    """Rank r has r + 1 batches; when it has none, it takes part in what others do."""
    module = parallel(model())
    optimizer = zero(module)
    with Join([module, optimizer]):
        train(module, optimizer, rank, world, range(rank + 1))
    owners = [optimizer._param_to_rank[parameter] for parameter in module.parameters()]
    expected = model()
    theirs = adam(expected)
    means = []
    for step in range(world):
        parts = [[share(t, r, world) for t in batch(step)] for r in range(step, world)]
        found = [gradients(expected, *part) for part in parts]
        means.append([sum(of_parameter) / world for of_parameter in zip(*found, strict=True)])
        for i, parameter in enumerate(expected.parameters()):
            # A rank without a batch updates its share with its last gradients, as torch does.
            parameter.grad = means[min(step, owners[i])][i]
        theirs.step()
    check_parameters(module.module, expected)


class DDP(unittest.TestCase):
    def run_in_worlds(self, body: Callable) -> None:
        for world in (2, 3):
            with self.subTest(world=world):
                run(body, world)

    def test_compressed(self) -> None:
        run(compressed, 2)

    def test_of_low_rank(self) -> None:
        self.run_in_worlds(of_low_rank)

    def test_post_local(self) -> None:
        run(post_local, 4)

    def test_unusual_graphs(self) -> None:
        self.run_in_worlds(unusual_graphs)

    def test_accumulated(self) -> None:
        self.run_in_worlds(accumulated)

    def test_sharded_optimizer(self) -> None:
        self.run_in_worlds(sharded_optimizer)

    def test_sharded_optimizer_in_backward(self) -> None:
        self.run_in_worlds(sharded_optimizer_in_backward)

    def test_joined(self) -> None:
        self.run_in_worlds(joined)


if __name__ == "__main__":
    unittest.main()
