#!/usr/bin/env python3
"""The tables of bench/ddp/ddp_bench.py, from one short round of the smallest model and PyTorch's:
test_ddp_table.py SCRIPT LAUNCHER PROGRAM [PACKAGE]. They compare one process, threads, ranks, and
batches that are added up; with PACKAGE, where the Python package lies, ranks in Python, too."""

import subprocess
import sys
import unittest

BATCH_SIZE = 64
# Numbers of processes and batches of a step by the name of a row.
WAYS = {
    "LibTorch, one process": (1, 1),
    "LibTorch, 2 batches added up": (1, 2),
    "Unisono, DataParallel, 2 threads": (1, 2),
    "Unisono": (2, 2),
    "PyTorch, one process": (1, 1),
    "PyTorch, nn.DataParallel, 2 threads": (1, 2),
    "PyTorch, Gloo": (2, 2),
    "PyTorch, Gloo, bucket views": (2, 2),
}
IN_PYTHON = {"PyTorch, Unisono": (2, 2)}
RATIOS = [
    "Unisono / Unisono, DataParallel, 2 threads",
    "PyTorch, Unisono / PyTorch, nn.DataParallel, 2 threads",
    "PyTorch, Gloo / PyTorch, nn.DataParallel, 2 threads",
    "Unisono / LibTorch, 2 batches added up",
]


def tables_in(text):
    """A list of rows for each table of Markdown; a row is a dictionary by column."""
    tables = [[]]
    for line in text.splitlines():
        if line.startswith("|"):
            tables[-1].append([cell.strip() for cell in line.strip("| ").split(" | ")])
        elif tables[-1]:
            tables.append([])
    return [[dict(zip(rows[0], row, strict=True)) for row in rows[2:]] for rows in tables if rows]


class DdpTable(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        command = [sys.executable, SCRIPT, "--program", PROGRAM, "--launcher", LAUNCHER]
        command += ["--torch-python", sys.executable, "--models", "many"]
        command += ["--rounds", "1", "--steps", "2", *PACKAGE]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
        if done.returncode != 0:
            raise AssertionError(done.stdout + done.stderr)
        cls.tables = tables_in(done.stdout)

    def test_one_row_for_each_way(self):
        rows = {row["who"]: row for row in self.tables[0]}
        ways = WAYS | (IN_PYTHON if PACKAGE else {})
        self.assertEqual(set(rows), set(ways))
        gloo_ms = float(rows["PyTorch, Gloo"]["step ms"])
        for name, (n_processes, n_batches) in ways.items():
            row = rows[name]
            self.assertEqual(row["model"], "1,000 x Linear(32, 32)")
            self.assertEqual(row["ranks"], str(n_processes))
            # Both values are rounded.
            step_ms = float(row["step ms"])
            rate = n_batches * BATCH_SIZE / (step_ms / 1e3)
            self.assertAlmostEqual(float(row["samples/s"]), rate, delta=0.01 * rate, msg=name)
            if n_processes == 1:
                for column in ("without sync ms", "exposed communication", "speed / Gloo"):
                    self.assertEqual(row[column], "-")
                continue
            without_ms = float(row["without sync ms"])
            share = 100 * (step_ms - without_ms) / step_ms
            said = float(row["exposed communication"].partition("%")[0])
            self.assertAlmostEqual(said, share, delta=1, msg=name)
            ratio = gloo_ms / step_ms
            self.assertAlmostEqual(float(row["speed / Gloo"]), ratio, delta=0.05 * ratio, msg=name)

    def test_ratios_beside_their_aims(self):
        rates = {row["who"]: float(row["samples/s"]) for row in self.tables[0]}
        rows = {row["samples/s of"]: row for row in self.tables[1]}
        shown = [name for name in RATIOS if PACKAGE or name.split(" / ")[0] not in IN_PYTHON]
        self.assertEqual(list(rows), shown)
        for name, row in rows.items():
            who, other = name.split(" / ")
            ratio = float(row["ratio"].partition(" ")[0])
            self.assertAlmostEqual(ratio, rates[who] / rates[other], delta=0.02 * ratio, msg=name)
            if ratio != float(row["aim"]):  # as it may be only when rounded
                self.assertEqual(row["met"], "yes" if ratio > float(row["aim"]) else "NO", name)

    def test_cost_of_the_wrapper(self):
        (row,) = self.tables[2]
        self.assertEqual(
            row["what the wrapper costs"], "hooks and bookkeeping, us per parameter and step"
        )
        self.assertEqual(row["at most"], "1")
        self.assertEqual(row["met"], "yes" if float(row["measured"]) < 1 else "NO")


if __name__ == "__main__":
    PACKAGE = ["--package", sys.argv.pop(4)] if len(sys.argv) > 4 else []
    PROGRAM = sys.argv.pop(3)
    LAUNCHER = sys.argv.pop(2)
    SCRIPT = sys.argv.pop(1)
    unittest.main()
