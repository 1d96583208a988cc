#!/usr/bin/env python3
"""Measures all_reduce between nodes against what the network gives.

Two network namespaces stand for the nodes, joined by a virtual cable that `tc tbf` slows down to 1
and 10 Gbit/s: an all_reduce of 64 MiB between two ranks, which sends 64 MiB in each direction,
beside `iperf3 --bidir`, in turns. Then 8 bytes over loopback beside a bare socket's round trip, and
the algorithms that are there by name. Namespaces take root; without it that part says so and is
left out.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, print_table
from shaped_link import ADDRESSES, lay_cable, missing_for_cable, run, run_ranks

LINKS = ["1gbit", "10gbit"]
VECTOR_BYTES = 64 << 20
IPERF_SECONDS = 2
TIMEOUT_S = 120
NAMED = ["auto", "halving_doubling", "chunked_ring", "ring", "parameter_server"]
MIB = 1 << 20
NAMED_BYTES = 16 * MIB
RANKS = range(2, 9)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--round-trip", required=True, help="round_trip, as built")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def iperf_gbps(link):
    """What each direction gives, on average."""
    server = subprocess.Popen(
        [*link.inside(1), "iperf3", "--server", "--one-off"], stdout=subprocess.DEVNULL
    )
    try:
        time.sleep(0.3)  # iperf3 says nothing once it listens, if its output is no terminal.
        client = ["iperf3", "--client", ADDRESSES[1], "--bidir", "--json"]
        out = json.loads(run(*link.inside(0), *client, "--time", str(IPERF_SECONDS)))
        server.wait(TIMEOUT_S)
    finally:
        server.kill()
    sums = [out["end"][name] for name in ("sum_received", "sum_received_bidir_reverse")]
    return statistics.mean(one["bits_per_second"] for one in sums) / 1e9


def all_reduce_gbps(options, link):
    """What the all_reduce sends in each direction, by its median time."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.jsonl"
        command = [
            *(options.unisono, "bench", "all_reduce", "--sizes", str(VECTOR_BYTES)),
            *("--seconds", "2", "--json", str(result)),
        ]
        run_ranks(link, command)
        return 8 * VECTOR_BYTES / json.loads(result.read_text())["median_us"] / 1e3


def ratio_cell(pairs):
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def median_cell(values):
    return f"{statistics.median(values):.2f}"


def measure_links(options):
    if missing := missing_for_cable("iperf3"):
        print(f"no shaped links: {missing}")
        return
    rows = []
    with lay_cable() as link:
        for rate in LINKS:
            link.shape(rate)
            pairs = [
                (all_reduce_gbps(options, link), iperf_gbps(link)) for _ in range(options.rounds)
            ]
            ours, theirs = zip(*pairs, strict=True)
            rows.append([rate, median_cell(ours), median_cell(theirs), ratio_cell(pairs)])
    print("\n### all_reduce of 64 MiB, 2 nodes, Gbit/s in each direction\n")
    print_table(["link", "Unisono", "iperf3 --bidir", "ratio"], rows)


def all_reduce(options, ranks, n_bytes, algorithm):
    """Every rank is a node of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.jsonl"
        run(
            *(options.unisono, "bench", "all_reduce", "-n", str(ranks), "--nodes", str(ranks)),
            *("--sizes", str(n_bytes), "--algorithm", algorithm),
            *("--seconds", "0.3", "--json", str(result)),
        )
        return json.loads(result.read_text())


def measure_algorithms(options):
    rows = []
    for ranks in RANKS:
        rounds = [
            [all_reduce(options, ranks, NAMED_BYTES, name) for name in NAMED]
            for _ in range(options.rounds)
        ]
        cells = []
        for results in zip(*rounds, strict=True):
            median_ms = statistics.median(result["median_us"] for result in results) / 1e3
            cells.append(f"{median_ms:.1f} ({results[0]['busiest_bytes'] / MIB:.0f})")
        rows.append([str(ranks), *cells])
    print("\n### all_reduce of 16 MiB by algorithm, every rank a node, over loopback, ms")
    print("(in and out of the busiest rank, MiB)\n")
    print_table(["ranks", *NAMED], rows)


def measure_loopback(options):
    def bare(*how):
        return json.loads(run(options.round_trip, *how))["median_us"]

    rounds = [
        (all_reduce(options, 2, 8, "auto")["median_us"], bare(), bare("spin"))
        for _ in range(options.rounds)
    ]
    ours_us, asleep_us, spinning_us = zip(*rounds, strict=True)
    print("\n### all_reduce of 8 bytes, 2 nodes over loopback, us\n")
    print_table(
        ["Unisono", "round trip, poll(2)", "round trip, spinning", "Unisono / spinning"],
        [
            [
                *(median_cell(values) for values in (ours_us, asleep_us, spinning_us)),
                ratio_cell(list(zip(ours_us, spinning_us, strict=True))),
            ]
        ],
    )


def main():
    options = parse_arguments()
    load_before = os.getloadavg()[0]
    print(describe_machine(load_before))
    print(f"{options.rounds} rounds; medians, ratio (lowest to highest round)")
    measure_links(options)
    measure_loopback(options)
    measure_algorithms(options)


if __name__ == "__main__":
    main()
