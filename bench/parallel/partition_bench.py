#!/usr/bin/env python3
"""Compares a model on one rank with its parts on several, one after the other or side by side.

Each round starts the program once, which measures all in turns; figures are medians of the rounds'.
"""

import argparse
import json
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, output_of, print_table

TIMEOUT_S = 300
WORDS = {
    "whole": "whole, on one rank",
    "serial": "parts one after the other",
    "parallel": "parts of every layer side by side",
}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="partition_bench, as built")
    parser.add_argument("--launcher", required=True, help="unisono, as built")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def main():
    arguments = parse_arguments()
    load = os.getloadavg()[0]
    command = [arguments.launcher, "run", "-n", str(arguments.ranks), arguments.program]
    rounds = []
    for _ in range(arguments.rounds):
        lines = output_of("partition_bench", command, TIMEOUT_S).splitlines()
        rounds.append({result["name"]: result for result in map(json.loads, lines)})
    rows = []
    for name, words in WORDS.items():
        step_ms = statistics.median(r[name]["step_ms"] for r in rounds)
        speed_up = statistics.median(r[name]["speed_up"] for r in rounds)
        difference = max(r[name]["difference"] for r in rounds)
        rows.append([words, f"{step_ms:.2f}", f"{speed_up:.2f}", f"{difference:.1g}"])
    print(describe_machine(load))
    print(f"{arguments.ranks} ranks, {arguments.rounds} rounds\n")
    print_table(["model", "step ms", "speed-up", "difference"], rows)


if __name__ == "__main__":
    main()
