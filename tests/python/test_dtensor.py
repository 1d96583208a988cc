#!/usr/bin/env python3
"""DTensor, and the tensor parallelism that is made of it, against whole tensors."""

import itertools
import unittest

import torch
import torch.distributed as dist
from support import run
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
)
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from training import adam, bits, check_close, check_losses, check_parameters, model, train, trained

# Numbers of rows and columns that are divisible by the world size, not divisible, or smaller.
SIZES = ((4, 8), (10, 7), (3, 5), (1, 4), (0, 3))
LAYOUTS = (Replicate(), Shard(0), Shard(1))


def numbers(size: tuple, salt: int = 0) -> torch.Tensor:
    """Small whole numbers, whose sums and products are exact."""
    n = torch.Size(size).numel()
    return ((torch.arange(n) * 7 + salt) % 11 - 5).double().reshape(size)


def check_equal(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    if not torch.equal(actual, expected):
        raise AssertionError(f"{what}: {actual} instead of {expected}")


def local_part(tensor: torch.Tensor, mesh: DeviceMesh, layout: tuple) -> torch.Tensor:
    """What this rank holds of a tensor: as chunk() cuts it, the mesh's first dimension first."""
    for placement, part, n_parts in zip(layout, mesh.get_coordinate(), mesh.shape, strict=True):
        if isinstance(placement, Shard):
            pieces = tensor.chunk(n_parts, placement.dim)
            nothing = tensor.narrow(placement.dim, 0, 0)
            tensor = pieces[part] if part < len(pieces) else nothing
    return tensor


def check_redistributions(mesh: DeviceMesh, size: tuple, layouts: list[tuple]) -> None:
    expected = numbers(size)
    # Only the values of rank 0 count.
    mine = expected if dist.get_rank() == 0 else torch.zeros_like(expected)
    for source in layouts:
        tensor = distribute_tensor(mine, mesh, source)
        for target in layouts:
            what = f"{size} {source} -> {target}"
            moved = tensor.redistribute(placements=target)
            assert moved.placements == target and moved.shape == expected.shape
            check_equal(moved.to_local(), local_part(expected, mesh, target), what)
            check_equal(moved.full_tensor(), expected, f"all of {what}")


def redistributed(rank: int, world: int) -> None:
    mesh = init_device_mesh("cpu", (world,))
    assert dist.get_backend(mesh.get_group()) == "unisono"
    for size in SIZES:
        check_redistributions(mesh, size, [(layout,) for layout in LAYOUTS])
        for op in ("sum", "avg", "max", "min"):
            parts = torch.stack([numbers(size, r) * world for r in range(world)])
            expected = {"sum": parts.sum, "avg": parts.mean, "max": parts.amax, "min": parts.amin}
            partial = DTensor.from_local(parts[rank], mesh, (Partial(op),))
            for target in LAYOUTS:
                moved = partial.redistribute(placements=(target,))
                part = local_part(expected[op](0), mesh, (target,))
                check_equal(moved.to_local(), part, f"{size} {op} -> {target}")


def redistributed_in_two_dimensions(rank: int, world: int) -> None:
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("rows", "columns"))
    assert dist.get_backend(mesh.get_group("rows")) == "unisono"
    for size in SIZES:
        check_redistributions(mesh, size, list(itertools.product(LAYOUTS, repeat=2)))
    parts = torch.stack([numbers((6, 5), r) for r in range(world)])
    for layout in itertools.product(LAYOUTS, repeat=2):
        partial = DTensor.from_local(parts[rank], mesh, (Partial(), Partial()))
        moved = partial.redistribute(placements=layout)
        expected = local_part(parts.sum(0), mesh, layout)
        check_equal(moved.to_local(), expected, f"sums -> {layout}")


def products(mesh: DeviceMesh, layouts: list[tuple]) -> None:
    """Matrix products and their gradients, each factor in each of the layouts."""
    a, b = numbers((9, 6)).requires_grad_(), numbers((6, 7), 3).requires_grad_()
    weights = numbers((9, 7), 5)
    expected = a @ b
    expected_gradients = torch.autograd.grad((expected * weights).sum(), (a, b))
    for of_a, of_b in itertools.product(layouts, layouts):
        what = f"{of_a} @ {of_b}"
        factors = [
            distribute_tensor(factor.detach(), mesh, layout).requires_grad_()
            for factor, layout in ((a, of_a), (b, of_b))
        ]
        product = factors[0] @ factors[1]
        check_equal(product.full_tensor(), expected, what)
        replicated = distribute_tensor(weights, mesh, [Replicate()] * mesh.ndim)
        gradients = torch.autograd.grad((product * replicated).sum(), factors)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            check_equal(ours.full_tensor(), theirs, f"gradient of {what}")


