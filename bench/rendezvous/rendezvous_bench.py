#!/usr/bin/env python3
"""Measures how the store and the rendezvous bear many ranks, and how soon two ranks have met.

- Clients that are connected to one server, with a secret: the server's memory and, while they are
  silent, its processor time.
- Ranks that connect to a server at the same moment and exchange their roster, each a thread with a
  connection of its own. All of them share this machine: also the work that each rank of a real job
  does on a core of its own, reading the roster.
- The same with PyTorch's TCPStore (torch_ranks.py), where there is a Python with torch.
- Two ranks on this machine, from the later one's first line to the end of their first barrier.
"""

import argparse
import contextlib
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, print_table

N_PROCESSES = 4
SPARE_DESCRIPTORS = 64
IDLE_SECONDS = 2
TIMEOUT_S = 120


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", required=True, help="rendezvous_load, as built")
    parser.add_argument("--first-barrier", required=True, help="first_barrier, as built")
    parser.add_argument("--torch-python", help="a Python with torch, for the comparison")
    parser.add_argument("--torch-ranks", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1000, 4000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--starts", type=int, default=20)
    return parser.parse_args()


def raise_descriptor_limit(needed):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, max(hard, needed)))
    except (ValueError, PermissionError):
        sys.exit(f"rendezvous_bench: needs {needed} file descriptors, {hard} are allowed")


class Process:
    """A program that is spoken to in lines."""

    def __init__(self, *command, **variables):
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            # At other log levels PyTorch resolves a name for each address in the log.
            env=os.environ | {"TORCH_CPP_LOG_LEVEL": "ERROR"} | variables,
        )

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"rendezvous_bench: {self.process.args} ended early")
        return line.split()

    def status(self, name):
        """Of /proc/PID/status, in MB."""
        path = Path(f"/proc/{self.process.pid}/status")
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024 / 1e6
        raise KeyError(name)

    def cpu_seconds(self):
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(TIMEOUT_S)


@contextlib.contextmanager
def started(*commands):
    processes = [Process(*command) for command in commands]
    try:
        yield processes
    finally:
        for process in processes:
            process.close()


def measure_clients(load, n_clients):
    with started([*load, "serve"]) as [server]:
        port = server.hear()[0]
        empty = server.status("VmRSS")
        start = time.monotonic()
        share = n_clients // N_PROCESSES
        with started(*[[*load, "hold", port, share]] * N_PROCESSES) as holders:
            for holder in holders:
                holder.hear()
            seconds = time.monotonic() - start
            connected = server.status("VmRSS")
            for holder in holders:
                holder.say("use")
            for holder in holders:
                holder.hear()
            used = server.status("VmRSS")
            cpu_before = server.cpu_seconds()
            time.sleep(IDLE_SECONDS)
            idle = server.cpu_seconds() - cpu_before
    return [
        str(share * N_PROCESSES),
        f"{seconds:.2f}",
        f"{empty:.1f}",
        f"{connected:.1f}",
        f"{used:.1f}",
        f"{idle * 1000:.2f}",
    ]


def meet(load, n_ranks):
    with started([*load, "serve"]) as [server]:
        port = server.hear()[0]
        share = n_ranks // N_PROCESSES
        commands = [[*load, "meet", port, i * share, share, n_ranks] for i in range(N_PROCESSES)]
        with started(*commands) as groups:
            for group in groups:
                group.hear()
            cpu_before = server.cpu_seconds()
            for group in groups:
                group.say("go")
            heard = [[float(word) for word in group.hear()] for group in groups]
            server_cpu = server.cpu_seconds() - cpu_before
            peak = server.status("VmHWM")
    connected, met, requests = (max(column) for column in list(zip(*heard, strict=True))[:3])
    ranks_cpu = sum(line[3] for line in heard)
    return connected, met, requests, server_cpu, ranks_cpu, peak


def measure_meetings(name, load, n_ranks, rounds):
    figures = zip(*[meet(load, n_ranks) for _ in range(rounds)], strict=True)
    connected, met, requests, server_cpu, ranks_cpu, peak = map(statistics.median, figures)
    return [
        name,
        str(n_ranks),
        f"{connected:.2f}",
        f"{met:.2f}",
        f"{requests:.0f}",
        f"{server_cpu:.2f}",
        f"{ranks_cpu / n_ranks * 1000:.2f}",
        f"{peak:.0f}",
    ]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def start_pair(program, order):
    port = free_port()
    variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    ranks = [Process(program, RANK=str(rank), **variables) for rank in order]
    heard = [[float(word) for word in rank.hear()] for rank in ranks]
    for rank in ranks:
        rank.close()
    begin, connected, end, used = zip(*heard, strict=True)
    start = max(begin)
    return max(connected) - start, max(end) - start, max(used)


def measure_starts(program, order, n_starts):
    pairs = [start_pair(program, order) for _ in range(n_starts)]
    connected, end, used = zip(*pairs, strict=True)
    name = f"rank {order[0]} first"
    figures = (statistics.median(connected), statistics.median(end), max(end))
    return [name, *[f"{x * 1e3:.2f}" for x in (*figures, statistics.median(used))]]


def main():
    options = parse_arguments()
    machine = describe_machine(os.getloadavg()[0])
    raise_descriptor_limit(max([options.clients, *options.ranks]) + SPARE_DESCRIPTORS)
    load = [options.load]
    clients = [measure_clients(load, options.clients)] if options.clients else []
    meetings = [measure_meetings("Unisono", load, n, options.rounds) for n in options.ranks]
    if options.torch_python:
        torch = [options.torch_python, Path(__file__).with_name("torch_ranks.py")]
        meetings.append(measure_meetings("PyTorch", torch, options.torch_ranks, options.rounds))
    starts = []
    if options.starts:
        orders = [(0, 1), (1, 0)]
        starts = [measure_starts(options.first_barrier, o, options.starts) for o in orders]
    print(f"\nRendezvous\n{machine}\n")
    memory = ["RSS MB empty", "all connected", "after a set and a get each"]
    print_table(["clients", "connected in s", *memory, "CPU ms in 2 s idle"], clients)
    print(f"\nmedians of {options.rounds} rounds\n")
    times = ["all connected s", "all met s", "requests of a rank"]
    cpu = ["server CPU s", "CPU ms of a rank", "server peak RSS MB"]
    print_table(["store", "ranks", *times, *cpu], meetings)
    print(f"\nmedians of {options.starts} starts, ms after the later rank's\n")
    print_table(["started", "group", "first barrier", "slowest", "CPU of a rank"], starts)


if __name__ == "__main__":
    main()
