#!/usr/bin/env python3
"""Compares training steps of two batches: on two ranks with Unisono, with PyTorch's
DistributedDataParallel over Gloo, in two threads of DataParallel, and one after the other.
Ours are one training: all of them come to the same bits (ddp_bench --hash).

Every round starts each program once, in turn, so that all of them see the same machine. The table
holds medians over the rounds of each run's median step; ratios are taken within a round. Below it
stand the aims, and whether they are met; so does what the wrapper costs, in time and in memory.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, has_gloo, json_of, print_table

SOURCE = Path(__file__).resolve().parent
MODELS = {
    "mlp": (64, "MLP, 4 x Linear(2048, 2048), 64 MiB"),
    "cnn": (64, "convnet of examples/02_mnist_ddp"),
    "transformer": (32, "embedding and 2 encoder layers, 6.4 MiB"),
    "many": (64, "1,000 x Linear(32, 32)"),
}
ALONE = "LibTorch, one process"
ACCUMULATED = "LibTorch, 2 batches added up"
THREADS = "Unisono, DataParallel, 2 threads"
TORCH_ALONE = "PyTorch, one process"
TORCH_THREADS = "PyTorch, nn.DataParallel, 2 threads"
UNISONO = "Unisono"
GLOO = "PyTorch, Gloo"
GLOO_VIEWS = "PyTorch, Gloo, bucket views"
PACKAGE = "PyTorch, Unisono"
# Number of batches per step in one process.
N_BATCHES = {ALONE: 1, ACCUMULATED: 2, THREADS: 2, TORCH_ALONE: 1, TORCH_THREADS: 2}
# Throughput of a run in multiples of another run's: for a loop that is bound by the program's own
# work in each operator, and for models that are bound by arithmetic.
AIMS = [
    ("many", UNISONO, THREADS, 1.0),
    ("many", PACKAGE, TORCH_THREADS, 1.0),
    ("many", GLOO, TORCH_THREADS, 1.0),
    ("mlp", UNISONO, ALONE, 1.4),
    ("cnn", UNISONO, ALONE, 1.4),
    ("mlp", UNISONO, ACCUMULATED, 1.0),
    ("cnn", UNISONO, ACCUMULATED, 1.0),
    ("transformer", UNISONO, ACCUMULATED, 1.0),
    ("many", UNISONO, ACCUMULATED, 1.0),
]
MIB_OF_GRADIENTS = {"mlp": 64.0, "cnn": 4.58, "transformer": 6.4, "many": 4.03}
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
    parser.add_argument("--package", help="the folder in which the Python package unisono lies")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="of each kind, in each run")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    return parser.parse_args()


def commands(options, model, steps, rendezvous):
    """The command of each run, by its name in the table."""
    what = ["--model", model, "--steps", str(steps)]
    ranks = [options.launcher, "run", "-n", "2"]
    result = {
        ALONE: [options.program, *what, "--alone"],
        ACCUMULATED: [options.program, *what, "--alone", "--accumulate", "2"],
        THREADS: [options.program, *what, "--alone", "--data-parallel", "2"],
        UNISONO: [*ranks, options.program, *what],
    }
    if options.torch_python:
        torch_step = [options.torch_python, str(SOURCE / "torch_step.py"), *what]
        result[TORCH_ALONE] = [*torch_step, "--alone"]
        result[TORCH_THREADS] = [*torch_step, "--alone", "--data-parallel", "2"]
        gloo = [*ranks, *torch_step]
        result[GLOO] = [*gloo, "--rendezvous", f"{rendezvous}.default"]
        result[GLOO_VIEWS] = [*gloo, "--rendezvous", f"{rendezvous}.views", "--bucket-views"]
        if options.package:
            package = [*gloo, "--rendezvous", f"{rendezvous}.package", "--backend", "unisono"]
            result[PACKAGE] = ["env", f"PYTHONPATH={options.package}", *package]
    return result


def run(command):
    # Only the operators of PyTorch's DataParallel use a second thread; the program requests this
    # thread itself.
    return json_of("ddp_bench", command, RUN_TIMEOUT_S)


def run_rounds(options):
    """The results of each round, by model and name. A first short round warms up."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(options.rounds + 1):
            steps = options.steps if number else 1
            results = {}
            for model in options.models:
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


