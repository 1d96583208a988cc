#!/usr/bin/env python3
"""Compares checkpoints of sharded state to torch.save, safetensors and PyTorch's own.

Every round starts each program once, in turn, so that all of them see the same machine. The table
holds medians over the rounds of each run's median; ratios are taken within a round. What is
loaded is in the page cache, and goes into tensors that are there.
"""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import check_modules, describe_machine, has_gloo, json_of, print_table

SOURCE = Path(__file__).resolve().parent
RUN_TIMEOUT_S = 180
# Program, operation, number of ranks and name of the folder. A load reads data that an earlier save
# has written to that folder.
SAVE = ("unisono", "save", 2, "unisono2")
SAVE_3 = ("unisono", "save", 3, "unisono3")
TORCH_SAVE = ("torch", "torch_save", 1, "torch")
SAFETENSORS_SAVE = ("torch", "safetensors_save", 1, "safetensors")
SHARDED_SAFETENSORS_SAVE = ("torch", "safetensors_save", 2, "safetensors2")
DCP_SAVE = ("torch", "dcp_save", 2, "dcp")
LOAD = ("unisono", "load", 2, "unisono2")
LOAD_3 = ("unisono", "load", 3, "unisono3")
RESHARD = ("unisono", "load", 3, "unisono2")
SAFETENSORS_LOAD = ("torch", "safetensors_load", 2, "safetensors2")
SAFETENSORS_MAP = ("torch", "safetensors_map", 2, "safetensors2")
DCP_LOAD = ("torch", "dcp_load", 2, "dcp")
SAVE_ASYNC = ("unisono", "save_async", 2, "unisono2async")
COPY = ("unisono", "copy", 2, "none")
ROWS = {
    SAVE: "save_checkpoint()",
    TORCH_SAVE: "torch.save(), fsync",
    SAFETENSORS_SAVE: "safetensors' save_file(), fsync",
    SHARDED_SAFETENSORS_SAVE: "safetensors' save_file() of a file per rank, fsync",
    DCP_SAVE: "torch.distributed.checkpoint's save()",
    SAVE_3: "save_checkpoint()",
    LOAD: "Reader::read()",
    LOAD_3: "Reader::read()",
    RESHARD: "Reader::read() of what 2 ranks have saved",
    SAFETENSORS_LOAD: "safetensors' load_file() of a file per rank, copy_()",
    SAFETENSORS_MAP: "the same without copy_(), each page looked at",
    DCP_LOAD: "torch.distributed.checkpoint's load()",
    SAVE_ASYNC: "Saver::save_async(), until it returns",
    COPY: "memcpy()",
}
# Description, the two operations, and the bound for the ratio of their times.
TARGETS = [
    ("save, times torch.save's speed", TORCH_SAVE, SAVE, "at least", 1.5),
    ("save, times the speed of torch.distributed.checkpoint", DCP_SAVE, SAVE, "at least", 2),
    ("load, share of safetensors' time with copy_()", LOAD, SAFETENSORS_LOAD, "at most", 1.1),
    ("load, share of the time that looking takes", LOAD, SAFETENSORS_MAP, "at most", 1.1),
    ("load on 3 ranks what 2 saved, share of 2 ranks' time", RESHARD, LOAD, "at most", 1.2),
    ("the same, share of the time where 3 saved", RESHARD, LOAD_3, "at most", 1.2),
    ("save_async, share of a copy's time", SAVE_ASYNC, COPY, "at most", 1.2),
]
MOST_MEMORY = 0.05


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--torch-python", required=True, help="a Python with torch, safetensors")
    parser.add_argument("--program", required=True, help="checkpoint_bench, as built")
    parser.add_argument("--launcher", required=True, help="unisono, as built")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--times", type=int, default=2, help="in each run")
    parser.add_argument("--mib", type=int, default=1024, help="of state; the disk has 7 times that")
    parser.add_argument("--folder", default=tempfile.gettempdir(), help="where the files go")
    return parser.parse_args()


def run(options, what, folder, times):
    program, operation, ranks, name = what
    command = [options.launcher, "run", "-n", str(ranks)]
    command += [options.program] if program == "unisono" else []
    if program == "torch":
        command += [options.torch_python, str(SOURCE / "torch_checkpoint.py")]
    command += [operation, f"{folder}/{name}", "--mib", str(options.mib), "--times", str(times)]
    if program == "torch":
        with tempfile.TemporaryDirectory() as meeting:
            command += ["--rendezvous", f"{meeting}/store"]
            return json_of("checkpoint_bench", command, RUN_TIMEOUT_S)
    return json_of("checkpoint_bench", command, RUN_TIMEOUT_S)


def run_rounds(options):
    """The results of each round. Each run warms up by a time that it doesn't count."""
    rounds = []
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="checkpoint-bench-") as folder:
        for number in range(options.rounds):
            rounds.append({what: run(options, what, folder, options.times) for what in ROWS})
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr)
    return rounds


def seconds(results, what):
    return statistics.median(results[what]["seconds"])


def ratio(rounds, what, reference):
    return statistics.median(seconds(r, what) / seconds(r, reference) for r in rounds)


def print_times(options, rounds):
    rows = []
    for what, name in ROWS.items():
        taken = [seconds(r, what) for r in rounds]
        median = statistics.median(taken)
        spread = f"{median:.3f} ({min(taken):.3f} to {max(taken):.3f})"
        more = statistics.median(r[what]["more_memory"] for r in rounds)
        memory = "-" if what in (COPY, SAVE_ASYNC) else f"{100 * more:.1f}%"
        speed = options.mib / 1024 / median
        rows.append([name, str(what[2]), spread, f"{speed:.2f}", memory])
    print_table(["what", "ranks", "seconds", "GiB/s", "more memory"], rows)


def print_targets(rounds):
    targets = [(*t, ratio(rounds, t[1], t[2])) for t in TARGETS]
    memory = statistics.median(r[SAVE]["more_memory"] for r in rounds)
    targets.append(("save, more memory", None, None, "at most", MOST_MEMORY, memory))
    rows = []
    for name, _, _, bound, limit, value in targets:
        is_reached = value <= limit if bound == "at most" else value >= limit
        verdict = "reached" if is_reached else "not reached"
        rows.append([name, f"{value:.2f}", f"{bound} {limit}", verdict])
    print_table(["what", "measured", "target", "verdict"], rows)


def check_space(options):
    needed = 7 * options.mib << 20
    free = shutil.disk_usage(options.folder).free
    if free < 2 * needed:
        sys.exit(
            f"checkpoint_bench: {options.folder} has {free >> 20} MiB free, and {needed >> 20} "
            "would be written: pass another --folder, or a smaller --mib"
        )


def main():
    options = parse_arguments()
    check_modules("checkpoint_bench", options.torch_python, "torch", "numpy", "safetensors")
    if not has_gloo(options.torch_python):
        sys.exit(f"checkpoint_bench: {options.torch_python} has no torch with Gloo to compare with")
    check_space(options)
    load_before = os.getloadavg()[0]
    rounds = run_rounds(options)
    print(describe_machine(load_before))
    print(f"{options.mib} MiB of state, {options.rounds} rounds of {options.times} times each")
    print()
    print_times(options, rounds)
    print()
    print_targets(rounds)


if __name__ == "__main__":
    main()
