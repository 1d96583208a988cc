"""Programs of a rank each, which meet as their variables say."""

from __future__ import annotations

import multiprocessing
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import unisono

LAUNCHERS = re.compile(r"(OMPI|PMI|PMIX|PRTE|HYDRA|HYDI|MPI|SLURM|PET|UNISONO|TORCHELASTIC)_")
EXPLICIT = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}
MEET = str(Path(__file__).parent / "programs" / "meet.py")
PYTHON = [sys.executable, MEET]
OURS, TORCHS = "unisono._C", "torch._C._distributed_c10d"
LIMIT_S = 90

# Importing torch takes seconds. This server process has imported torch, and test processes are
# forked from the server.
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["torch.distributed", "unisono"])


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what tells a process that it is a rank."""
    kept = {k: v for k, v in os.environ.items() if not LAUNCHERS.match(k) and k not in EXPLICIT}
    return kept | variables


def free_port() -> str:
    return str(unisono.Store("127.0.0.1", 0, is_master=True, secret="").port)


def wait_for_listener(port: str) -> None:
    """Returns when somebody listens at the port of this machine; raises after 30 seconds."""
    deadline = time.monotonic() + 30
    while True:
        try:
            socket.create_connection(("127.0.0.1", int(port)), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _become(folder: str, number: int, variables: dict[str, str]) -> None:
    """In a new process: runs the program as a rank."""
    os.chdir(folder)
    for descriptor, name in ((1, "out"), (2, "err")):
        file = os.open(f"{number}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, descriptor)
        os.close(file)
    os.environ.clear()
    os.environ.update(variables)
    runpy.run_path(MEET, run_name="__main__")


class Rank:
    """The program as a process of the server's; what it writes goes to files of the folder."""

    n_started = 0

    def __init__(self, folder: Path, variables: dict[str, str]) -> None:
        Rank.n_started += 1
        self.files = [folder / f"{Rank.n_started}.{name}" for name in ("out", "err")]
        arguments = (str(folder), Rank.n_started, environment(**variables))
        self.process = _SERVER.Process(target=_become, args=arguments)
        self.process.start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def kill(self) -> None:
        if self.process.is_alive():
            self.process.kill()
        self.process.join(LIMIT_S)

    def interrupt(self) -> None:
        os.kill(self.pid, signal.SIGINT)

    def said(self) -> list[str]:
        """What it has written to stdout and stderr so far."""
        return [file.read_text() if file.exists() else "" for file in self.files]

    def wait_for_words(self, text: str) -> None:
        end = time.monotonic() + LIMIT_S
        while text not in "".join(self.said()):
            if not self.process.is_alive() or time.monotonic() > end:
                raise AssertionError(f"no {text!r}: {self.said()}")
            time.sleep(0.005)  # Files come without a call.

    def finish(self) -> tuple[int, list[str]]:
        """Its exit code, and what it has written."""
        self.process.join(LIMIT_S)
        if self.process.exitcode is None:
            raise AssertionError(f"it has not ended: {self.said()}")
        return self.process.exitcode, self.said()


class RendezvousTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="unisono-python-")))

    def start(self, **variables: str) -> Rank:
        rank = Rank(self.folder, variables)
        self.addCleanup(rank.kill)
        return rank

    def finish(self, *ranks: Rank) -> str:
        """What they have written to stdout; all must succeed."""
        ended = [rank.finish() for rank in ranks]
        for code, said in ended:
            self.assertEqual(code, 0, "".join(said))
        return "".join(out for _, (out, _) in ended)

    def ranks(self, size: int, options: str, **variables: str) -> str:
        """What `size` programs with the same options have written; {rank} is their number."""
        return self.run_ranks(
            *(
                {"OPTIONS": options.replace("{rank}", str(rank)), **variables}
                for rank in range(size)
            )
        )

    def run_ranks(self, *variables: dict[str, str]) -> str:
        """What programs, one beside the other, have written to stdout."""
        return self.finish(*(self.start(**own) for own in variables))

    def run_command(self, command: list[str], **variables: str) -> subprocess.CompletedProcess:
        return subprocess.run(
            command,
            env=environment(**variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )

    def launch(self, *command: str, **variables: str) -> tuple[str, str]:
        """What the programs that the command starts have written to stdout and stderr."""
        done = self.run_command([*command, *PYTHON], **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def expect_world(
        self, size: int, said: str, backend: str = "unisono", store: str = OURS, times: int = 1
    ) -> None:
        wanted = [f"({rank},{size}) {size} {backend} {store}" for rank in range(size)] * times
        self.assertEqual(sorted(said.splitlines()), sorted(wanted))

    def expect_failure(self, rank: Rank, *complaints: str) -> str:
        """What it has written to stderr."""
        code, (_, said) = rank.finish()
        self.assertNotEqual(code, 0)
        for complaint in complaints:
            self.assertIn(complaint, said)
        return said

    def fails(self, *complaints: str, **variables: str) -> None:
        self.expect_failure(self.start(**variables), *complaints)

    def expect_doubled(self, ranks: list[str], **variables: str) -> None:
        """Programs of these ranks, one of which occurs twice, all name both at once."""
        place = variables | {"TIMEOUT": "60"}
        processes = [self.start(RANK=rank, **place) for rank in ranks]
        twice = next(rank for rank in ranks if ranks.count(rank) == 2)
        pids = {p.pid for p, rank in zip(processes, ranks, strict=True) if rank == twice}
        begin = time.monotonic()
        for process in processes:
            said = self.expect_failure(process)
            problem = re.search(rf"(?:RANK=|rank ){twice} was given to 2 processes: (.*)", said)
            self.assertIsNotNone(problem, said)
            self.assertEqual({int(pid) for pid in re.findall(r"pid (\d+)", problem[1])}, pids)
        self.assertLess(time.monotonic() - begin, 30)
