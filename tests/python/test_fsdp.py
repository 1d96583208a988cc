#!/usr/bin/env python3
"""Fully sharded data parallelism, against one process that trains on the whole batch."""

import unittest

import torch
import torch.distributed as dist
from support import run
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
)
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import (
    FSDPModule,
    FullyShardedDataParallel,
    MixedPrecisionPolicy,
    ShardingStrategy,
    fully_shard,
)
from torch.distributed.tensor import DTensor, Shard
from training import (
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
    whole,
)

FULL = StateDictOptions(full_state_dict=True)


def sharded(mesh: DeviceMesh, seed: int = 3, **options) -> nn.Module:
    """Each layer with parameters in a group of its own."""
    module = model(seed)
    for layer in module:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh, **options)
    return fully_shard(module, mesh=mesh, **options)


def steps(rank: int, world: int) -> bytes:
    expected, expected_losses = trained()
    mesh = init_device_mesh("cpu", (world,))
    assert dist.get_backend(mesh.get_group()) == "unisono"
    seen = set()
    for reshard in (True, False, True):
        module = sharded(mesh, reshard_after_forward=reshard)
        losses = train(module, adam(module), rank, world)
        check_losses(losses, expected_losses)
        check_parameters(module, expected)
        seen.add(bits(module))
    assert len(seen) == 1, "repetition gave other bits"
    return seen.pop()


def hybrid(rank: int, world: int) -> None:
    """Sharded in each half, the same in both."""
    expected, expected_losses = trained()
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("replicate", "shard"))
    module = sharded(mesh)
    check_losses(train(module, adam(module), rank, world), expected_losses)
    check_parameters(module, expected)


def accumulated(rank: int, world: int) -> None:
    """Gradients of two micro-batches, clipped by the norm of all shards."""
    expected = model()
    module = sharded(init_device_mesh("cpu", (world,)))
    inputs, targets = batch(0)
    mse = nn.functional.mse_loss
    mse(expected(inputs), targets).backward()
    n_parts = 2 * world
    for i in range(2):
        module.set_requires_gradient_sync(i == 1)
        part = 2 * rank + i
        loss = mse(module(share(inputs, part, n_parts)), share(targets, part, n_parts))
        (loss / 2).backward()
    for theirs, ours in zip(expected.parameters(), module.parameters(), strict=True):
        check_close(ours.grad, theirs.grad, "accumulated gradient")
    norms = [nn.utils.clip_grad_norm_(m.parameters(), 0.1) for m in (module, expected)]
    check_close(*norms, "norm")
    assert norms[1] > 0.1
    for theirs, ours in zip(expected.parameters(), module.parameters(), strict=True):
        check_close(ours.grad, theirs.grad, "clipped gradient")


def mixed_precision(rank: int, world: int) -> None:
    """Computes in bfloat16, reduces in float32: the gradients are made of what each rank has."""
    inputs, targets = (tensor.bfloat16() for tensor in batch(0))

    def gradients(m: nn.Module, part: int) -> list[torch.Tensor]:
        m.zero_grad()
        output = m(share(inputs, part, world))
        nn.functional.mse_loss(output, share(targets, part, world)).backward()
        return [whole(parameter.grad) for parameter in m.parameters()]

    reference = model().bfloat16()
    parts = [gradients(reference, part) for part in range(world)]
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for divisor in (world, 3):
        module = sharded(init_device_mesh("cpu", (world,)), mp_policy=policy)
        if divisor != world:
            # This divisor needs a special reduction: each rank's share is scaled before the sum.
            for layer in module.modules():
                if isinstance(layer, FSDPModule):
                    layer.set_gradient_divide_factor(divisor)
        for ours, *theirs in zip(gradients(module, rank), *parts, strict=True):
            assert ours.dtype == torch.float64
            expected = sum(part.float() for part in theirs) / divisor
            torch.testing.assert_close(ours.float(), expected, rtol=1e-6, atol=1e-7)


def state_dicts(rank: int, world: int) -> None:
    expected, _ = trained()
    mesh = init_device_mesh("cpu", (world,))
    module = sharded(mesh)
    optimizer = adam(module)
    train(module, optimizer, rank, world)
    theirs = expected.state_dict()
    ours = module.state_dict()
    full = get_model_state_dict(module, options=FULL)
    assert ours.keys() == theirs.keys() == full.keys()
    for name, tensor in ours.items():
        assert isinstance(tensor, DTensor) and tensor.placements == (Shard(0),)
        pieces = theirs[name].chunk(world)
        piece = pieces[rank] if rank < len(pieces) else theirs[name][:0]
        check_close(tensor.to_local(), piece, f"shard of {name}")
        check_close(full[name], theirs[name], f"all of {name}")
    moments = get_optimizer_state_dict(module, optimizer, options=FULL)["state"]
    other = model()
    reference = adam(other)
    train(other, reference)
    for (name, _), state in zip(other.named_parameters(), reference.state.values(), strict=True):
        check_close(moments[name]["exp_avg_sq"], state["exp_avg_sq"], f"moments of {name}")
    # All ranks receive the state that only rank 0 has.
    fresh = sharded(mesh, seed=4)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(fresh, dict(theirs) if rank == 0 else {}, options=options)
    for name, tensor in fresh.state_dict().items():
        assert torch.equal(whole(tensor), theirs[name]), name
    set_model_state_dict(fresh, ours)
    assert bits(fresh) == bits(module)


def first_generation(rank: int, world: int) -> bytes:
    """FullyShardedDataParallel."""
    expected, expected_losses = trained()
    results = set()
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
        module = FullyShardedDataParallel(
            model(),
            sharding_strategy=strategy,
            device_id=torch.device("cpu"),
            use_orig_params=True,
        )
        check_losses(train(module, adam(module), rank, world), expected_losses)
        state = get_model_state_dict(module, options=FULL)
        for name, tensor in expected.state_dict().items():
            check_close(state[name], tensor, name)
        results.add(torch.cat([t.flatten() for t in state.values()]).numpy().tobytes())
    assert len(results) == 1
    return results.pop()


class FSDP(unittest.TestCase):
    def test_trains_as_one_process_does(self) -> None:
        for world, n_jobs in ((2, 2), (4, 1)):
            with self.subTest(world=world):
                results = [result for _ in range(n_jobs) for result in run(steps, world)]
                self.assertEqual(len(set(results)), 1, "another rank or job has other bits")

    def test_hybrid(self) -> None:
        run(hybrid, 4)

    def test_accumulated_and_clipped_gradients(self) -> None:
        run(accumulated, 4)

    def test_mixed_precision(self) -> None:
        run(mixed_precision, 4)

    def test_state_dicts(self) -> None:
        run(state_dicts, 4)

    def test_first_generation(self) -> None:
        results = run(first_generation, 2)
        self.assertEqual(len(set(results)), 1)


if __name__ == "__main__":
    unittest.main()
