#!/usr/bin/env python3
"""State dicts in safetensors files: one file, and a file per rank."""

import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from support import run
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from training import adam, model, train

import unisono


def expect_error(kind, text, call):
    try:
        call()
    except kind as error:
        assert text in str(error), error
        return
    raise AssertionError(f"nothing was raised; expected: {text}")


def assert_same(state, expected) -> None:
    assert state.keys() == expected.keys(), state.keys() ^ expected.keys()
    for name, value in expected.items():
        kind = torch.float64 if isinstance(value, float) else None
        assert torch.equal(state[name], torch.as_tensor(value, dtype=kind)), name


def state_of(seed: int) -> dict:
    """A trained model's and its optimizer's."""
    module = model(seed)
    optimizer = adam(module)
    train(module, optimizer, 0, 1, range(2))
    options = StateDictOptions(flatten_optimizer_state_dict=True)
    parameters, moments = get_state_dict(module, optimizer, options=options)
    numbers = {name: value for name, value in moments.items() if isinstance(value, (int, float))}
    tensors = {name: value for name, value in moments.items() if torch.is_tensor(value)}
    return parameters | numbers | tensors


def large() -> torch.Tensor:
    return torch.arange(200_000.0).reshape(1000, 200)


def save(rank: int, world: int, folder: Path) -> None:
    state = {"large": large(), "number": 7, "rate": 0.1}
    with unisono.CheckpointSaver(folder, keep_last=2) as saver:
        for step in (1, 2):
            own = {f"rank{rank}.random": torch.get_rng_state()}
            assert saver.save(step, state, own) == f"{folder}/step-{step:08}"
        saver.save_async(3, {"large": state["large"]})
        state["large"].zero_()
        saver.wait()
    expect_error(RuntimeError, "it is closed", lambda: saver.save(4, {}))


def load(rank: int, world: int, folder: Path) -> None:
    assert_same(unisono.load_state(folder), {"large": large()})
    before = unisono.load_state(folder / "step-00000002")
    assert before.keys() == {"large", "number", "rate", "rank0.random", "rank1.random"}
    assert (before["number"].item(), before["rate"].item()) == (7, 0.1)


def go_on(rank: int, world: int, folder: Path) -> None:
    """From the checkpoint before a damaged one, on every rank."""
    group = dist.group.WORLD
    whole = f"{folder}/step-00000002"
    assert unisono.latest_checkpoint(folder) == whole
    assert unisono.latest_checkpoint(folder, group=group) == whole
    assert unisono.load_state(folder, group=group)["number"].item() == 7
    expect_error(
        RuntimeError,
        "the latest checkpoint is not whole: step-00000003",
        lambda: unisono.latest_checkpoint(folder, allow_older=False, group=group),
    )


def fail(rank: int, world: int, folder: Path) -> None:
    (folder / "file").touch()
    dist.barrier()
    with unisono.CheckpointSaver(folder / "file") as saver:
        text = "rank 0 of 2: save a checkpoint in"
        expect_error(RuntimeError, text, lambda: saver.save(1, {"a": torch.zeros(1)}))
        saver.save_async(1, {"a": torch.zeros(1)})
        expect_error(RuntimeError, text, saver.wait)
        same = {"a": torch.zeros(2)}
        expect_error(RuntimeError, "which overlap", lambda: unisono_save(folder, same))


