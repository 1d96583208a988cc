#!/usr/bin/env python3
"""unisono.spawn(): ranks as processes of a Python program."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

import unisono

NAMES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK")
LEFT_ALONE = """
import os, sys, time
import unisono

def rank_main(rank, folder):
    with open(f"{folder}/{rank}", "w") as file:
        file.write(str(os.getpid()))
    while True:
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass

if __name__ == "__main__":
    unisono.spawn(rank_main, (sys.argv[1],), nprocs=2)
"""


def sums(rank: int, folder: str, init) -> None:
    init()
    value = torch.full((3,), float(rank + 1))
    dist.all_reduce(value)
    names = " ".join(os.environ[name] for name in NAMES)
    text = f"{dist.get_backend()} {value.tolist()} {names}"
    Path(folder, str(rank)).write_text(text)
    dist.destroy_process_group()


def init_by_torch() -> None:
    dist.init_process_group("unisono")


def init_at_another_port() -> None:
    os.environ["MASTER_PORT"] = os.environ["ANOTHER_PORT"]
    unisono.init_process_group()


def init_by_torch_at_another_port() -> None:
    os.environ["MASTER_PORT"] = os.environ["ANOTHER_PORT"]
    dist.init_process_group("unisono")


def init_twice() -> None:
    unisono.init_process_group()
    dist.destroy_process_group()
    unisono.init_process_group()


def count_threads(_: int, folder: str, name: str) -> None:
    Path(folder, name).write_text(str(torch.get_num_threads()))


def fails(rank: int, how: str) -> None:
    unisono.init_process_group()
    if rank == 1:
        if how == "raise":
            raise LookupError("rank 1 has lost its way")
        if how == "exit":
            os._exit(3)
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(120)  # Until it is ended.


def posts(rank: int, folder: str, fails: bool) -> None:
    """Rank 0 ends with an operation under way, and rank 1 comes to it later."""
    unisono.init_process_group()
    value = torch.full((2,), float(rank + 1))
    if rank == 0:
        dist.all_reduce(value, async_op=True)
        if fails:
            raise LookupError("rank 0 has lost its way")
        return
    time.sleep(60 if fails else 1)
    dist.all_reduce(value)
    Path(folder, "sum").write_text(str(value.tolist()))


def waits_for(_: int, file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.01)
    unisono.init_process_group()


def note_parent(rank: int, folder: str) -> None:
    Path(folder, str(rank)).write_text(str(os.getppid()))


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Spawn(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-spawn-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def wait_until(self, is_so, limit: float = 60) -> None:
        end = time.monotonic() + limit
        while not is_so():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)

    def check_sums(self, init, n_ranks: int) -> None:
        self.assertIsNone(unisono.spawn(sums, (self.folder, init), nprocs=n_ranks))
        total = float(n_ranks * (n_ranks + 1) // 2)
        for rank in range(n_ranks):
            text = Path(self.folder, str(rank)).read_text()
            names = f"{rank} {rank} {n_ranks} {n_ranks} 0"
            self.assertEqual(text, f"unisono {[total] * 3} {names}")

    def test_ranks_meet_without_arguments(self) -> None:
        self.check_sums(init_by_torch, 3)
        self.assertNotIn("RANK", os.environ)

    def test_ranks_meet_again_whatever_the_parents_environment_has(self) -> None:
        others = {"RANK": "7", "WORLD_SIZE": "9", "MASTER_PORT": "1", "UNISONO_SECRET": "s" * 32}
        with mock.patch.dict(os.environ, others):
            self.check_sums(init_twice, 2)

    def test_ranks_may_meet_at_a_port_of_their_own(self) -> None:
        for init in (init_at_another_port, init_by_torch_at_another_port):
            port = unisono.Store("127.0.0.1", 0, is_master=True, secret="").port
            with mock.patch.dict(os.environ, ANOTHER_PORT=str(port)), self.subTest(init.__name__):
                self.check_sums(init, 2)

    def test_ranks_share_the_cores(self) -> None:
        n_cores = len(os.sched_getaffinity(0))
        with mock.patch.dict(os.environ):
            os.environ.pop("OMP_NUM_THREADS", None)
            unisono.spawn(count_threads, (self.folder, "shared"), nprocs=2)
            os.environ["OMP_NUM_THREADS"] = "1"
            unisono.spawn(count_threads, (self.folder, "given"))
        self.assertEqual(Path(self.folder, "shared").read_text(), str(max(1, n_cores // 2)))
        self.assertEqual(Path(self.folder, "given").read_text(), "1")

    def test_the_first_failure_ends_all_and_is_raised(self) -> None:
        with self.assertRaises(ProcessRaisedException) as raised:
            unisono.spawn(fails, ("raise",), nprocs=3)
        self.assertEqual(raised.exception.error_index, 1)
        self.assertIn("in fails", str(raised.exception))
        self.assertIn("LookupError: rank 1 has lost its way", str(raised.exception))
        for how, text in (("exit", "exit code 3"), ("kill", "signal SIGKILL")):
            with self.subTest(how), self.assertRaisesRegex(ProcessExitedException, text):
                unisono.spawn(fails, (how,), nprocs=2)

    def test_a_rank_ends_after_its_operations(self) -> None:
        for method in ("spawn", "fork", "forkserver"):
            with self.subTest(method):
                unisono.spawn(posts, (self.folder, False), nprocs=2, start_method=method)
                result = Path(self.folder, "sum")
                self.assertEqual(result.read_text(), "[3.0, 3.0]")
                result.unlink()

    def test_a_rank_that_fails_does_not_wait_for_its_operations(self) -> None:
        for method in ("spawn", "forkserver"):
            begin = time.monotonic()
            with (
                self.subTest(method),
                self.assertRaisesRegex(ProcessRaisedException, "LookupError"),
            ):
                unisono.spawn(posts, (self.folder, True), nprocs=2, start_method=method)
            self.assertLess(time.monotonic() - begin, 20)

    def test_returns_a_handle_that_keeps_the_store(self) -> None:
        go = Path(self.folder, "go")
        context = unisono.spawn(waits_for, (str(go),), nprocs=2, join=False, daemon=True)
        self.assertEqual(len(context.pids()), 2)
        self.assertFalse(context.join(timeout=0.01))
        go.touch()
        self.wait_until(lambda: context.join(timeout=1))
        self.assertTrue(all(map(is_gone, context.pids())))

    def test_ranks_come_from_the_fork_server_where_asked_for(self) -> None:
        parents = {}
        for method in ("spawn", "forkserver"):
            unisono.spawn(note_parent, (self.folder,), nprocs=2, start_method=method)
            parents[method] = {int(Path(self.folder, str(rank)).read_text()) for rank in range(2)}
        self.assertEqual(parents["spawn"], {os.getpid()})
        self.assertEqual(len(parents["forkserver"]), 1)
        self.assertNotEqual(parents["forkserver"], {os.getpid()})

    def test_refuses_what_is_no_job(self) -> None:
        with self.assertRaisesRegex(TypeError, r"'x' of type str; .* args=\(value,\)"):
            unisono.spawn(waits_for, "x")
        with self.assertRaisesRegex(ValueError, "nprocs=0"):
            unisono.spawn(waits_for, ("x",), nprocs=0)

    def test_ranks_that_hold_on_end_with_a_killed_parent(self) -> None:
        program = Path(self.folder, "alone.py")
        program.write_text(LEFT_ALONE)
        files = [Path(self.folder, str(rank)) for rank in range(2)]
        with subprocess.Popen([sys.executable, program, self.folder]) as parent:
            self.wait_until(lambda: all(f.exists() and f.read_text() for f in files))
            pids = [int(file.read_text()) for file in files]
            parent.kill()
        self.wait_until(lambda: all(map(is_gone, pids)))


if __name__ == "__main__":
    unittest.main()
