"""Two network namespaces that stand for nodes, and a slow cable between them."""

import os
import shutil
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

ADDRESSES = ["10.213.78.1", "10.213.78.2"]
BURSTS = {"1gbit": "125kb", "10gbit": "1mb"}  # A tbf's burst has to suit its rate.
TIMEOUT_S = 120


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    if done.returncode != 0:
        sys.exit(f"{Path(sys.argv[0]).stem}: {' '.join(command)}: {done.stdout}{done.stderr}")
    return done.stdout


def missing_for_cable(*programs):
    """What there is not of what it takes, with further programs; None where all is there."""
    missing = [name for name in ("ip", "tc", *programs) if not shutil.which(name)]
    if os.geteuid() != 0:
        missing.insert(0, "root")
    return f"they take root, ip and tc; missing: {', '.join(missing)}" if missing else None


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
            tbf = ["tbf", "rate", rate, "burst", BURSTS[rate], "latency", "50ms"]
            run(*self.inside(node), "tc", "qdisc", "replace", "dev", device, "root", *tbf)

    def inside(self, node):
        return ["ip", "netns", "exec", self.names[node]]

    def cut(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@contextmanager
def lay_cable():
    cable = Cable()
    try:
        cable.lay()
        yield cable
    finally:
        cable.cut()


def run_ranks(cable, command):
    """Runs the command as rank 0 and as rank 1, each on a node of its own."""
    job = {
        "WORLD_SIZE": "2",
        "MASTER_ADDR": ADDRESSES[0],
        "MASTER_PORT": "29500",
        "UNISONO_SECRET": os.urandom(16).hex(),
        "OMP_NUM_THREADS": "1",
    }
    ranks = [
        subprocess.Popen(
            [*cable.inside(rank), *command],
            env={**os.environ, **job, "RANK": str(rank), "LOCAL_RANK": "0"},
            stdout=subprocess.DEVNULL,
        )
        for rank in range(2)
    ]
    try:
        if any([rank.wait(TIMEOUT_S) != 0 for rank in ranks]):
            sys.exit(f"{Path(sys.argv[0]).stem}: a rank of {' '.join(command)} failed")
    finally:
        for rank in ranks:
            rank.kill()
