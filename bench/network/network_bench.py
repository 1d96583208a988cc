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
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import describe_machine, print_table

LINKS = {"1gbit": "125kb", "10gbit": "1mb"}  # A tbf's burst has to suit its rate.
VECTOR_BYTES = 64 << 20
ADDRESSES = ["10.213.78.1", "10.213.78.2"]
PORT = 29500
IPERF_SECONDS = 2
TIMEOUT_S = 120
NAMED = ["auto", "halving_doubling", "chunked_ring", "ring", "parameter_server"]
NAMED_BYTES = 16 << 20
RANKS = [2, 4, 8]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--unisono", required=True, help="unisono, as built")
    parser.add_argument("--round-trip", required=True, help="round_trip, as built")
    parser.add_argument("--rounds", type=int, default=5)
    return parser.parse_args()


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"network_bench: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


class Cable:
    """Two namespaces, and a virtual cable between them."""

    def __init__(self):
        self.names = [f"unisono-bench-{os.getpid()}{end}" for end in "ab"]
        self.devices = [f"u{os.getpid()}{end}" for end in "ab"]

    def lay(self):
        for name in self.names:
            run("ip", "netns", "add", name)
        ends = zip(self.names, self.devices, strict=True)
        (name_a, device_a), (name_b, device_b) = ends
        run(
            *("ip", "link", "add", device_a, "netns", name_a, "type", "veth"),
            *("peer", "name", device_b, "netns", name_b),
        )
        for name, device, address in zip(self.names, self.devices, ADDRESSES, strict=True):
            run("ip", "-n", name, "address", "add", f"{address}/24", "dev", device)
            run("ip", "-n", name, "link", "set", device, "up")
            run("ip", "-n", name, "link", "set", "lo", "up")

    def shape(self, rate):
        for node, device in enumerate(self.devices):
            tbf = ["tbf", "rate", rate, "burst", LINKS[rate], "latency", "50ms"]
            run(*self.inside(node), "tc", "qdisc", "replace", "dev", device, "root", *tbf)

    def inside(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def cut(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def cable():
    made = Cable()
    try:
        made.lay()
        yield made
    finally:
        made.cut()


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
        job = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": ADDRESSES[0],
            "MASTER_PORT": str(PORT),
            "UNISONO_SECRET": os.urandom(16).hex(),
        }
        command = [
            *(options.unisono, "bench", "all_reduce", "--sizes", str(VECTOR_BYTES)),
            *("--seconds", "2", "--json", str(result)),
        ]
        ranks = [
            subprocess.Popen(
                [*link.inside(rank), *command],
                env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": "0"},
                stdout=subprocess.DEVNULL,
            )
            for rank in range(2)
        ]
        try:
            if any([rank.wait(TIMEOUT_S) != 0 for rank in ranks]):
                sys.exit("network_bench: a rank of `unisono bench` failed")
        finally:
            for rank in ranks:
                rank.kill()
        return 8 * VECTOR_BYTES / json.loads(result.read_text())["median_us"] / 1e3


def ratio_cell(pairs):
    ratios = [ours / theirs for ours, theirs in pairs]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def median_cell(values):
    return f"{statistics.median(values):.2f}"


def measure_links(options):
    missing = [name for name in ("ip", "tc", "iperf3") if not shutil.which(name)]
    if os.geteuid() != 0 or missing:
        print(f"no shaped links: they take root, ip, tc and iperf3; missing: {missing or 'root'}")
        return
    rows = []
    with cable() as link:
        for rate in LINKS:
            link.shape(rate)
            pairs = [
                (all_reduce_gbps(options, link), iperf_gbps(link)) for _ in range(options.rounds)
            ]
            ours, theirs = zip(*pairs, strict=True)
            rows.append([rate, median_cell(ours), median_cell(theirs), ratio_cell(pairs)])
    print("\n### all_reduce of 64 MiB, 2 nodes, Gbit/s in each direction\n")
    print_table(["link", "Unisono", "iperf3 --bidir", "ratio"], rows)


def all_reduce_us(options, ranks, n_bytes, algorithm):
    """Every rank is a node of its own."""
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "result.jsonl"
        run(
            *(options.unisono, "bench", "all_reduce", "-n", str(ranks), "--nodes", str(ranks)),
            *("--sizes", str(n_bytes), "--algorithm", algorithm),
            *("--seconds", "0.3", "--json", str(result)),
        )
        return json.loads(result.read_text())["median_us"]


def measure_algorithms(options):
    rows = []
    for ranks in RANKS:
        rounds = [
            [all_reduce_us(options, ranks, NAMED_BYTES, name) for name in NAMED]
            for _ in range(options.rounds)
        ]
        medians = [statistics.median(times) / 1e3 for times in zip(*rounds, strict=True)]
        rows.append([str(ranks), *(f"{median:.1f}" for median in medians)])
    print("\n### all_reduce of 16 MiB by algorithm, every rank a node, over loopback, ms\n")
    print_table(["ranks", *NAMED], rows)


def measure_loopback(options):
    def bare(*how):
        return json.loads(run(options.round_trip, *how))["median_us"]

    rounds = [
        (all_reduce_us(options, 2, 8, "auto"), bare(), bare("spin")) for _ in range(options.rounds)
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
