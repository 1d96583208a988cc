#!/usr/bin/env python3
"""Kills random workers and launchers of jobs of three nodes, which have restarts: each job has to
end complete, with the right result, and leave nothing behind.

A launcher that was killed is started again, as an orchestrator would. Node 0's is spared: the job
ends with it.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

N_NODES = 3
N_WORKERS = 2
N_STEPS = 100
TIMEOUT_S = 60.0
# Time in which a restarted launcher has joined its job or reports a missing launcher of node 0.
JOIN_S = 6.0
NOBODY_THERE = "still waiting after 5 s for the launcher of node 0"
MARK = "UNISONO_RANDOM_KILLS"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def environment_of(pid: int) -> dict[str, str]:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return {}
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries)
    return {name: value for name, _, value in pairs}


def marked(mark: str) -> dict[int, dict[str, str]]:
    """The environments of the job's processes."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    found = {pid: environment_of(pid) for pid in pids}
    return {pid: values for pid, values in found.items() if values.get(MARK) == mark}


class Job:
    def __init__(self, unisono: str, program: str, folder: Path, number: int) -> None:
        self.mark = f"{os.getpid()}.{number}"
        self.state = folder / f"state-{number}"
        self.port = free_port()
        self.command = [
            *(unisono, "run", f"--nnodes={N_NODES}", "-n", str(N_WORKERS), "--max_restarts=1000"),
            *("--master_addr=127.0.0.1", f"--master_port={self.port}", "--grace=2"),
        ]
        self.rest = [program, str(self.state), str(N_STEPS)]
        self.output = (folder / f"output-{number}").open("w+")
        self.launchers = [self.start(node) for node in range(N_NODES)]
        self.last_restart: tuple[int, float] | None = None

    def start(self, node: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*self.command, f"--node_rank={node}", *self.rest],
            env=os.environ | {MARK: self.mark},
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=self.output,
        )

    def kill_worker(self, chance: random.Random) -> bool:
        workers = [pid for pid, values in marked(self.mark).items() if "RANK" in values]
        if not workers:
            return False
        try:
            os.kill(chance.choice(sorted(workers)), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_launcher(self, chance: random.Random) -> bool:
        node = chance.randrange(1, N_NODES)
        if self.launchers[node].poll() is not None:
            return False
        self.launchers[node].kill()
        self.launchers[node].wait()
        self.launchers[node] = self.start(node)
        self.last_restart = (node, time.monotonic())
        return True

    def is_running(self) -> bool:
        return self.launchers[0].poll() is None

    def end_latecomer(self) -> int | None:
        """Ends a launcher that was killed when the job's last ranks had ended, and started again to
        find nobody to meet: who started it has to end it."""
        if self.last_restart is None:
            return None
        node, restarted = self.last_restart
        try:
            self.launchers[0].wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
        if time.monotonic() - restarted > JOIN_S:
            return None
        try:
            self.launchers[node].wait(JOIN_S)
        except subprocess.TimeoutExpired:
            if NOBODY_THERE not in Path(self.output.name).read_text():
                return None
            self.launchers[node].terminate()
            return node
        return None

    def finish(self) -> list[str]:
        """What is wrong with its end."""
        problems = []
        latecomer = self.end_latecomer()
        end = time.monotonic() + TIMEOUT_S
        for node, launcher in enumerate(self.launchers):
            try:
                code = launcher.wait(max(0.0, end - time.monotonic()))
                if code != (128 + signal.SIGTERM if node == latecomer else 0):
                    problems.append(f"node {node} ended with {code}")
            except subprocess.TimeoutExpired:
                problems.append(f"node {node} does not end")
        wanted = f"{N_STEPS} {N_STEPS * (N_STEPS + 1) // 2}\n"
        said = self.state.read_text() if self.state.exists() else "nothing"
        if said != wanted:
            problems.append(f"the result is {said!r}, not {wanted!r}")
        left = marked(self.mark)
        if left:
            problems.append(f"left behind: {sorted(left)}")
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if problems:
            self.output.seek(0)
            problems.append(self.output.read())
        self.output.close()
        return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("unisono")
    parser.add_argument("program", help="counting_program")
    parser.add_argument("--workers", type=int, default=100, help="how many to kill")
    parser.add_argument("--launchers", type=int, default=20, help="how many to kill")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 31))
    chosen = parser.parse_args()
    print(f"seed {chosen.seed}", flush=True)
    chance = random.Random(chosen.seed)
    kills = ["worker"] * chosen.workers + ["launcher"] * chosen.launchers
    chance.shuffle(kills)
    n_jobs = n_bad = 0
    with tempfile.TemporaryDirectory() as folder:
        while kills and not n_bad:
            n_jobs += 1
            job = Job(chosen.unisono, chosen.program, Path(folder), n_jobs)
            while kills and job.is_running():
                # Kills at any moment: during the rendezvous of nodes, the start, work or end of
                # ranks.
                time.sleep(chance.uniform(0.0, 0.4))
                kill = job.kill_worker if kills[-1] == "worker" else job.kill_launcher
                if job.is_running() and kill(chance):
                    kills.pop()
            for problem in job.finish():
                n_bad += 1
                print(f"job {n_jobs}: {problem}", flush=True)
    print(f"{chosen.workers} workers and {chosen.launchers} launchers killed in {n_jobs} jobs")
    sys.exit(1 if n_bad else 0)


if __name__ == "__main__":
    main()