def computed(rank: int, world: int) -> None:
    line = init_device_mesh("cpu", (world,))
    products(line, [(layout,) for layout in LAYOUTS])
    square = init_device_mesh("cpu", (2, world // 2))
    products(square, [(Shard(0), Shard(1)), (Shard(1), Shard(1)), (Replicate(), Shard(0))])
    whole = numbers((10, 7))
    for layout in LAYOUTS:
        tensor = distribute_tensor(whole, line, (layout,))
        check_equal(tensor.sum(0).full_tensor(), whole.sum(0), f"sum {layout}")
        check_equal(tensor.amax(1).full_tensor(), whole.amax(1), f"amax {layout}")
        check_close(tensor.softmax(1), whole.softmax(1), f"softmax {layout}")
        check_close(tensor.std(), whole.std(), f"std {layout}")
        check_close(tensor.norm(), whole.norm(), f"norm {layout}")


class Block(nn.Module):
    """A part of a transformer: a sequence goes through a norm and two layers, with what it was."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(12)
        self.up = nn.Linear(12, 20)
        self.down = nn.Linear(20, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embedding = nn.Embedding(16, 12)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(12, 16)
        self.double()

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def parallelized(mesh: DeviceMesh) -> Transformer:
    """Between the layers a sequence is sharded; the logits are, by their class."""
    module = Transformer()
    sequence = Shard(1)
    plan = {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=sequence),
        "head": ColwiseParallel(
            input_layouts=sequence, output_layouts=Shard(-1), use_local_output=False
        ),
    }
    for i in range(len(module.blocks)):
        plan |= {
            f"blocks.{i}.norm": SequenceParallel(use_local_output=True),
            f"blocks.{i}.up": ColwiseParallel(input_layouts=sequence),
            f"blocks.{i}.down": RowwiseParallel(output_layouts=sequence),
        }
    return parallelize_module(module, mesh, plan)


def train_on_tokens(module: nn.Module, part: int = 0, n_parts: int = 1) -> list[torch.Tensor]:
    optimizer = adam(module)
    losses = []
    for step in range(3):
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(16, (4, 9), generator=generator).chunk(n_parts)[part]
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        optimizer.zero_grad()
        with loss_parallel():
            logits = module(inputs)
            loss = nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
            loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def two_layers(rank: int, world: int) -> bytes:
    """As in a program's first steps: the input is whole, the hidden units are shared out."""
    expected, expected_losses = trained()
    mesh = init_device_mesh("cpu", (world,))
    plan = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    module = parallelize_module(model(), mesh, plan)
    check_losses(train(module, adam(module)), expected_losses)
    check_parameters(module, expected)
    return bits(module)


def sequences(rank: int, world: int) -> None:
    expected = Transformer()
    expected_losses = train_on_tokens(expected)
    module = parallelized(init_device_mesh("cpu", (world,)))
    assert module.blocks[0].up.weight.to_local().shape[0] == 20 // world
    check_losses(train_on_tokens(module), expected_losses)
    check_parameters(module, expected)


def with_fsdp(rank: int, world: int) -> None:
    """Rows of the mesh share out the data, columns the layers."""
    expected = Transformer()
    expected_losses = train_on_tokens(expected)
    mesh = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("data", "layers"))
    module = parallelized(mesh["layers"])
    for block in module.blocks:
        fully_shard(block, mesh=mesh["data"])
    fully_shard(module, mesh=mesh["data"])
    assert module.head.weight.device_mesh.ndim == 2
    check_losses(
        train_on_tokens(module, mesh.get_local_rank("data"), mesh.size(0)), expected_losses
    )
    check_parameters(module, expected)


class DTensors(unittest.TestCase):
    def test_redistributed(self) -> None:
        for world in (2, 3):
            with self.subTest(world=world):
                run(redistributed, world)

    def test_redistributed_in_two_dimensions(self) -> None:
        run(redistributed_in_two_dimensions, 4)

    def test_computed(self) -> None:
        run(computed, 4)


class TensorParallel(unittest.TestCase):
    def test_two_layers(self) -> None:
        for world in (2, 3):
            with self.subTest(world=world):
                results = run(two_layers, world)
                self.assertEqual(len(set(results)), 1)

    def test_sequences(self) -> None:
        run(sequences, 4)

    def test_with_fsdp(self) -> None:
        run(with_fsdp, 4)


if __name__ == "__main__":
    unittest.main()
