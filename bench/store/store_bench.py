"""Operations a second of the store, beside those of PyTorch's C++ TCPStore (libuv), and how long
it takes from a set until all who watch a key, or wait for it, know of it. PyTorch has no watch.

Each round runs both libraries one after the other, server and clients in two processes of one
machine. python store_bench.py --program STORE_LOAD [--rounds 5] [--seconds 1]
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchlib import describe_machine, print_table

LIBRARIES = ("unisono", "torch")
CASES = [
    ("get", 1),
    ("add", 1),
    ("set_get", 1),
    ("multi_get", 1),
    ("get", 64),
    ("add", 64),
]
NEWS = [("watch", 1), ("watch", 64), ("wait", 1), ("wait", 64)]
WITHOUT_PEER = ("watch",)


class Server:
    def __init__(self, program, library):
        command = [program, "serve", library]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = self.process.stdout.readline().strip()

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(timeout=30)


def drive(program, verb, library, port, operation, n_clients, seconds):
    command = [program, verb, library, port, operation, str(n_clients), str(seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def print_rates(rates):
    rows = []
    for operation, n_clients in CASES:
        ours = statistics.median(n for (n,) in rates[operation, n_clients, "unisono"])
        theirs = statistics.median(n for (n,) in rates[operation, n_clients, "torch"])
        row = [operation, n_clients, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}"]
        rows.append([str(cell) for cell in row])
    print_table(["operation", "clients", "Unisono", "PyTorch", "ratio"], rows)


def print_latencies(times):
    rows = []
    for operation, n_clients in NEWS:
        row = [operation, str(n_clients)]
        for library in LIBRARIES:
            found = times.get((operation, n_clients, library))
            if found is None:
                row += ["-", "-"]
            else:
                row += [f"{statistics.median(column):.0f}" for column in zip(*found, strict=True)]
        rows.append(row)
    columns = [f"{name} {what}" for name in ("Unisono", "PyTorch") for what in ("median", "p99")]
    print_table(["known by", "clients", *columns], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    machine = describe_machine(os.getloadavg()[0])
    servers = {name: Server(options.program, name) for name in LIBRARIES}
    rates, times = {}, {}
    for _ in range(options.rounds):
        for verb, cases, found in [("drive", CASES, rates), ("tell", NEWS, times)]:
            for operation, n_clients in cases:
                for library in LIBRARIES:
                    if library == "torch" and operation in WITHOUT_PEER:
                        continue
                    port = servers[library].port
                    case = (library, port, operation, n_clients, options.seconds)
                    result = drive(options.program, verb, *case)
                    found.setdefault((operation, n_clients, library), []).append(result)
    for server in servers.values():
        server.close()
    print(f"\nStore: operations a second, medians of {options.rounds} rounds\n{machine}\n")
    print_rates(rates)
    print("\nFrom a set until all know of it, us: medians of the rounds' medians and p99\n")
    print_latencies(times)


if __name__ == "__main__":
    main()
