#!/usr/bin/env python3
"""What goes wrong, and what Python programs hear of it."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from datetime import timedelta
from unittest import mock

import torch
import torch.distributed as dist
from support import Job, hear, run, start, tell

FOREVER = timedelta(seconds=50)


def caught(expected: type[BaseException], text: str, function) -> str:
    """The message of the error that the function must raise, exactly of the type."""
    return str(caught_error(expected, text, function))


def caught_error(expected: type[BaseException], text: str, function) -> BaseException:
    try:
        function()
    except BaseException as error:
        if type(error) is not expected or text not in str(error):
            raise AssertionError(
                f"{type(error).__name__}, not {expected.__name__}: {error}"
            ) from error
        return error
    raise AssertionError(f"no {expected.__name__} was raised")


def wrong_arguments(rank: int, world: int) -> None:
    group = dist.group.WORLD
    t, u = torch.ones(2), torch.ones(2, dtype=torch.float64)
    broadcast = dist.BroadcastOptions()
    broadcast.rootRank, broadcast.rootTensor = world, 0
    caught(RuntimeError, "invalid root rank", lambda: group.broadcast([t], broadcast))
    broadcast.rootRank, broadcast.rootTensor = 0, 1
    caught(RuntimeError, "invalid root tensor", lambda: group.broadcast([t], broadcast))
    reduce = dist.ReduceOptions()
    reduce.rootRank = -1
    caught(RuntimeError, "invalid root rank", lambda: group.reduce([t], reduce))
    single = "requires a single-element"
    caught(RuntimeError, f"{single} input tensor list", lambda: group.gather([[t] * world], [t, t]))
    lists = f"{single} output list containing a list with {world} tensors"
    if rank == 0:
        caught(RuntimeError, lists, lambda: group.gather([[t]], [t]))
    caught(RuntimeError, "invalid tensor type", lambda: group.allgather([[u] * world], [t]))
    larger = [[torch.ones(3)] * world]
    caught(RuntimeError, "invalid tensor size", lambda: group.allgather(larger, [t]))
    backend = group._get_backend(torch.device("cpu"))
    caught(RuntimeError, "requires non-empty", lambda: backend.allreduce_coalesced([]))
    caught(RuntimeError, "invalid tensor type", lambda: group.allreduce_coalesced([t, u]))
    sparse = t.to_sparse()
    caught(RuntimeError, "requires dense", lambda: backend.broadcast([sparse]))
    minimum = dist.ReduceOp.MIN
    caught(RuntimeError, "unsupported reduction", lambda: dist.all_reduce(sparse, minimum))
    float8 = torch.ones(2).to(torch.float8_e4m3fn)
    caught(RuntimeError, "all_reduce: operations do not support", lambda: dist.all_reduce(float8))
    caught(RuntimeError, "type Float8_e4m3fn", lambda: dist.reduce(float8, 0))
    caught(RuntimeError, "invalid rank", lambda: group.send([t], world, 0))
    same, what = torch.ones(1).expand(2), "a single memory location"
    caught(RuntimeError, what, lambda: dist.all_reduce(same))
    caught(RuntimeError, what, lambda: dist.recv(same, 1 - rank))
    # The rejected calls have not sent any data, so the group still works.
    dist.all_reduce(t)
    assert t.tolist() == [world, world]


def mismatch(rank: int, world: int, is_async: bool) -> str:
    tensor = torch.ones(3 + rank)
    work = lambda: dist.all_reduce(tensor, async_op=is_async)  # noqa: E731
    text = caught(
        dist.DistBackendError, "all_reduce", (lambda: work().wait()) if is_async else work
    )
    caught(dist.DistBackendError, "closed", lambda: dist.all_reduce(torch.ones(1)))
    return text


def wait_for_dead(rank: int, world: int, is_async: bool) -> str | None:
    dist.barrier()
    if rank == 1:
        tell("ready")
        time.sleep(FOREVER.total_seconds())  # Until it is killed.
    tensor = torch.ones(3)
    if is_async:
        work = dist.all_reduce(tensor, async_op=True)
        text = caught(dist.DistNetworkError, "rank 1", work.wait)
        assert not work.is_success() and work.exception() is not None
        caught(dist.DistNetworkError, "rank 1", work.get_future().wait)
        return text
    return caught(dist.DistNetworkError, "rank 1", lambda: dist.all_reduce(tensor))


def time_out(rank: int, world: int) -> None:
    if rank == 0:
        begin = time.monotonic()
        caught(dist.DistBackendError, " timeout ", lambda: dist.barrier())
        assert 0.3 < time.monotonic() - begin < 2
        tell("timed out")
    else:
        hear("timed out")  # Comes too late.


def missing(rank: int, world: int, wait_all_ranks: bool, who: str) -> None:
    if rank in (1, 3):
        hear("0 is told")
        return hear("2 is told")  # Comes too late.
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    limit = timedelta(milliseconds=300)
    error = caught_error(
        dist.DistBackendError,
        "timed out",
        lambda: backend.monitored_barrier(limit, wait_all_ranks),
    )
    tell(f"{rank} is told")
    assert error.ranks == [1, 3], error.ranks
    text = str(error)
    assert text.endswith("; the timeout is over"), text
    words = "timed out in" if rank == 0 else "successfully reached"
    assert text.startswith(f"Rank {rank} {words} monitoredBarrier"), text
    assert rank == 0 or "errors while waiting for send/recv from rank 0" in text, text
    assert f": {who} failed to pass monitoredBarrier in 300 ms: [rank {rank}/4]" in text, text
    late = text.partition("timed out waiting for")[2]
    named = {number for number in range(world) if f"rank {number} (pid" in late}
    assert named == {1, 3}, text


def wait_with_limit(rank: int, world: int) -> None:
    tensor = torch.ones(1)
    if rank == 0:
        work = dist.all_reduce(tensor, async_op=True)
        caught(RuntimeError, "timeout", lambda: work.wait(timedelta(milliseconds=200)))
        tell("ready")
        work.wait()
    else:
        hear("ready")
        dist.all_reduce(tensor)
    assert tensor.item() == world


def interrupted(rank: int, world: int, is_async: bool) -> float | None:
    if rank == 1:
        hear("done")
        return None
    tell("ready")
    try:
        work = dist.all_reduce(torch.ones(1), async_op=is_async)
        work.wait()
        raise AssertionError("wait() has returned")
    except KeyboardInterrupt:
        end = time.time()
    dist.group.WORLD._get_backend(torch.device("cpu")).abort()
    tell("done")
    return end


def destroyed_while_receiving(rank: int, world: int) -> None:
    work = dist.irecv(torch.ones(1), 1 - rank)
    dist.barrier()
    begin = time.monotonic()
    dist.destroy_process_group()
    assert time.monotonic() - begin < 10
    caught(dist.DistBackendError, "destroyed before a message came", work.wait)


def interrupted_in_destroy(rank: int, world: int) -> float | None:
    if rank == 1:
        hear("done")
        return None
    work = dist.all_reduce(torch.ones(1), async_op=True)
    tell("ready")
    try:
        dist.destroy_process_group()
        raise AssertionError("destroy_process_group() has returned")
    except KeyboardInterrupt:
        end = time.time()
    caught(dist.DistBackendError, "interrupted by a signal", work.wait)
    tell("done")
    return end


def aborted(rank: int, world: int) -> None:
    if rank == 1:
        hear("done")
        return
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    threading.Timer(0.2, backend.abort).start()
    begin = time.monotonic()
    caught(dist.DistBackendError, "abort", lambda: dist.all_reduce(torch.ones(1)))
    assert time.monotonic() - begin < 5
    tell("done")


def from_threads(rank: int, world: int) -> None:
    groups = [dist.new_group() for _ in range(4)]
    problems = []

    def work(group) -> None:
        try:
            for i in range(200):
                tensor = torch.full((5,), float(i))
                work = dist.all_reduce(tensor, group=group, async_op=i % 2 == 0)
                if work is not None:
                    work.wait()
                assert tensor.tolist() == [i * world] * 5
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=work, args=(group,)) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


SCRIPT = """
import os, sys, torch, torch.distributed as dist, unisono
rank = int(sys.argv[1])
unisono.init_process_group(init_method=f"file://{os.getcwd()}/store", rank=rank, world_size=2)
tensor = torch.ones(2)
dist.all_reduce(tensor, async_op=True).wait()
dist.barrier()
assert tensor.tolist() == [2, 2]
"""
# The child exits as any Python process does.
FORK = """
child = os.fork()
if child == 0:
    sys.exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
