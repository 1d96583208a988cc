#!/usr/bin/env python3
"""The sampler that goes on elsewhere, and checkpoints."""

import os
import pickle
import resource
import signal
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from support import message_of, run, start
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler

import unisono


class Numbers:
    """A data set of a size whose samples are their indices."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> int:
        return index


def train(sampler: unisono.ResumableSampler, batch_size: int, n_steps: int) -> list[int]:
    """The samples of so many steps, or of all that are left, loaded ahead by workers."""
    data = Numbers(1000)
    loader = DataLoader(data, batch_size, sampler=sampler, num_workers=2, prefetch_factor=4)
    trained: list[int] = []
    for step, batch in enumerate(loader):
        if step == n_steps:
            break
        trained += batch.tolist()
        sampler.advance(len(batch))
    return trained


def in_group(rank: int, world: int) -> tuple[list[int], dict]:
    sampler = unisono.ResumableSampler(Numbers(20), seed=3)
    sampler.set_epoch(2)
    trained = train(sampler, 2, 2)
    return trained, sampler.state_dict()


class Sampler(unittest.TestCase):
    def test_equals_torch_where_nothing_happens(self) -> None:
        for size, world in ((0, 2), (3, 8), (10, 4), (1001, 3)):
            for options in (
                {},
                {"shuffle": False},
                {"seed": 7},
                {"drop_last": True},
            ):
                for rank in range(world):
                    data = Numbers(size)
                    theirs = DistributedSampler(data, world, rank, **options)
                    ours = unisono.ResumableSampler(data, world, rank, **options)
                    for epoch in (0, 1, 5):
                        theirs.set_epoch(epoch)
                        ours.set_epoch(epoch)
                        self.assertEqual(list(ours), list(theirs))
                        self.assertEqual(len(ours), len(list(theirs)))

    def test_goes_on_with_other_ranks_and_batches_after_prefetching(self) -> None:
        data = Numbers(1000)
        whole = unisono.ResumableSampler(data, 1, 0, seed=5)
        whole.set_epoch(3)
        trained: list[list[int]] = []
        state = whole.state_dict()
        for world, batch_size, n_steps in ((2, 16, 5), (3, 7, 9), (1, 10, 3), (4, 50, 100)):
            samplers = [unisono.ResumableSampler(data, world, rank) for rank in range(world)]
            for sampler in samplers:
                sampler.load_state_dict(state)
            shares = [train(sampler, batch_size, n_steps) for sampler in samplers]
            trained += [list(one) for one in zip(*shares, strict=True)]
            states = [sampler.state_dict() for sampler in samplers]
            self.assertEqual(states, [states[0]] * world)
            with tempfile.TemporaryFile() as file:
                torch.save(states[0], file)
                file.seek(0)
                state = torch.load(file, weights_only=True)
        order = list(whole)
        flat = [index for step in trained for index in step]
        self.assertEqual(flat[:1000], order)
        self.assertEqual(flat[1000:], order[: len(flat) - 1000])
        self.assertLess(len(flat) - 1000, 4)

    def test_takes_rank_and_world_size_from_the_group(self) -> None:
        results = run(in_group, 3)
        whole = unisono.ResumableSampler(Numbers(20), 1, 0, seed=3)
        whole.set_epoch(2)
        order = list(whole)
        for rank, (trained, state) in enumerate(results):
            self.assertEqual(trained, order[rank:12:3])
            self.assertEqual(state["n_consumed"], 12)
        alone = unisono.ResumableSampler(Numbers(20))
        alone.load_state_dict(results[0][1])
        self.assertEqual(alone.epoch, 2)
        self.assertEqual(list(alone), order[12:])

    def test_says_what_is_wrong(self) -> None:
        sampler = unisono.ResumableSampler(Numbers(10), 2, 1)
        good = sampler.state_dict()
        cases = {
            "advances by 6 samples, but epoch 0 has 5 left": lambda: sampler.advance(6),
            "it has ['epoch'] instead of": lambda: sampler.load_state_dict({"epoch": 1}),
            "'epoch' is '1', not of type int": lambda: sampler.load_state_dict(
                good | {"epoch": "1"}
            ),
            "of a data set of 9 samples, but this one has 10": lambda: sampler.load_state_dict(
                good | {"dataset_size": 9}
            ),
            "rank is 2, but 2 replicas": lambda: unisono.ResumableSampler(Numbers(9), 2, 2),
        }
        for text, call in cases.items():
            self.assertIn(text, message_of(RuntimeError, call))
        self.assertEqual(sampler.state_dict(), good)
        sampler.advance(5)
        self.assertIn("call set_epoch(1)", message_of(RuntimeError, lambda: list(sampler)))


def names() -> set[str]:
    """Files of the job's folder but its store's."""
    return {path.name for path in Path().iterdir() if not path.name.startswith("store")}


def state(value: float) -> dict:
    return {"model": {"weight": torch.full((1000,), value)}, "step": int(value)}


def saved_and_loaded(rank: int, world: int) -> None:
    unisono.check_can_save("job.pt")
    dist.barrier()
    assert names() == set()
    dist.barrier()
    unisono.save_checkpoint(state(rank + 1), Path("job.pt"))
    assert names() == {"job.pt"}
    for loaded in (unisono.load_checkpoint("job.pt"), torch.load("job.pt", weights_only=True)):
        assert loaded["step"] == 1
        assert torch.equal(loaded["model"]["weight"], torch.ones(1000))
    dist.barrier()
    unisono.save_checkpoint(state(rank + 5) if rank == 0 else None, "job.pt")
    assert unisono.load_checkpoint("job.pt", map_location="cpu")["step"] == 5
    unisono.save_checkpoint({"where": Path("x")}, "job.pt")
    refused = message_of(pickle.UnpicklingError, lambda: unisono.load_checkpoint("job.pt"))
    assert "weights_only" in refused
    assert unisono.load_checkpoint("job.pt", weights_only=False) == {"where": Path("x")}


class Unpicklable:
    def __reduce__(self) -> tuple:
        raise TypeError("it has a lock")


def not_saved(rank: int, world: int) -> list[str]:
    unisono.save_checkpoint(state(1), "job.pt")
    before = Path("job.pt").read_bytes()
    dist.barrier()
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    messages = []
    for path, value, limit in (
        ("missing/job.pt", state(2), limits[0]),
        (None if rank == 0 else "job.pt", state(2), limits[0]),
        (".", state(2), limits[0]),
        ("job.pt", Unpicklable(), limits[0]),
        ("job.pt", state(2), 2000),
    ):
        try:
            if rank == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limits[1]))
            unisono.save_checkpoint(value, path)
            raise AssertionError("it was saved")
        except RuntimeError as error:
            # Checked while the exception and all objects of its frames still exist.
            assert names() == {"job.pt"}, names()
            assert (error.__cause__ is not None) == (rank == 0)
            messages.append(str(error))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        dist.barrier()
        assert Path("job.pt").read_bytes() == before
    messages.append(message_of(RuntimeError, lambda: unisono.check_can_save("missing/job.pt")))
    unisono.save_checkpoint(state(3), "job.pt")
    assert unisono.load_checkpoint("job.pt")["step"] == 3
    return [message.splitlines()[0] for message in messages]


class Deadly:
    def __reduce__(self) -> tuple:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


def killed_while_saving(rank: int, world: int) -> tuple[str, int]:
    unisono.save_checkpoint(state(1), "job.pt")
    dist.barrier()
    message = message_of(
        dist.DistNetworkError, lambda: unisono.save_checkpoint([state(2), Deadly()], "job.pt")
    )
    return message, torch.load("job.pt", weights_only=True)["step"]


def write(path: str, value: object) -> None:
    """torch.save(), but for the file's name, which it writes into the file."""
    with open(path, "wb") as file:
        torch.save(value, file)


