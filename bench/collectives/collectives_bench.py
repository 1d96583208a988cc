#!/usr/bin/env python3
"""Compares Unisono's collective operations to those of Open MPI, MPICH and Gloo.

Every round starts each program once, in turn, so that all of them see the same machine; all of them
measure by the rules of src/unisono/cli/bench_report.h. The tables hold medians over the rounds of
each run's median and p99, in microseconds; ratios are taken within a round. `--quick` measures
fewer sizes, for less time.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, has_gloo, print_table

SOURCE = Path(__file__).resolve().parent
UNISONO = "Unisono"
SYMMETRIC = "Unisono, symmetric memory"
OPEN_MPI = "Open MPI"
MPICH = "MPICH"
GLOO = "Gloo"
LIMIT = "limit"
PEERS = [OPEN_MPI, MPICH, GLOO]
RUN_TIMEOUT_S = 300
KIB = 1 << 10
MIB = 1 << 20


@dataclass(frozen=True)
class Case:
    """What is measured in one go by each program, and belongs into one table."""

    title: str
    op: str
    ranks: int
    sizes: tuple

    @property
    def has_room(self):
        """Every rank has a core of its own."""
        return self.ranks <= len(os.sched_getaffinity(0))


def cases(is_quick):
    powers = [1 << i for i in range(3, 27)]
    if is_quick:
        sweep = [8, 64, KIB, 16 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
    else:
        sweep = sorted([*powers, 1000, 3 * MIB + 4])
    # Short runs, so that the programs alternate quickly.
    parts = [
        [size for size in sweep if size <= 16 * KIB],
        [size for size in sweep if 16 * KIB < size <= 4 * MIB],
        [size for size in sweep if size > 4 * MIB],
    ]
    many = [8, 16 * KIB, MIB] if is_quick else [8, KIB, 16 * KIB, 256 * KIB, MIB, 16 * MIB]
    large = (MIB, 4 * MIB)
    return [
        *(Case("all_reduce, 2 ranks", "all_reduce", 2, tuple(part)) for part in parts),
        Case("all_reduce, 4 ranks", "all_reduce", 4, tuple(many)),
        Case("half a ping-pong, 2 ranks", "sendrecv", 2, (4, 8, 4 * MIB, 64 * MIB)),
        Case("barrier, 2 ranks", "barrier", 2, (0,)),
        *(
            Case(f"{op}, 2 ranks", op, 2, large)
            for op in ("broadcast", "all_gather", "reduce_scatter", "all_to_all")
        ),
    ]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--limit", help="limit_bench, as built")
    parser.add_argument("--openmpi", help="mpi_bench, as built by Open MPI")
    parser.add_argument("--mpich", help="mpi_bench, as built by MPICH")
    parser.add_argument("--torch-python", help="a Python with torch, for Gloo")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer sizes, less time for each")
    parser.add_argument("--only", default="", help="only operations whose title contains this")
    parser.add_argument("--json", help="write every line of JSON to this file, with round and who")
    return parser.parse_args()


def mpi_command(who, case, program):
    """How that MPI is started at its best, as measured: with the ranks bound to cores where each
    has one, else yielding to each other where the MPI can."""
    ranks = ["-n", str(case.ranks), program]
    if who == MPICH:
        return ["mpirun.mpich", *(["-bind-to", "core"] if case.has_room else []), *ranks]
    transport = ["--mca", "pml", "ob1", "--mca", "btl", "self,vader"]
    yielding = ["--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"]
    placing = ["--bind-to", "core"] if case.has_room else yielding
    return ["mpirun.openmpi", "--allow-run-as-root", *placing, *transport, *ranks]


def commands(options, case, seconds, json_path):
    """The command of each run, by its name in the tables."""
    sizes = ",".join(map(str, case.sizes))
    ranks = ["-n", str(case.ranks)]
    what = [case.op, sizes, str(seconds)]
    unisono = [
        *(options.unisono, "bench", case.op, *ranks, "--sizes", sizes),
        *("--seconds", str(seconds), "--json", json_path),
    ]
    result = {UNISONO: unisono}
    if case.op != "barrier":
        result[SYMMETRIC] = [*unisono, "--memory", "symmetric"]
    if options.openmpi:
        result[OPEN_MPI] = [*mpi_command(OPEN_MPI, case, options.openmpi), *what]
    if options.mpich:
        result[MPICH] = [*mpi_command(MPICH, case, options.mpich), *what]
    if options.torch_python:
        gloo = [options.torch_python, str(SOURCE / "torch_bench.py"), *what]
        result[GLOO] = [options.unisono, "run", *ranks, *gloo]
    if options.limit and case.op == "all_reduce" and case.ranks == 2 and case.has_room:
        result[LIMIT] = [options.limit, *what]
    return result


def run(command, json_path):
    """The results of one program, one for each size."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OMPI_MCA_btl_base_warn_peer_error": "0"}
    json_path.write_text("")
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(
            f"collectives_bench: {' '.join(command)} ended with status {done.returncode}:\n"
            f"{done.stdout}{done.stderr}"
        )
    lines = json_path.read_text() or done.stdout
    return [json.loads(line) for line in lines.splitlines()]


