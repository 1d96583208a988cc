#!/usr/bin/env python3
"""Measures what a launcher costs, in turn with torchrun and Open MPI's mpirun where they are.

- From the command to its end, of 2 processes that do nothing.
- From the command to its end, of 64 processes that meet and leave.
- From a killed worker to the first line of its successor; the workers do nothing else.
- The launcher's memory while 8 processes sleep.
"""

import argparse
import os
import resource
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, print_table

TIMEOUT_S = 120
# Prints its start time and process id. The first attempt waits to be killed.
WORKER = """
import os, sys, time
print(time.monotonic(), os.getpid(), flush=True)
if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0":
    time.sleep(60)
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--program", required=True, help="first_barrier, as built")
    parser.add_argument("--torch-python", help="a Python with torch, for torchrun")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--runs", type=int, default=20, help="of the fast ones, in each round")
    return parser.parse_args()


def run(command, **variables):
    """Seconds until the command has ended."""
    begin = time.monotonic()
    done = subprocess.run(
        command,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        sys.exit(f"launch_bench: {' '.join(command)} ended with {done.returncode}: {done.stderr}")
    return seconds


def torchrun(python, *words):
    return [python, "-m", "torch.distributed.run", "--standalone", *words]


def starters(arguments):
    """The command of each launcher that starts 2 processes which do nothing."""
    commands = {"unisono run": [arguments.unisono, "run", "-n", "2", "true"]}
    mpirun = shutil.which("mpirun.openmpi") or shutil.which("mpirun")
    if mpirun:
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        commands["mpirun (Open MPI)"] = [mpirun, *root, "--oversubscribe", "-n", "2", "true"]
    if arguments.torch_python:
        words = ["--nproc-per-node", "2", "--no-python", "true"]
        commands["torchrun"] = torchrun(arguments.torch_python, *words)
    return commands


def measure_starts(arguments):
    times = {name: [] for name in starters(arguments)}
    for _ in range(arguments.rounds):
        for name, command in starters(arguments).items():
            runs = 1 if name == "torchrun" else arguments.runs
            times[name] += [run(command) for _ in range(runs)]
    return {name: statistics.median(values) for name, values in times.items()}


def measure_restart(command):
    """Seconds from a worker's death to the first line of the one that takes its place."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(WORKER)
        script.flush()
        process = subprocess.Popen([*command, script.name], stdout=subprocess.PIPE, text=True,
                                   stderr=subprocess.DEVNULL)  # fmt: skip
        first = [process.stdout.readline().split() for _ in range(2)]
        time.sleep(0.3)
        killed = time.monotonic()
        os.kill(int(first[0][1]), signal.SIGKILL)
        second = [process.stdout.readline().split() for _ in range(2)]
        process.communicate(timeout=TIMEOUT_S)
    return max(float(words[0]) for words in second) - killed


def restarters(arguments):
    commands = {"unisono run": [arguments.unisono, "run", "-n", "2", "--max-restarts", "1"]}
    if arguments.torch_python:
        words = ["--nproc-per-node", "2", "--max-restarts", "1", "--monitor-interval", "0.1"]
        commands["torchrun"] = torchrun(arguments.torch_python, *words)
    return commands


def start_of_python():
    """What a worker's own start takes, which is in the time of a restart."""
    command = [sys.executable, "-u", "-c", "pass"]
    return statistics.median(run(command) for _ in range(10))


def memory_of(command):
    """Resident MB of the launcher itself while its processes sleep."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(4)
    status = Path(f"/proc/{process.pid}/status").read_text()
    process.terminate()
    process.wait()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def sleepers(arguments):
    commands = {"unisono run": [arguments.unisono, "run", "-n", "8", "sleep", "30"]}
    if arguments.torch_python:
        words = ["--nproc-per-node", "8", "--no-python", "sleep", "30"]
        commands["torchrun"] = torchrun(arguments.torch_python, *words)
    return commands


def measure_many(arguments):
    command = [arguments.unisono, "run", "-n", "64", arguments.program]
    return statistics.median(run(command) for _ in range(arguments.rounds))


def ratio(value, ours):
    return f"{value / ours:.1f}"


def main():
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    rows = []
    starts = measure_starts(arguments)
    for name, seconds in starts.items():
        times = ratio(seconds, starts["unisono run"])
        rows.append(["2 processes that do nothing", name, f"{1000 * seconds:.1f} ms", times])
    rows.append(["64 processes that meet", "unisono run", f"{measure_many(arguments):.2f} s", ""])
    restarts = {name: [] for name in restarters(arguments)}
    for _ in range(arguments.rounds):
        for name, command in restarters(arguments).items():
            restarts[name].append(measure_restart(command))
    restarts = {name: statistics.median(values) for name, values in restarts.items()}
    for name, seconds in restarts.items():
        times = ratio(seconds, restarts["unisono run"])
        rows.append(["killed to started again", name, f"{1000 * seconds:.0f} ms", times])
    rows.append(["of that, Python's start", "", f"{1000 * start_of_python():.0f} ms", ""])
    for name, command in sleepers(arguments).items():
        rows.append(["memory, 8 processes", name, f"{memory_of(command):.1f} MB", ""])
    print(describe_machine(load) + "\n")
    print_table(["what", "launcher", "median", "times ours"], rows)


if __name__ == "__main__":
    main()
