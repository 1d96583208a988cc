"""Real processes that are attacked: a job's ranks, a store's server, and what they write."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from surroundings import environment
from wire import TIMEOUT_S

RANK_PROGRAM, UNISONO = sys.argv[1:3]
del sys.argv[1:3]
SECRET = "known to all ranks"


def wait_until(is_true, what: str) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.01)


class Process:
    """A program, and all that it has written so far."""

    def __init__(self, *command: str, **variables: str) -> None:
        self.process = subprocess.Popen(
            command,
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.pid = self.process.pid
        self.changed = threading.Condition()
        self.written = {"out": b"", "err": b""}
        self.readers = [
            threading.Thread(target=self.take_up, args=(name, pipe), daemon=True)
            for name, pipe in [("out", self.process.stdout), ("err", self.process.stderr)]
        ]
        for reader in self.readers:
            reader.start()

    def take_up(self, name: str, pipe) -> None:
        with pipe:
            while more := pipe.read1():
                with self.changed:
                    self.written[name] += more
                    self.changed.notify_all()

    @property
    def out(self) -> str:
        return self.written["out"].decode(errors="replace")

    @property
    def err(self) -> str:
        return self.written["err"].decode(errors="replace")

    def wait_for(self, words: str) -> str:
        """Waits until it has written a line with `words`, and returns that."""

        def line():
            lines = (self.out + self.err).splitlines()
            return next((line for line in lines if words in line), None)

        with self.changed:
            found = self.changed.wait_for(line, TIMEOUT_S)
        if not found:
            raise TimeoutError(f'no "{words}" in:\n{self.out}{self.err}')
        return found

    def memory_bytes(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text(encoding="utf-8")
        return int(re.search(r"VmRSS:\s+(\d+)", status)[1]) * 1024

    def n_descriptors(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def close_stdin(self) -> None:
        if not self.process.stdin.closed:
            self.process.stdin.close()

    def finish(self) -> int:
        """Its exit code."""
        self.close_stdin()
        code = self.process.wait(TIMEOUT_S)
        for reader in self.readers:
            reader.join(TIMEOUT_S)
        return code

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.finish()


def reserve_port() -> socket.socket:
    """Bound, without listening: a program that says SO_REUSEADDR can listen there, and no other
    is given the port."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


class Job:
    """Two ranks on two pretended nodes, which add up numbers until one's stdin is closed."""

    def __init__(self, address: str = "127.0.0.1", secret: str = SECRET) -> None:
        self.address = address
        self.secret = secret
        self.reservation = reserve_port()
        self.port = self.reservation.getsockname()[1]
        self.started: list[Process] = []

    def start(self, rank: int, *, n_descriptors: int = 4096, **variables: str) -> Process:
        own = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(self.port),
            "UNISONO_NODE_ID": f"node{rank}",
            "UNISONO_SECRET": self.secret,
        }
        limit = ["prlimit", f"--nofile={n_descriptors}:{n_descriptors}"]
        process = Process(*limit, RANK_PROGRAM, "stream", "private", **(own | variables))
        self.started.append(process)
        return process

    def start_first(self, **limits: int) -> Process:
        """Rank 0, whose store listens when this returns."""
        first = self.start(0, **limits)
        wait_until(self.listens, f"rank 0 does not listen:\n{first.err}")
        return first

    def listens(self) -> bool:
        rows = Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]
        listening = [row.split()[1] for row in rows if row.split()[3] == "0A"]
        return any(local.endswith(f":{self.port:04X}") for local in listening)

    def close(self) -> None:
        for process in self.started:
            process.kill()
        self.reservation.close()


class Server(Process):
    """unisono store serve."""

    def __init__(self, *options: str, secret: str = "") -> None:
        variables = {"UNISONO_SECRET": secret} if secret else {}
        super().__init__(UNISONO, "store", "serve", "--port", "0", *options, **variables)
        self.port = int(self.wait_for("listening on ").rpartition(":")[2])


def run_store(port: int, *arguments: str, secret: str = "") -> subprocess.CompletedProcess[str]:
    """A command of the program `unisono store`, which is a genuine client."""
    variables = {"UNISONO_SECRET": secret} if secret else {}
    return subprocess.run(
        [UNISONO, "store", arguments[0], "--port", str(port), *arguments[1:]],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
