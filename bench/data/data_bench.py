#!/usr/bin/env python3
"""Compares the DataLoader to PyTorch's, each with 0 to as many workers as there are cores.

Every round starts each program once, in turn, so that all of them see the same machine. The table
holds medians over the rounds, of which the best number of workers counts; ratios are taken within a
round. The Python side is Pillow and torch alone, without torchvision.
"""

import argparse
import gzip
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import check_modules, describe_machine, json_of, output_of, print_table

SOURCE = Path(__file__).resolve().parent
UNISONO, TORCH = "Unisono", "PyTorch"
LINE = re.compile(r"^ +(\d+) +(\d+)$", re.MULTILINE)
TARGETS = {"mnist": 5, "jpeg": 1.5}  # Times PyTorch's speed.
RUN_TIMEOUT_S = 120
WRITE_JPEGS = """
import sys
from pathlib import Path
import numpy as np
from PIL import Image
records = np.frombuffer(sys.stdin.buffer.read(), dtype=np.uint8).reshape(-1, 3073)
for i, record in enumerate(records):
    folder = Path(sys.argv[1]) / f"class{record[0]}"
    folder.mkdir(exist_ok=True)
    pixels = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
    Image.fromarray(pixels).save(folder / f"{i:05}.jpg", quality=90)
"""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", required=True, help="a Python with torch and Pillow")
    parser.add_argument("--data-bench", required=True, help="the program unisono-data-bench")
    parser.add_argument("--mnist", required=True, help="a folder with MNIST or Fashion-MNIST")
    parser.add_argument("--cifar", required=True, help="a gzip file of CIFAR-10's binary version")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each number of workers")
    parser.add_argument("--batch-size", type=int, default=64)
    return parser.parse_args()


def write_jpegs(options, folder):
    records = gzip.decompress(Path(options.cifar).read_bytes())
    command = [options.torch_python, "-c", WRITE_JPEGS, folder]
    subprocess.run(command, input=records, timeout=RUN_TIMEOUT_S, check=True)


def run_unisono(options, how, folder):
    command = [options.data_bench, folder, *how]
    found = LINE.findall(output_of("data_bench", command, RUN_TIMEOUT_S))
    return {int(workers): float(speed) for workers, speed in found}


def run_torch(options, dataset, how, folder):
    command = [options.torch_python, str(SOURCE / "torch_loader.py"), dataset, folder, *how]
    results = json_of("data_bench", command, RUN_TIMEOUT_S)
    return {int(workers): speed for workers, speed in results.items()}


def run_rounds(options, folders):
    """Samples a second by (dataset, who, workers), of each round. A first short round warms up."""
    n_cores = len(os.sched_getaffinity(0))
    rounds = []
    for number in range(options.rounds + 1):
        seconds = options.seconds if number else 0.2
        how = ["--batch-size", str(options.batch_size), "--max-workers", str(n_cores)]
        how += ["--seconds", str(seconds)]
        results = {}
        for dataset, folder in folders.items():
            ours, theirs = (
                run_unisono(options, how, folder),
                run_torch(options, dataset, how, folder),
            )
            results |= {(dataset, UNISONO, n): speed for n, speed in ours.items()}
            results |= {(dataset, TORCH, n): speed for n, speed in theirs.items()}
        if number:
            rounds.append(results)
            print(f"round {number} of {options.rounds} is done", file=sys.stderr)
    return rounds


def best(results, dataset, who):
    return max(speed for key, speed in results.items() if key[:2] == (dataset, who))


def print_speeds(rounds):
    workers = sorted({key[2] for key in rounds[0]})
    rows = []
    for dataset in TARGETS:
        for who in (UNISONO, TORCH):
            speeds = [statistics.median(r[dataset, who, n] for r in rounds) for n in workers]
            rows.append([dataset, who, *(f"{speed:.0f}" for speed in speeds)])
    print_table(["images", "who", *(f"{n} workers" for n in workers)], rows)


def print_targets(rounds):
    rows = []
    for dataset, least in TARGETS.items():
        ratios = [best(r, dataset, UNISONO) / best(r, dataset, TORCH) for r in rounds]
        ratio = statistics.median(ratios)
        verdict = "reached" if ratio >= least else "not reached"
        spread = f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        rows.append([dataset, spread, f"at least {least}", verdict])
    print_table(["images", "best / PyTorch's best", "target", "verdict"], rows)


def main():
    options = parse_arguments()
    check_modules("data_bench", options.torch_python, "torch", "numpy", "PIL")
    for path in (options.mnist, options.cifar):
        if not Path(path).exists():
            print(f"data_bench: not measured: there is no {path}; pass --mnist and --cifar")
            return
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="data-bench-") as folder:
        write_jpegs(options, folder)
        rounds = run_rounds(options, {"mnist": options.mnist, "jpeg": folder})
    print(describe_machine(load_before))
    print(f"Images a second, batches of {options.batch_size}, {options.rounds} rounds")
    for show in (print_speeds, print_targets):
        print()
        show(rounds)


if __name__ == "__main__":
    main()
