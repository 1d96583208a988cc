#!/usr/bin/env python3
"""What one all_reduce takes with each backend, and with Gloo: a few bytes, and many.

Every round starts each once, in turn; all of them measure by the rules of
src/unisono/cli/bench_report.h. The table holds medians over the rounds of each run's median, with
the lowest and the highest.
"""

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, has_gloo, print_table
from collectives_bench import MIB, MPICH, OPEN_MPI, SOURCE, Case, mpi_command, run

SIZES = (4, 64 * MIB)
BYTES_PER_GB = 1e9
US_PER_S = 1e6


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--ucx", action="store_true", help="unisono was built with UCX")
    parser.add_argument("--openmpi", help="mpi_bench, as built by Open MPI")
    parser.add_argument("--mpich", help="mpi_bench, as built by MPICH")
    parser.add_argument("--torch-python", help="a Python with torch, for Gloo")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=0.3, help="for each size in each run")
    return parser.parse_args()


def commands(options, json_path):
    """The command of each row of the table."""
    case = Case("", "all_reduce", options.ranks, SIZES)
    sizes, seconds = ",".join(map(str, SIZES)), str(options.seconds)
    ours = [options.unisono, "bench", case.op, "--sizes", sizes]
    ours += ["--seconds", seconds, "--json", json_path]
    ranks = ["-n", str(case.ranks)]
    peers = [case.op, sizes, seconds]
    result = {
        "unisono, shared memory": [*ours, *ranks],
        "unisono, tcp": [*ours, *ranks, "--nodes", str(case.ranks)],
    }
    if options.ucx:
        result["unisono, ucx"] = ["env", "UNISONO_TRANSPORT=ucx", *result["unisono, tcp"]]
    for who, bare in ((OPEN_MPI, options.openmpi), (MPICH, options.mpich)):
        if bare:
            start = mpi_command(who, case, options.unisono)
            result[f"mpi, {who}"] = [*start, *ours[1:], "--backend", "mpi"]
            result[f"{who} alone"] = [*mpi_command(who, case, bare), *peers]
    if options.torch_python:
        gloo = [options.torch_python, str(SOURCE / "torch_bench.py"), *peers]
        result["Gloo, as torch starts it"] = [options.unisono, "run", *ranks, *gloo]
    return result


def measure(options):
    """For each row: of each round, the result of each size."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        json_path = Path(folder) / "results.jsonl"
        programs = list(commands(options, str(json_path)).items())
        for number in range(options.rounds):
            first = number % len(programs)  # Nobody is always the first.
            for name, command in programs[first:] + programs[:first]:
                results.setdefault(name, []).append(run(command, json_path))
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr)
    return {name: results[name] for name, _ in programs}


def cell(values):
    """The median, with the lowest and the highest."""
    return f"{statistics.median(values):.3g} ({min(values):.3g} to {max(values):.3g})"


def row(name, rounds):
    small = [results[0]["median_us"] for results in rounds]
    large = [SIZES[1] / BYTES_PER_GB / (results[1]["median_us"] / US_PER_S) for results in rounds]
    return [name, cell(small), cell(large)]


def main():
    options = parse_arguments()
    if not has_gloo(options.torch_python):
        options.torch_python = None
    load_before = os.getloadavg()[0]
    results = measure(options)
    print(describe_machine(load_before))
    print(
        f"all_reduce of f32, {options.ranks} ranks, {options.rounds} rounds (lowest to highest)\n"
    )
    columns = ["by", f"{SIZES[0]} bytes, us", f"{SIZES[1] // MIB} MiB, GB/s"]
    print_table(columns, [row(name, rounds) for name, rounds in results.items()])


if __name__ == "__main__":
    main()
