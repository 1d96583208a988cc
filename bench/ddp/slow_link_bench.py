#!/usr/bin/env python3
"""Measures a training step between two nodes by how gradients travel.

Two network namespaces stand for the nodes, joined by a virtual cable that `tc tbf` slows down to
1 Gbit/s; the model is the MLP, whose gradients have 64 MiB. Every round runs each once, in turn.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, print_table
from shaped_link import lay_cable, missing_for_cable, run_ranks

RATE = "1gbit"
HOOKS = {
    "none": "as they are, 32 bits",
    "bf16": "bfloat16",
    "int8": "int8 with a scale for each block",
    "fp8": "float8 with a scale for each block",
    "power_sgd": "PowerSGD, rank 1",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="ddp_bench, as built")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of each kind, in each run")
    return parser.parse_args()


def measure(options, cable, hook):
    """Median ms of a step, and of one that sends nothing."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.json"
        what = ["--model", "mlp", "--steps", str(options.steps), "--hook", hook]
        run_ranks(cable, [options.program, *what, "--json", str(result)])
        fields = json.loads(result.read_text())
        return fields["step_ms_median"], 1e3 * fields["step_without_sync"]["median"]


def main():
    options = parse_arguments()
    load = os.getloadavg()[0]
    if missing := missing_for_cable():
        print(f"no shaped link: {missing}")
        return
    times = {hook: [] for hook in HOOKS}
    with lay_cable() as cable:
        cable.shape(RATE)
        for _ in range(options.rounds):
            for hook, rounds in times.items():
                rounds.append(measure(options, cable, hook))
    print(describe_machine(load))
    print(f"\n### A step of the MLP on 2 nodes, {RATE}\n")
    rows = []
    for hook, name in HOOKS.items():
        ratios = [
            plain[0] / ours[0] for plain, ours in zip(times["none"], times[hook], strict=True)
        ]
        step, alone = (statistics.median(column) for column in zip(*times[hook], strict=True))
        ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append([name, f"{step:.1f}", f"{alone:.1f}", ratio])
    print_table(["gradients", "step ms", "without sync ms", "plain / this"], rows)


if __name__ == "__main__":
    main()
