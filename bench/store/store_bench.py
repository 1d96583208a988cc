"""Operations a second of the store, beside those of PyTorch's C++ TCPStore (libuv).

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


def drive(program, client, port, operation, n_clients, seconds):
    command = [program, "drive", client, port, operation, str(n_clients), str(seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    machine = describe_machine(os.getloadavg()[0])
    servers = {name: Server(options.program, name) for name in LIBRARIES}
    rates = {}
    for _ in range(options.rounds):
        for operation, n_clients in CASES:
            for library in LIBRARIES:
                port = servers[library].port
                rate = drive(options.program, library, port, operation, n_clients, options.seconds)
                rates.setdefault((operation, n_clients, library), []).append(rate)
    for server in servers.values():
        server.close()
    rows = []
    for operation, n_clients in CASES:
        ours = statistics.median(rates[operation, n_clients, "unisono"])
        theirs = statistics.median(rates[operation, n_clients, "torch"])
        row = [operation, n_clients, f"{ours:.0f}", f"{theirs:.0f}", f"{ours / theirs:.2f}"]
        rows.append([str(cell) for cell in row])
    print(f"\nStore: operations a second, medians of {options.rounds} rounds\n{machine}\n")
    print_table(["operation", "clients", "Unisono", "PyTorch", "ratio"], rows)


if __name__ == "__main__":
    main()
