#!/usr/bin/env python3
"""Measures what the search for ranks that called different operations costs.

In each round: the check alone (agreement_bench), then the operations that it is part of, of 8 bytes
from each of 2 ranks on one node. The table holds medians over the rounds.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, output_of, print_table

RANKS = 2
OPERATIONS = {"all_reduce": 8, "all_gather": 8 * RANKS}  # Name: bytes, as `unisono bench` counts.
TIMEOUT_S = 120


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--agreement", required=True, help="agreement_bench, as built")
    parser.add_argument("--rounds", type=int, default=3)
    return parser.parse_args()


def check_ns(options):
    """Nanoseconds of the check by operation."""
    command = [options.agreement, "--benchmark_format=json", f"--benchmark_filter=/{RANKS}$"]
    lines = json.loads(output_of("mismatch_bench", command, TIMEOUT_S))["benchmarks"]
    return {line["name"].split("/")[0]: line["real_time"] for line in lines}


def operation_ns(options, operation, n_bytes):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.jsonl"
        command = [
            *(options.unisono, "bench", operation, "-n", str(RANKS)),
            *("--sizes", str(n_bytes), "--json", str(path)),
        ]
        output_of("mismatch_bench", command, TIMEOUT_S)
        return json.loads(path.read_text())["median_us"] * 1000


def main():
    options = parse_arguments()
    load = os.getloadavg()[0]
    rounds = []
    for _ in range(options.rounds):
        checks = check_ns(options)
        rounds.append(
            {
                operation: (checks[operation], operation_ns(options, operation, n_bytes))
                for operation, n_bytes in OPERATIONS.items()
            }
        )
    rows = []
    for operation in OPERATIONS:
        check, whole = (statistics.median(r[operation][i] for r in rounds) for i in (0, 1))
        rows.append([operation, f"{check:.1f}", f"{whole:.0f}", f"{100 * check / whole:.1f} %"])
    print("\n### The check for mismatches, 2 ranks, 8 bytes from each\n")
    print_table(["operation", "check ns", "operation ns", "share"], rows)
    print(f"\n{describe_machine(load)}")


if __name__ == "__main__":
    main()