dist.all_reduce(tensor)
assert tensor.tolist() == [4, 4]
"""
# Rank 1 calls the operations while rank 0 is exiting, after a time longer than the wait of a failed
# program.
POSTED = """
import time
group = dist.new_group()
if rank == 0:
    first = dist.all_reduce(tensor, async_op=True)
    second = dist.all_reduce(tensor + 1, group=group, async_op=True)
    second.get_future().then(lambda future: print("sum", future.value()[0].tolist(), flush=True))
else:
    time.sleep(6)
    dist.all_reduce(tensor)
    dist.all_reduce(tensor, group=group)
    print("sum", tensor.tolist())
"""
# Rank 1 never joins the asynchronous operation or the operation in which a thread waits.
UNDER_WAY = """
import threading, time
if rank == 0:
    group = dist.new_group(list(range(2)))
    work = dist.all_reduce(tensor, async_op=True)
    call = lambda: dist.all_reduce(tensor, group=group)
    threading.Thread(target=call, daemon=True).start()
    time.sleep(0.5)  # The thread waits by then.
else:
    dist.new_group(list(range(2)))
    sys.stdin.read()
"""
FAILS_UNDER_WAY = UNDER_WAY.replace("time.sleep(0.5)", "raise ValueError")
# The receiver starts after the send.
MISFIT = """
import time
if rank == 0:
    dist.send(tensor, 1)