def other_bytes(rank: int, world: int) -> list[str]:
    own = f"{rank}.pt"
    write(own, {"step": 1 if rank < 2 else 2})
    different = message_of(dist.DistBackendError, lambda: unisono.load_checkpoint(own))
    gone = "gone.pt" if rank == 1 else own
    some_gone = message_of(dist.DistBackendError, lambda: unisono.load_checkpoint(gone))
    all_gone = message_of(FileNotFoundError, lambda: unisono.load_checkpoint("gone.pt"))
    none = None if rank == 1 else own
    assert "and unreadable (expected str, bytes or os.PathLike object" in message_of(
        dist.DistBackendError, lambda: unisono.load_checkpoint(none)
    )
    write(own, {"step": 4})
    assert unisono.load_checkpoint(own) == {"step": 4}
    return [different, some_gone, all_gone]


def in_other_groups(rank: int, world: int) -> None:
    pair = dist.new_group([2, 1])
    call = lambda: unisono.save_checkpoint(state(rank), "pair.pt", group=pair)  # noqa: E731
    if rank == 0:
        assert "this rank is not in the group" in message_of(RuntimeError, call)
    else:
        call()
        assert unisono.load_checkpoint("pair.pt", group=pair)["step"] == 1
        unisono.check_consistent([torch.ones(3)], group=pair)
    dist.barrier()
    gloo = dist.new_group(backend="gloo")
    assert "the group's backend is 'gloo'" in message_of(
        RuntimeError, lambda: unisono.check_consistent([], group=gloo)
    )