def run_rounds(options, all_cases, seconds):
    """For each round: the result of (case, who, place in the case's sizes)."""
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        json_path = Path(folder) / "results.jsonl"
        for number in range(options.rounds):
            results = {}
            for case in all_cases:
                programs = list(commands(options, case, seconds, str(json_path)).items())
                first = number % len(programs)  # Nobody is always the first.
                for who, command in programs[first:] + programs[:first]:
                    for place, result in enumerate(run(command, json_path)):
                        results[case, who, place] = result
            rounds.append(results)
            print(f"round {number + 1} of {options.rounds} is done", file=sys.stderr)
    return rounds


def write_lines(path, rounds):
    with open(path, "w", encoding="utf-8") as file:
        for number, results in enumerate(rounds):
            for (_, who, _), result in results.items():
                print(json.dumps({"round": number, "who": who, **result}), file=file)


def microseconds(value):
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def median_over(rounds, key, field):
    return statistics.median(results[key][field] for results in rounds)


def row(rounds, case, place, names):
    """The table's cells for one size: a time for each program, and the ratio to the best peer."""
    cells = [str(rounds[0][case, UNISONO, place]["bytes"])]
    for who in names:
        key = (case, who, place)
        median, p99 = (median_over(rounds, key, field) for field in ("median_us", "p99_us"))
        cells.append(f"{microseconds(median)} ({microseconds(p99)})")
    peers = [who for who in names if who in PEERS]
    if peers:
        best = min(peers, key=lambda who: median_over(rounds, (case, who, place), "median_us"))
        ratios = [
            r[case, UNISONO, place]["median_us"] / r[case, best, place]["median_us"] for r in rounds
        ]
        ratio = statistics.median(ratios)
        cells.append(f"{ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), {best}")
    return cells


def print_tables(rounds, all_cases):
    for title in dict.fromkeys(case.title for case in all_cases):
        same = [case for case in all_cases if case.title == title]
        names = [who for case, who, place in rounds[0] if case == same[0] and place == 0]
        order = [UNISONO, SYMMETRIC, *PEERS, LIMIT]
        names.sort(key=order.index)
        columns = ["bytes", *names]
        if any(who in PEERS for who in names):
            columns.append("Unisono / best peer")
        print(f"\n### {title}\n")
        rows = [
            row(rounds, case, place, names) for case in same for place in range(len(case.sizes))
        ]
        print_table(columns, rows)


def main():
    options = parse_arguments()
    if not has_gloo(options.torch_python):
        options.torch_python = None
    peers = {OPEN_MPI: options.openmpi, MPICH: options.mpich, GLOO: options.torch_python}
    for who, program in peers.items():
        if not program:
            print(f"no {who} here: nothing to compare with it (tools/install_deps.sh --bench)")
    load_before = os.getloadavg()[0]
    all_cases = [case for case in cases(options.quick) if options.only in case.title]
    seconds = 0.1 if options.quick else 0.3
    rounds = run_rounds(options, all_cases, seconds)
    if options.json:
        write_lines(options.json, rounds)
    print(describe_machine(load_before))
    print(
        f"{options.rounds} rounds, f32, private memory; median us (p99) of the slowest rank; "
        "ratio (lowest to highest round)"
    )
    print_tables(rounds, all_cases)


if __name__ == "__main__":
    main()