else:
    time.sleep(0.5)
    dist.recv(torch.zeros(4), 0)
"""


def crossed_groups(rank: int, world: int, is_async: bool) -> str:
    groups = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    work = lambda: dist.all_reduce(torch.ones(1), group=groups[rank], async_op=is_async)  # noqa: E731
    return caught(
        dist.DistBackendError,
        "ranks wait for each other",
        (lambda: work().wait()) if is_async else work,
    )


class Failures(unittest.TestCase):
    def test_wrong_arguments(self) -> None:
        run(wrong_arguments, 2)

    def test_mismatch_is_an_error_on_all_ranks(self) -> None:
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                for text in run(mismatch, 2, is_async):
                    self.assertIn("f32[3]", text)
                    self.assertIn("f32[4]", text)

    def test_groups_called_in_different_orders_are_named(self) -> None:
        for is_async in (False, True):
            with (
                self.subTest(is_async=is_async),
                mock.patch.dict(os.environ, {"UNISONO_STALL_SECONDS": "0.3"}),
            ):
                for text in run(crossed_groups, 2, is_async):
                    self.assertIn("rank 0 waits in all_reduce #1 (f32[1], sum) of group", text)
                    self.assertIn("which waits in all_reduce #1 (f32[1], sum) of group", text)

    def test_killed_rank_is_named(self) -> None:
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                job = start(wait_for_dead, 2, is_async)
                job.wait_for("ready")
                job.kill(1)
                self.assertIsNotNone(job.results()[0])

    def test_timeout_of_the_group(self) -> None:
        run(time_out, 2, timeout=timedelta(milliseconds=400))

    def test_monitored_barrier_names_all_who_are_missing(self) -> None:
        run(missing, 4, False, "Rank 1")
        run(missing, 4, True, "Ranks 1, 3")

    def test_wait_with_a_limit_leaves_the_operation_going(self) -> None:
        run(wait_with_limit, 2)

    def test_ctrl_c_ends_a_wait(self) -> None:
        for is_async in (False, True):
            with self.subTest(is_async=is_async):
                job = start(interrupted, 2, is_async, timeout=FOREVER)
                job.wait_for("ready")
                time.sleep(0.5)  # It waits asleep by then.
                begin = time.time()
                job.kill(0, signal.SIGINT)
                self.assertLess(self.end_of(job) - begin, 0.2)

    def test_ctrl_c_ends_destroy_process_group(self) -> None:
        job = start(interrupted_in_destroy, 2, timeout=FOREVER)
        job.wait_for("ready")
        time.sleep(0.5)  # It waits asleep by then.
        begin = time.time()
        job.kill(0, signal.SIGINT)
        self.assertLess(self.end_of(job) - begin, 5)

    def test_destroy_process_group_gives_up_receives(self) -> None:
        run(destroyed_while_receiving, 2, timeout=FOREVER)

    def end_of(self, job: Job) -> float:
        (end, _) = job.results()
        return end

    def test_abort_releases_a_blocking_call(self) -> None:
        run(aborted, 2, timeout=FOREVER)

    def test_threads_with_a_group_each(self) -> None:
        run(from_threads, 2)

    def run_scripts(self, text: str) -> list[subprocess.CompletedProcess]:
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            processes = [
                subprocess.Popen(
                    [sys.executable, "-c", text, str(rank)],
                    cwd=folder,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                )
                for rank in range(2)
            ]
            try:
                # Reads the output of rank 0 first, because rank 1 may wait for the end of its
                # standard input.
                outputs = [process.communicate(timeout=60)[0] for process in processes]
            finally:
                for process in processes:
                    process.kill()
            return [
                subprocess.CompletedProcess(process.args, process.returncode, output)
                for process, output in zip(processes, outputs, strict=True)
            ]

    def test_exit_without_destroying_the_group(self) -> None:
        for rank, process in enumerate(self.run_scripts(SCRIPT)):
            self.assertEqual(process.returncode, 0, f"rank {rank}: {process.stdout}")

    def test_exit_of_a_forked_child(self) -> None:
        for rank, process in enumerate(self.run_scripts(SCRIPT + FORK)):
            self.assertEqual(process.returncode, 0, f"rank {rank}: {process.stdout}")

    def test_exit_completes_operations_under_way(self) -> None:
        for rank, process in enumerate(self.run_scripts(SCRIPT + POSTED)):
            self.assertEqual(process.returncode, 0, f"rank {rank}: {process.stdout}")
            self.assertIn("sum [7.0, 7.0]", process.stdout)

    def test_exit_with_an_operation_under_way(self) -> None:
        for rest, code, least, most in ((UNDER_WAY, 0, 29, 90), (FAILS_UNDER_WAY, 1, 0, 25)):
            begin = time.monotonic()
            rank_0, _ = self.run_scripts(SCRIPT + rest)
            self.assertEqual(rank_0.returncode, code, rank_0.stdout)
            self.assertGreater(time.monotonic() - begin, least)
            self.assertLess(time.monotonic() - begin, most)

    def test_exit_after_a_message_that_does_not_fit(self) -> None:
        for rest in ("", "if rank == 0: dist.destroy_process_group()"):
            for rank, process in enumerate(self.run_scripts(SCRIPT + MISFIT + rest)):
                self.assertEqual(process.returncode, 1, f"rank {rank}: {process.stdout}")
                self.assertIn("send (f32[2], to rank 1", process.stdout)
                self.assertIn("recv (f32[4], from rank 0", process.stdout)


if __name__ == "__main__":
    unittest.main()
