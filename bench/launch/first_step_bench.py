#!/usr/bin/env python3
"""Measures the time to the first step of training of two Python workers, ours beside torch's.

They are started by a launcher, by spawn and by a fork server. Every round runs each program once,
in turn. A second start within one program finds the fork server running.
"""

import argparse
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, output_of, print_table

PROGRAM = str(Path(__file__).resolve().parent / "first_step.py")
TIMEOUT_S = 120
N_WORKERS = 2
OURS = "Unisono"
TORCHS = "PyTorch, Gloo"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--package", required=True, help="the folder in which unisono lies")
    parser.add_argument("--torch-python", required=True, help="a Python with torch")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def commands(arguments):
    """By how the workers are started and by whom."""
    python = arguments.torch_python
    ranks = ["-n", str(N_WORKERS), python]
    torchrun = [python, "-m", "torch.distributed.run", "--standalone"]
    ours, torchs = [PROGRAM, "unisono"], [PROGRAM, "gloo"]
    result = {
        ("launcher", OURS): [arguments.unisono, "run", *ranks, *ours, "launcher"],
        ("launcher", TORCHS): [*torchrun, "--nproc-per-node", str(N_WORKERS), *torchs, "launcher"],
    }
    for start in ("spawn", "forkserver"):
        result[start, OURS] = [python, *ours, start]
        result[start, TORCHS] = [python, *torchs, start]
    return result


def run(arguments, command):
    """Seconds from the command to the later of the first steps; and from the second start in it."""
    begin = time.monotonic()
    said = output_of("first_step_bench", command, TIMEOUT_S, PYTHONPATH=arguments.package)
    lines = [line.split() for line in said.splitlines()]
    calls = [float(when) for what, when in lines if what == "call"]
    steps = sorted(float(when) for what, when in lines if what == "step")
    if len(steps) != N_WORKERS * max(1, len(calls)):
        sys.exit(f"first_step_bench: {' '.join(command)} wrote {said}")
    return steps[N_WORKERS - 1] - begin, steps[-1] - calls[-1] if calls else None


def median(values):
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def measure(arguments):
    """The medians of both times, by start and by whom."""
    times = {key: [] for key in commands(arguments)}
    for _ in range(arguments.rounds):
        for key, command in commands(arguments).items():
            times[key].append(run(arguments, command))
    return {
        key: [median(column) for column in zip(*rows, strict=True)] for key, rows in times.items()
    }


def text(seconds):
    return "" if seconds is None else f"{seconds:.2f}"


def main():
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    found = measure(arguments)
    rows = []
    for start in ("launcher", "spawn", "forkserver"):
        for i, what in enumerate(("from the command", "second start in a program")):
            ours, torchs = (found[start, whose][i] for whose in (OURS, TORCHS))
            if ours is not None:
                rows.append([start, what, text(ours), text(torchs), f"{torchs / ours:.2f}"])
    print(describe_machine(load) + "\n")
    print_table(["start", "s to the first step", OURS, TORCHS, "times ours"], rows)


if __name__ == "__main__":
    main()