class Checkpoints(unittest.TestCase):
    def test_is_rank_0s_and_loaded_by_all(self) -> None:
        run(saved_and_loaded, 3)

    def test_every_rank_learns_why_it_was_not_saved(self) -> None:
        results = run(not_saved, 3)
        self.assertEqual(results, [results[0]] * 3)
        missing, no_path, folder, unpicklable, too_large, early = results[0]
        self.assertIn("save None: expected str, bytes or os.PathLike object", no_path)
        self.assertIn("save missing/job.pt: ", missing)
        self.assertIn("create the folder missing first", missing)
        self.assertIn("'.': it is a folder", folder)
        self.assertEqual(unpicklable, "save job.pt: it has a lock")
        self.assertRegex(too_large, "save job.pt: can't write it.*File too large")
        self.assertEqual(early, missing)

    def test_a_killed_rank_leaves_the_older_file(self) -> None:
        _, *others = start(killed_while_saving, 3).results()
        for message, step in others:
            self.assertRegex(message, "rank 0")
            self.assertEqual(step, 1)

    def test_ranks_that_read_other_bytes_are_named(self) -> None:
        for rank, (different, some_gone, all_gone) in enumerate(run(other_bytes, 3)):
            hash_of = r"\d+ bytes with hash [0-9a-f]{16}"
            self.assertRegex(
                different,
                f"load_checkpoint {rank}.pt: the ranks differ: the file is {hash_of} on rank 0 and "
                f"{hash_of} on rank 2",
            )
            self.assertRegex(
                some_gone,
                f"is {hash_of} on rank 0 and unreadable .No such file or directory. on rank 1",
            )
            self.assertIn("gone.pt", all_gone)

    def test_of_other_groups(self) -> None:
        run(in_other_groups, 3)

    def test_without_a_group(self) -> None:
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            path = Path(folder) / "alone.pt"
            unisono.check_can_save(path)
            unisono.save_checkpoint(state(6), path)
            self.assertEqual(unisono.load_checkpoint(path)["step"], 6)
            with self.assertRaisesRegex(RuntimeError, f"save {path}: it has a lock"):
                unisono.save_checkpoint(Unpicklable(), path)
            self.assertEqual(os.listdir(folder), ["alone.pt"])
            unisono.check_consistent(nn.Linear(2, 2))


if __name__ == "__main__":
    unittest.main(verbosity=2)
