#!/usr/bin/env python3
"""Compares a step of a pipeline to one of PyTorch's torch.distributed.pipelining over Gloo.

Every round starts each run once, in turn, so that all of them see the same machine. The table
holds medians over the rounds; ratios are taken within a round.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, has_gloo, json_of, print_table

SOURCE = Path(__file__).resolve().parent
RANKS = 2
UNISONO = "Unisono"
GLOO = "PyTorch, Gloo"
# Stages on each rank.
OURS = {
    "fill_drain": 1,
    "1f1b": 1,
    "zb_h1": 1,
    "interleaved_1f1b": 2,
    "v_min": 2,
    "v_half": 2,
    "v_zb": 2,
    "dual_pipe_v": 2,
}
THEIRS = [
    "fill_drain",
    "1f1b",
    "interleaved_1f1b",
    "interleaved_zero_bubble",
    "v_zb",
    "dual_pipe_v",
]
COLUMNS = ["who", "schedule", "chunks", "step ms", "first step", "bubble", "activations MiB"]
RUN_TIMEOUT_S = 120
# So narrow that the computation of a chunk takes almost no time.
NARROW = 8
MANY_CHUNKS = 64


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="pipeline_bench, as built")
    parser.add_argument("--launcher", required=True, help="unisono, as built")
    parser.add_argument("--torch-python", help="a Python with torch, for the comparison")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10, help="of each run")
    parser.add_argument("--chunks", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--schedules", nargs="+", choices=OURS, default=list(OURS))
    parser.add_argument("--torch-schedules", nargs="+", choices=THEIRS, default=THEIRS)
    return parser.parse_args()


def ours(options, schedule, chunks, *more):
    command = [options.launcher, "run", "-n", str(RANKS), options.program]
    command += ["--stages", str(RANKS * OURS[schedule]), "--schedule", schedule]
    return [*command, "--chunks", str(chunks), "--steps", str(options.steps), *more]


def theirs(options, schedule, chunks, rendezvous):
    command = [options.launcher, "run", "-n", str(RANKS), options.torch_python]
    command += [str(SOURCE / "torch_pipeline.py"), "--schedule", schedule, "--chunks", str(chunks)]
    return [*command, "--steps", str(options.steps), "--rendezvous", rendezvous]


def commands(options, folder):
    """The command of each run, by (who, schedule, chunks)."""
    result = {}
    for chunks in options.chunks:
        for schedule in options.schedules:
            result[UNISONO, schedule, chunks] = ours(options, schedule, chunks)
        # PyTorch rejects 1F1B and similar schedules with fewer chunks than stages.
        for schedule in options.torch_schedules if options.torch_python else []:
            if schedule == "fill_drain" or chunks >= 2 * RANKS:
                rendezvous = f"{folder}/{schedule}.{chunks}"
                result[GLOO, schedule, chunks] = theirs(options, schedule, chunks, rendezvous)
    return result


def run(command):
    return json_of("pipeline_bench", command, RUN_TIMEOUT_S)


def run_rounds(options):
    rounds = []
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            rounds.append({key: run(command) for key, command in commands(options, folder).items()})
        print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr)
    return rounds


def median_of(rounds, key, field):
    return statistics.median(r[key][field] for r in rounds)


def row(rounds, key):
    who, schedule, chunks = key
    step = median_of(rounds, key, "step_ms_median")
    first = statistics.median(r[key]["first_step_ms"] / r[key]["step_ms_median"] for r in rounds)
    cells = [who, schedule, str(chunks), f"{step:.1f}", f"{first:.2f} x", "-", "-"]
    if who == UNISONO:
        cells[5] = f"{100 * median_of(rounds, key, 'bubble'):.0f}%"
        cells[6] = f"{median_of(rounds, key, 'peak_activation_mib'):.1f}"
    return cells


def best_step(results, who, chunks=None):
    """The fastest run of one round: with so many chunks, or any."""
    steps = [
        result["step_ms_median"]
        for (name, _, count), result in results.items()
        if name == who and chunks in (None, count)
    ]
    return min(steps) if steps else None


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def print_ratios(rounds, options):
    if options.torch_python:
        print("Unisono's best / PyTorch's best:", end=" ")
        print(spread([best_step(r, UNISONO) / best_step(r, GLOO) for r in rounds]))
    if {1, 4} <= set(options.chunks):
        print("speed with 4 chunks / with 1:", end=" ")
        print(spread([best_step(r, UNISONO, 1) / best_step(r, UNISONO, 4) for r in rounds]))
    if {"zb_h1", "1f1b"} <= set(options.schedules):
        chunks = max(options.chunks)
        zero_bubble, plain = (UNISONO, "zb_h1", chunks), (UNISONO, "1f1b", chunks)
        ratios = [r[zero_bubble]["step_ms_median"] / r[plain]["step_ms_median"] for r in rounds]
        print(f"zb_h1 / 1f1b with {chunks} chunks:", spread(ratios))


def print_chunk_cost(options):
    """What a chunk costs in a stage where it computes next to nothing."""
    narrow = ["--width", str(NARROW), "--batch", str(MANY_CHUNKS)]
    costs = []
    for _ in range(options.rounds):
        few, many = (
            run(ours(options, "1f1b", chunks, *narrow))["step_ms_median"]
            for chunks in (1, MANY_CHUNKS)
        )
        costs.append(1e3 * (many - few) / (MANY_CHUNKS - 1))
    layers = f"layers of width {NARROW}, their forward and backward included"
    print(f"a chunk more, {layers}: {statistics.median(costs):.0f} us of each rank")


def main():
    options = parse_arguments()
    if not has_gloo(options.torch_python):
        print("no Python with torch and Gloo: measuring Unisono alone, nothing to compare with")
        options.torch_python = None
    load_before = os.getloadavg()[0]
    rounds = run_rounds(options)
    print(describe_machine(load_before))
    print(f"{RANKS} ranks, 4 x Linear(1024, 1024) with ReLU, batch 256, one thread each")
    print(f"{options.rounds} rounds of {options.steps} steps; first step: times the median one")
    print_table(COLUMNS, [row(rounds, key) for key in rounds[0]])
    print_ratios(rounds, options)
    print_chunk_cost(options)


if __name__ == "__main__":
    main()