def fail_alone(rank: int, world: int, folder: Path) -> None:
    """Rank 1 passes what can't be saved: every rank has the same message, and goes on."""
    good = {"weight": torch.ones(2)}
    cases = [
        ({"groups": []}, None, "rank 1 of 3: CheckpointSaver.{}: 'groups' is a list"),
        (good, {"own": "text"}, "rank 1 of 3: CheckpointSaver.{}: 'own' is a str"),
        (None, None, "rank 1 of 3: CheckpointSaver.{}: AttributeError: "),
        (
            {"weight": torch.ones(2).to_sparse()},
            None,
            'rank 1 of 3: checkpoint: tensor "weight" must be dense',
        ),
    ]
    with unisono.CheckpointSaver(folder) as saver:
        for state, own, text in cases:
            bad = (state, own) if rank == 1 else (good, None)
            for name in ("save", "save_async"):
                call = getattr(saver, name)
                expect_error(RuntimeError, text.format(name), lambda f=call, b=bad: f(1, *b))
        step, text = "one" if rank == 1 else 1, "rank 1 of 3: CheckpointSaver.save: TypeError: "
        expect_error(RuntimeError, text, lambda: saver.save(step, good))
        saver.save(2, good)
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total.item() == world


def unisono_save(folder: Path, own: dict) -> None:
    with unisono.CheckpointSaver(folder / "other") as saver:
        saver.save(1, {}, own)


class TensorFiles(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_one_file_is_pythons(self) -> None:
        path = self.folder / "model.safetensors"
        state = state_of(1)
        unisono.save_state(state, path)
        self.assertTrue(any(name.endswith("exp_avg") for name in state))
        assert_same(load_file(path), state)
        assert_same(unisono.load_state(path), state)
        save_file({"a": torch.ones(2, dtype=torch.bfloat16)}, path)
        assert_same(unisono.load_state(path), {"a": torch.ones(2, dtype=torch.bfloat16)})

    def test_floats_of_8_and_4_bits_are_pythons(self) -> None:
        path = self.folder / "model.safetensors"
        types = ["float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
        types += ["float8_e8m0fnu", "float4_e2m1fn_x2"]
        content = torch.arange(256, dtype=torch.int32).to(torch.uint8).reshape(16, 16)
        state = {name: content.view(getattr(torch, name)) for name in types}
        unisono.save_state(state, path)
        for loaded in (load_file(path), unisono.load_state(path)):
            self.assertEqual(loaded.keys(), state.keys())
            for name in types:
                self.assertEqual(loaded[name].dtype, getattr(torch, name))
                self.assertTrue(torch.equal(loaded[name].view(torch.uint8), content), name)

    def test_ranks_load_what_others_have_saved(self) -> None:
        run(save, 2, self.folder)
        names = sorted(path.name for path in self.folder.iterdir())
        self.assertEqual(names, ["latest", "step-00000002", "step-00000003"])
        self.assertEqual(unisono.latest_checkpoint(self.folder), f"{self.folder}/step-00000003")
        run(load, 3, self.folder)
        (shard,) = (self.folder / "step-00000003").glob("shard-00002-*")
        content = shard.read_bytes()
        shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        run(go_on, 3, self.folder)
        shard.write_bytes(content)
        state = {"large": torch.zeros(1000, 200)}
        reader = HuggingFaceStorageReader(str(self.folder / "step-00000003"))
        dcp.load(state, storage_reader=reader, no_dist=True)
        assert_same(state, {"large": large()})

    def test_failures_come_to_every_rank(self) -> None:
        run(fail, 2, self.folder)

    def test_what_one_rank_cant_save_every_rank_is_told(self) -> None:
        run(fail_alone, 3, self.folder)
        self.assertEqual(
            sorted(path.name for path in self.folder.iterdir()), ["latest", "step-00000002"]
        )

    def test_what_cant_be_saved_is_named(self) -> None:
        path = self.folder / "x"
        with self.assertRaisesRegex(TypeError, "'param_groups' is a list"):
            unisono.save_state({"param_groups": []}, path)
        with self.assertRaisesRegex(RuntimeError, "no process group"):
            unisono.CheckpointSaver(path)
        with self.assertRaisesRegex(RuntimeError, f"{path}: there is no such file"):
            unisono.load_state(path)
        path.write_bytes(bytes(20))
        with self.assertRaisesRegex(RuntimeError, f"{path}: "):
            unisono.load_state(path)
        self.assertIsNone(unisono.latest_checkpoint(self.folder))


if __name__ == "__main__":
    unittest.main()
