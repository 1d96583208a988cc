#!/usr/bin/env python3
"""Compares a training step with Unisono to one with PyTorch's DistributedDataParallel over Gloo.

Every round starts each program once, in turn, so that all of them see the same machine. The table
holds medians over the rounds of each run's median step; ratios are taken within a round.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, has_gloo, output_of, print_table

SOURCE = Path(__file__).resolve().parent
MODELS = {
    "mlp": (64, "MLP, 4 x Linear(2048, 2048), 64 MiB"),
    "cnn": (64, "convnet of examples/02_mnist_ddp"),
    "transformer": (32, "embedding and 2 encoder layers, 6.4 MiB"),
    "many": (64, "1,000 x Linear(32, 32)"),
}
ALONE = "LibTorch, one process"
UNISONO = "Unisono"
GLOO = "PyTorch, Gloo"
GLOO_VIEWS = "PyTorch, Gloo, bucket views"
COLUMNS = [
    "model",
    "who",
    "ranks",
    "step ms",
    "without sync ms",
    "exposed communication",
    "samples/s",
    "speed / Gloo",
]
RUN_TIMEOUT_S = 120


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="ddp_bench, as built")
    parser.add_argument("--launcher", required=True, help="unisono, as built")
    parser.add_argument("--torch-python", help="a Python with torch, for the comparison")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="of each kind, in each run")
    return parser.parse_args()


def commands(options, model, steps, rendezvous):
    """The command of each run, by its name in the table."""
    what = ["--model", model, "--steps", str(steps)]
    ranks = [options.launcher, "run", "-n", "2"]
    result = {
        ALONE: [options.program, *what, "--alone"],
        UNISONO: [*ranks, options.program, *what],
    }
    if options.torch_python:
        gloo = [*ranks, options.torch_python, str(SOURCE / "torch_step.py"), *what]
        result[GLOO] = [*gloo, "--rendezvous", f"{rendezvous}.default"]
        result[GLOO_VIEWS] = [*gloo, "--rendezvous", f"{rendezvous}.views", "--bucket-views"]
    return result


def run(command):
    text = output_of("ddp_bench", command, RUN_TIMEOUT_S)
    try:
        return json.loads(text)
    except ValueError:
        sys.exit(f"ddp_bench: {' '.join(command)} printed {text!r}, not JSON")


def run_rounds(options):
    """The results of each round, by model and name. A first short round warms up."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds + 1):
            steps = options.steps if number else 1
            results = {}
            for model in MODELS:
                rendezvous = f"{folder}/{model}.{number}"
                for name, command in commands(options, model, steps, rendezvous).items():
                    results[model, name] = run(command)
            if number:
                rounds.append(results)
                print(f"round {number} of {options.rounds} is done", file=sys.stderr)
    return rounds


def median(values):
    return statistics.median(values)


def exposed_share(result):
    step = result["step"]["median"]
    return (step - result["step_without_sync"]["median"]) / step


def row(rounds, model, name):
    results = [r[model, name] for r in rounds]
    steps = [r["step"]["median"] for r in results]
    ranks = results[0]["ranks"]
    batch_size, description = MODELS[model]
    cells = [description, name, str(ranks), f"{1e3 * median(steps):.1f}", "-", "-"]
    if ranks > 1:
        without = [r["step_without_sync"]["median"] for r in results]
        shares = [100 * exposed_share(r) for r in results]
        cells[4] = f"{1e3 * median(without):.1f}"
        cells[5] = f"{median(shares):.1f}% ({min(shares):.1f} to {max(shares):.1f})"
    cells.append(f"{median([batch_size * ranks / step for step in steps]):.0f}")
    ratio = "-"
    if ranks > 1 and (model, GLOO) in rounds[0]:
        ratios = [
            r[model, GLOO]["step"]["median"] / r[model, name]["step"]["median"] for r in rounds
        ]
        ratio = f"{median(ratios):.2f}"
    return [*cells, ratio]


def main():
    options = parse_arguments()
    if not has_gloo(options.torch_python):
        print("no Python with torch and Gloo: measuring Unisono alone, nothing to compare with")
        options.torch_python = None
    load_before = os.getloadavg()[0]
    rounds = run_rounds(options)
    print(describe_machine(load_before))
    print(f"{options.rounds} rounds of {options.steps} steps")
    print_table(COLUMNS, [row(rounds, model, name) for model, name in rounds[0]])


if __name__ == "__main__":
    main()
