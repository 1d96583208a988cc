#!/usr/bin/env python3
"""A training on shards has the same bits on any number of processes:
compare_worlds.py LAUNCHER PROGRAM."""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

N_SHARDS = 8


class OneTrainingOnManyWorlds(unittest.TestCase):
    def train(self, world_size, n_steps, file):
        done = subprocess.run(
            [LAUNCHER, "run", "-n", str(world_size), PROGRAM, str(N_SHARDS), str(n_steps), file],
            capture_output=True,
            text=True,
            timeout=100,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip()

    def test_each_number_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            hashes = {n: self.train(n, 4, Path(folder) / f"on_{n}") for n in (1, 2, 3, 4, 5, 6, 8)}
        self.assertEqual(len(set(hashes.values())), 1, hashes)

    def test_a_number_of_ranks_that_changes(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "state.safetensors"
            hashes = [self.train(n, 1, file) for n in (2, 3, 1, 4)]
            self.assertEqual(hashes[-1], self.train(1, 4, Path(folder) / "undisturbed"))
        self.assertEqual(len(set(hashes)), 4)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(2)
    LAUNCHER = sys.argv.pop(1)
    unittest.main()
