#!/usr/bin/env python3
"""torch.distributed.checkpoint: what some ranks save, others load."""

import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from support import run
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from training import N_STEPS, adam, bits, check_parameters, model, train, trained

import unisono

N_STEPS_BEFORE = 2  # The checkpoint.


def sharded(world: int, seed: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    module = fully_shard(model(seed), mesh=init_device_mesh("cpu", (world,)))
    return module, adam(module)


def state_of(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict:
    parameters, moments = get_state_dict(module, optimizer)
    return {"model": parameters, "optimizer": moments, "steps": N_STEPS_BEFORE, "note": "first"}


def save(rank: int, world: int, folder: Path) -> bytes:
    module, optimizer = sharded(world)
    train(module, optimizer, rank, world, range(N_STEPS_BEFORE))
    saved = bits(module)
    dcp.save(state_of(module, optimizer), checkpoint_id=folder / "at once")
    # Saves the present state while the training continues.
    saving = dcp.async_save(
        state_of(module, optimizer),
        checkpoint_id=folder / "meanwhile",
        process_group=dist.new_group(),
    )
    train(module, optimizer, rank, world, range(N_STEPS_BEFORE, N_STEPS))
    saving.result(timeout=30)
    assert bits(module) != saved
    return saved


def resume(rank: int, world: int, folder: Path, saved: bytes) -> None:
    expected, _ = trained()
    for name in ("at once", "meanwhile"):
        module, optimizer = sharded(world, seed=4)
        state = state_of(module, optimizer) | {"steps": 0, "note": ""}
        dcp.load(state, checkpoint_id=folder / name)
        set_state_dict(
            module,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        assert (state["steps"], state["note"]) == (N_STEPS_BEFORE, "first")
        assert bits(module) == saved, f"what was saved {name} differs"
        train(module, optimizer, rank, world, range(N_STEPS_BEFORE, N_STEPS))
        check_parameters(module, expected)


def load_into_one(rank: int, world: int, folder: Path, saved: bytes) -> None:
    """Into a plain model, without its optimizer."""
    module = model(seed=4)
    parameters = module.state_dict()
    dcp.load({"model": parameters}, checkpoint_id=folder / "at once")
    assert bits(module) == saved


def layouts(rank: int, world: int, folder: Path) -> None:
    """A tensor that is loaded as others than it was saved."""
    mesh = init_device_mesh("cpu", (2, world // 2))
    whole = torch.arange(70.0).reshape(10, 7)
    for i, source in enumerate([(Shard(0), Shard(1)), (Replicate(), Shard(0))]):
        place = folder / f"layout {i}"
        dcp.save({"tensor": distribute_tensor(whole, mesh, source)}, checkpoint_id=place)
        for target in [(Shard(1), Shard(0)), (Shard(0), Shard(0)), (Replicate(), Replicate())]:
            state = {"tensor": distribute_tensor(torch.zeros(10, 7), mesh, target)}
            dcp.load(state, checkpoint_id=place)
            assert torch.equal(state["tensor"].full_tensor(), whole), f"{source} -> {target}"


def refused(rank: int, world: int, folder: Path) -> None:
    """What does not fit on one rank, all are told."""
    dcp.save({"tensor": torch.arange(3.0)}, checkpoint_id=folder)
    tensor = torch.zeros(3 + rank)
    try:
        dcp.load({"tensor": tensor}, checkpoint_id=folder)
        raise AssertionError("a tensor of another size was loaded")
    except CheckpointException as error:
        assert set(error.failures) == {1}, error
    fitting = torch.zeros(3)
    dcp.load({"tensor": fitting}, checkpoint_id=folder)
    assert fitting.tolist() == [0, 1, 2]


class RenamingPlanner(DefaultSavePlanner):
    """Saves under other names."""

    def set_up_planner(self, state_dict, storage_meta=None, is_coordinator=False) -> None:
        renamed = {f"renamed.{name}": value for name, value in state_dict.items()}
        super().set_up_planner(renamed, storage_meta, is_coordinator)


def planners(rank: int, world: int, folder: Path) -> None:
    mesh = init_device_mesh("cpu", (world,))
    rows = torch.arange(10.0).reshape(5, 2)
    state = {"rows": distribute_tensor(rows, mesh, [Shard(0)]), "all": torch.ones(3)}
    for dedup_to_lowest in (True, False):
        planner = RenamingPlanner(dedup_save_to_lowest_rank=dedup_to_lowest)
        dcp.save(state, checkpoint_id=folder, planner=planner)
        wanted = {
            "renamed.rows": torch.zeros(5, 2),
            "renamed.all": torch.zeros(3),
            "new": torch.full((1,), 7.0),
        }
        dcp.load(wanted, checkpoint_id=folder, planner=DefaultLoadPlanner(allow_partial_load=True))
        assert torch.equal(wanted["renamed.rows"], rows)
        assert wanted["renamed.all"].tolist() == [1, 1, 1]
        assert wanted["new"].item() == 7, "what was not saved stays"
        try:
            dcp.load(wanted, checkpoint_id=folder)
            raise AssertionError("a tensor was loaded that nobody has saved")
        except CheckpointException as error:
            assert set(error.failures) == {*range(world)}, error


def load_ours(rank: int, world: int, folder: Path) -> None:
    """Its reader loads, on our backend, what CheckpointSaver has saved, split otherwise."""
    weight = torch.arange(70.0).reshape(10, 7)
    with unisono.CheckpointSaver(folder) as saver:
        checkpoint = saver.save(1, {"weight": weight})
    mesh = init_device_mesh("cpu", (world,))
    state = {"weight": distribute_tensor(torch.zeros(10, 7), mesh, [Shard(1)])}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(checkpoint))
    assert torch.equal(state["weight"].full_tensor(), weight)


class Checkpoint(unittest.TestCase):
    def run_in_folder(self, body, world: int) -> None:
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            run(body, world, Path(folder))

    def test_resumed_by_other_numbers_of_ranks(self) -> None:
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            (saved, *others) = run(save, 2, Path(folder))
            self.assertEqual(others, [saved])
            for world in (2, 3):
                with self.subTest(world=world):
                    run(resume, world, Path(folder), saved)
            run(load_into_one, 1, Path(folder), saved)

    def test_layouts(self) -> None:
        self.run_in_folder(layouts, 4)

    def test_planners(self) -> None:
        self.run_in_folder(planners, 2)

    def test_what_our_saver_has_saved(self) -> None:
        self.run_in_folder(load_ours, 2)

    def test_refused(self) -> None:
        self.run_in_folder(refused, 2)


if __name__ == "__main__":
    unittest.main()
