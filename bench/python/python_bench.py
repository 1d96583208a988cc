#!/usr/bin/env python3
"""Compares the Python package to PyTorch's Gloo: training steps, all_reduce, cost of the import.

Every round starts each program once, in turn, so that all of them see the same machine. The tables
hold medians over the rounds of each run's median; ratios are taken within a round.
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

SOURCE = Path(__file__).resolve().parents[1]
MODELS = {"cnn": "convnet of examples/02_mnist_ddp", "mlp": "MLP, 4 x Linear(2048, 2048)"}
GLOO = "Gloo"
UNISONO = "Unisono"
ENABLED = "Unisono, ddp.enable()"
SYMMETRIC = "Unisono, symmetric memory"
BACKENDS = {GLOO: ["--backend", "gloo"], UNISONO: ["--backend", "unisono"]}
STEPS = {
    **BACKENDS,
    ENABLED: [*BACKENDS[UNISONO], "--symmetric"],
}
VIEWS = ", bucket views"
STEPS |= {name + VIEWS: [*what, "--bucket-views"] for name, what in STEPS.items()}
REDUCTIONS = {**BACKENDS, SYMMETRIC: [*BACKENDS[UNISONO], "--memory", "symmetric"]}
SIZES = [8, 1 << 10, 16 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]
STEP_TARGETS = {"cnn": 0.85, "mlp": 0.7}  # Of Gloo's time.
MOST_US_OF_8_BYTES = 10
LEAST_SPEED_OF_64_MIB = 3  # Times Gloo's.
MOST_MS_OF_IMPORT = 50
IMPORT = """
import time
import torch
begin = time.perf_counter()
import unisono
print(1e3 * (time.perf_counter() - begin))
"""
RUN_TIMEOUT_S = 180


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", required=True, help="a Python with torch")
    parser.add_argument("--package", required=True, help="the folder in which unisono lies")
    parser.add_argument("--launcher", required=True, help="unisono, as built")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=30, help="of each kind, in each run")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size of all_reduce")
    return parser.parse_args()


def run(options, command):
    """The lines that the command prints."""
    text = output_of("python_bench", command, RUN_TIMEOUT_S, PYTHONPATH=options.package)
    return text.splitlines()


def run_ranks(options, script, *arguments):
    command = [options.launcher, "run", "-n", "2", options.torch_python, str(SOURCE / script)]
    return [json.loads(line) for line in run(options, [*command, *arguments])]


def run_round(options, steps, seconds, folder):
    """Milliseconds of (model, who) and (model, who, "alone"), microseconds of (bytes, who),
    milliseconds of "import"."""
    results = {}
    for model in MODELS:
        for who, how in STEPS.items():
            rendezvous = f"{folder}/{len(results)}"
            what = ["--model", model, "--steps", str(steps), "--rendezvous", rendezvous]
            (result,) = run_ranks(options, "ddp/torch_step.py", *what, *how)
            results[model, who] = 1e3 * result["step"]["median"]
            results[model, who, "alone"] = 1e3 * result["step_without_sync"]["median"]
    sizes = ",".join(map(str, SIZES))
    for who, how in REDUCTIONS.items():
        what = ["all_reduce", sizes, str(seconds)]
        for result in run_ranks(options, "collectives/torch_bench.py", *what, *how):
            results[result["bytes"], who] = result["median_us"]
    (cost,) = run(options, [options.torch_python, "-c", IMPORT])
    results["import"] = float(cost)
    return results


def run_rounds(options):
    """The results of each round. A first short round warms up."""
    rounds = []
    for number in range(options.rounds + 1):
        steps, seconds = (options.steps, options.seconds) if number else (1, 0.05)
        with tempfile.TemporaryDirectory() as folder:
            results = run_round(options, steps, seconds, folder)
        if number:
            rounds.append(results)
            print(f"round {number} of {options.rounds} is done", file=sys.stderr)
    return rounds


def median(rounds, key):
    return statistics.median(r[key] for r in rounds)


def ratios(rounds, key, reference):
    return [r[key] / r[reference] for r in rounds]


def spread(values):
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def print_steps(rounds):
    rows = []
    for model, name in MODELS.items():
        for who in STEPS:
            alike = GLOO + VIEWS if who.endswith(VIEWS) else GLOO
            rows.append(
                [
                    name,
                    who,
                    f"{median(rounds, (model, who)):.1f}",
                    f"{median(rounds, (model, who, 'alone')):.1f}",
                    spread(ratios(rounds, (model, who), (model, GLOO))),
                    spread(ratios(rounds, (model, who), (model, alike))),
                ]
            )
    columns = ["step ms", "without sync ms", "time / Gloo", "time / Gloo with the same views"]
    print_table(["model", "backend", *columns], rows)


def print_reductions(rounds):
    rows = []
    for n_bytes in SIZES:
        times = [f"{median(rounds, (n_bytes, who)):.2f}" for who in REDUCTIONS]
        speeds = [
            spread(ratios(rounds, (n_bytes, GLOO), (n_bytes, who))) for who in (UNISONO, SYMMETRIC)
        ]
        rows.append([str(n_bytes), *times, *speeds])
    columns = [f"{who} us" for who in REDUCTIONS]
    print_table(["bytes", *columns, "Gloo / Unisono", "Gloo / symmetric memory"], rows)


def print_targets(rounds):
    targets = []
    for model, most in STEP_TARGETS.items():
        for who, how in (
            (ENABLED, "ddp.enable()"),
            (ENABLED + VIEWS, "the same with bucket views"),
        ):
            share = statistics.median(ratios(rounds, (model, who), (model, GLOO)))
            targets.append((f"step of the {model}, {how}, share of Gloo's", share, "at most", most))
        # The lower limit of any backend.
        share = statistics.median(ratios(rounds, (model, GLOO, "alone"), (model, GLOO)))
        targets.append(
            (f"step of the {model} that sends nothing, the same", share, "at most", most)
        )
    speed = statistics.median(ratios(rounds, (64 << 20, GLOO), (64 << 20, UNISONO)))
    targets += [
        ("all_reduce of 8 bytes, us", median(rounds, (8, UNISONO)), "at most", MOST_US_OF_8_BYTES),
        ("all_reduce of 64 MiB, times Gloo's speed", speed, "at least", LEAST_SPEED_OF_64_MIB),
        (
            "import unisono, ms over import torch",
            median(rounds, "import"),
            "at most",
            MOST_MS_OF_IMPORT,
        ),
    ]
    rows = []
    for what, value, bound, limit in targets:
        is_reached = value <= limit if bound == "at most" else value >= limit
        verdict = "reached" if is_reached else "not reached"
        rows.append([what, f"{value:.2f}", f"{bound} {limit}", verdict])
    print_table(["what", "measured", "target", "verdict"], rows)


def main():
    options = parse_arguments()
    if not has_gloo(options.torch_python):
        sys.exit(f"python_bench: {options.torch_python} has no torch with Gloo to compare with")
    load_before = os.getloadavg()[0]
    rounds = run_rounds(options)
    print(describe_machine(load_before))
    print(f"{options.rounds} rounds of {options.steps} steps, 2 ranks")
    for show in (print_steps, print_reductions, print_targets):
        print()
        show(rounds)


if __name__ == "__main__":
    main()