def samples_per_s(result, model, name):
    n_batches = result["ranks"] * N_BATCHES.get(name, 1)
    return MODELS[model][0] * n_batches / result["step"]["median"]


def row(rounds, model, name):
    results = [r[model, name] for r in rounds]
    steps = [r["step"]["median"] for r in results]
    ranks = results[0]["ranks"]
    description = MODELS[model][1]
    cells = [description, name, str(ranks), f"{1e3 * median(steps):.1f}", "-", "-"]
    if ranks > 1:
        without = [r["step_without_sync"]["median"] for r in results]
        shares = [100 * exposed_share(r) for r in results]
        cells[4] = f"{1e3 * median(without):.1f}"
        cells[5] = f"{median(shares):.1f}% ({min(shares):.1f} to {max(shares):.1f})"
    cells.append(f"{median([samples_per_s(r, model, name) for r in results]):.0f}")
    ratio = "-"
    if ranks > 1 and (model, GLOO) in rounds[0]:
        ratios = [
            r[model, GLOO]["step"]["median"] / r[model, name]["step"]["median"] for r in rounds
        ]
        ratio = f"{median(ratios):.2f}"
    return [*cells, ratio]


def aims(rounds):
    """A row for each aim, with whether the median of the rounds' ratios meets it."""
    rows = []
    for model, name, other, aim in AIMS:
        if (model, name) in rounds[0] and (model, other) in rounds[0]:
            ratios = [
                samples_per_s(r[model, name], model, name)
                / samples_per_s(r[model, other], model, other)
                for r in rounds
            ]
            spread = f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            met = "yes" if median(ratios) >= aim else "NO"
            rows.append([MODELS[model][1], f"{name} / {other}", spread, f"{aim}", met])
    return rows


def cost_of_wrapper(options, model, steps, arguments):
    """Of the medians, with the wrapper and without, in one run that makes both in turn."""
    command = [options.launcher, "run", "-n", "1", options.program, "--model", model, *arguments]
    result = run([*command, "--steps", str(steps), "--beside-plain"])
    return result["step"]["median"] - result["plain_step"]["median"], result


def costs(options):
    """Rows: what is measured, the figure, the aim, whether it is met."""
    cost, result = cost_of_wrapper(options, "many", 10 * options.steps, [])
    us = 1e6 * cost / result["parameters"]
    rows = [["hooks and bookkeeping, us per parameter and step", f"{us:.2f}", "1"]]
    rows[0].append("yes" if us < 1 else "NO")
    for model in ("cnn", "mlp"):
        if model in options.models:
            steps = 2 * options.steps
            cost, result = cost_of_wrapper(options, model, steps, ["--logical-ranks", "4"])
            share = 100 * cost / result["plain_step"]["median"]
            what = f"4 logical ranks on one, beside adding up 4 batches, {MODELS[model][1]}"
            rows.append([what, f"{share:.1f}%", "1%", "yes" if share <= 1 else "NO"])
    if "mlp" in options.models:
        rows.append(cost_in_memory(options, "mlp"))
    return rows


def held_processes(options, model):
    """Two processes without ranks, after their steps: their summed PSS in MiB."""
    command = [options.program, "--model", model, "--steps", "5", "--alone", "--hold"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(2)]
    try:
        for process in processes:
            process.stdout.readline()
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return sum(json.loads(process.stdout.readline())["pss_mib"] for process in processes)
    finally:
        for process in processes:
            process.communicate(timeout=RUN_TIMEOUT_S)


def cost_in_memory(options, model):
    ranks = [options.launcher, "run", "-n", "2", options.program, "--model", model]
    more = run([*ranks, "--steps", "5"])["pss_mib"] - held_processes(options, model)
    share = more / (2 * MIB_OF_GRADIENTS[model])
    what = f"PSS of 2 ranks above that of 2 processes, of their gradients, {MODELS[model][1]}"
    return [what, f"{share:.2f} ({more:.1f} MiB)", "0.1", "yes" if share <= 0.1 else "NO"]


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
    print()
    print_table(["model", "samples/s of", "ratio", "aim", "met"], aims(rounds))
    print()
    print_table(["what the wrapper costs", "measured", "at most", "met"], costs(options))


if __name__ == "__main__":
    main()
