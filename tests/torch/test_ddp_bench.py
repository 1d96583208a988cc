#!/usr/bin/env python3
"""What ddp_bench prints: test_ddp_bench.py LAUNCHER PROGRAM."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock


def run(world_size, *arguments):
    command = [LAUNCHER, "run", "-n", str(world_size), PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


class DdpBench(unittest.TestCase):
    def measure(self, world_size, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.json"
            done = run(world_size, "--steps", 5, "--json", file, *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, "")
            # No warning may appear, in particular none about diverged ranks.
            self.assertNotIn("DistributedDataParallel", done.stderr)
            return json.loads(file.read_text())

    def test_fields(self):
        for model, batch_size in {"many": 64, "transformer": 32}.items():
            result = self.measure(2, "--model", model)
            self.assertEqual((result["model"], result["ranks"]), (model, 2))
            seconds = 2 * batch_size / result["samples_per_s"]
            self.assertAlmostEqual(seconds, result["step_ms_median"] / 1e3, places=5)
            self.assertLess(result["exposed_comm_share"], 1)
            self.assertGreater(result["pss_mib"], 10)

    def test_steps_without_synchronization(self):
        result = self.measure(2, "--model", "cnn", "--batch", 2, "--no-sync")
        self.assertIsNone(result["exposed_comm_share"])
        self.assertIsNone(result["step"])
        self.assertGreater(result["step_ms_median"], 0)

    def test_any_number_of_ranks_comes_to_one_hash(self):
        what = ["--model", "cnn", "--batch", 2, "--steps", 3, "--logical-ranks", 8, "--hash"]
        outputs = {}
        for world_size in (1, 2, 3, 4, 8):
            done = run(world_size, *what)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, "^sha256 [0-9a-f]{64}\n$")
            outputs[world_size] = done.stdout
        self.assertEqual(len(set(outputs.values())), 1, outputs)

    def test_ways_to_train_on_several_batches_come_to_one_hash(self):
        # The benchmark compares equal trainings, because halves and quarters are exact.
        for model, batch_size in {"cnn": 2, "transformer": 2, "many": 4}.items():
            what = ["--model", model, "--batch", batch_size, "--steps", 5, "--hash"]
            hashes = {}
            for n in (1, 2, 4):
                done = run(n, *what)
                self.assertEqual(done.returncode, 0, done.stderr)
                hashes[n] = done.stdout
                self.assertRegex(hashes[n], "^sha256 [0-9a-f]{64}\n$")
                self.assertEqual(self.alone("--data-parallel", n, *what), hashes[n], (model, n))
            self.assertEqual(self.alone(*what), hashes[1], model)
            # Four batches are added in the order of ranks, not in the order of the canonical tree.
            self.assertEqual(self.alone("--accumulate", 2, *what), hashes[2], model)
            self.assertEqual(len(set(hashes.values())), 3, hashes)

    # Excludes mapped files, which are shared with other processes. The malloc threshold prevents
    # malloc from retaining freed memory.
    @mock.patch.dict(os.environ, {"MALLOC_MMAP_THRESHOLD_": str(1 << 20)})
    def test_ranks_take_the_memory_of_as_many_processes(self):
        what = ["--model", "mlp", "--batch", 2]
        gradients_mib = 64
        alone = json.loads(self.alone(*what, "--steps", 5))["pss_without_files_mib"]
        self.assertGreater(alone, 2 * gradients_mib)  # and the parameters
        for n in (1, 2):
            ranks = self.measure(n, *what)["pss_without_files_mib"]
            self.assertLess(ranks, n * (alone + 0.1 * gradients_mib))
            self.assertGreater(ranks, n * 2 * gradients_mib)

    def alone(self, *arguments):
        command = [PROGRAM, "--alone", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, input="")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_one_process_in_threads_or_with_batches_added_up(self):
        for arguments in (["--data-parallel", 2], ["--accumulate", 2], ["--hold"]):
            held = "--hold" in arguments
            said = self.alone("--model", "many", "--steps", 5, *arguments)
            self.assertEqual(said.startswith("trained\n"), held)
            result = json.loads(said.removeprefix("trained\n"))
            batches = 1 if held else 2
            seconds = 64 * batches / result["samples_per_s"]
            self.assertAlmostEqual(seconds, result["step_ms_median"] / 1e3, places=5)
            self.assertEqual((result["ranks"], result["parameters"]), (1, 2000))

    def test_optimizer_that_is_divided(self):
        for zero in ("step", "overlap"):
            result = self.measure(2, "--model", "cnn", "--batch", 2, "--zero", zero)
            self.assertGreater(result["step"]["median"], 0)
            self.assertIsNone(result["step_without_sync"])

    def test_beside_plain_steps(self):
        for arguments in ([], ["--logical-ranks", 4, "--batch", 2]):
            result = self.measure(2, "--model", "many", "--beside-plain", *arguments)
            self.assertGreater(result["plain_step"]["median"], 0)
            self.assertIsNone(result["step_without_sync"])

    def test_wrong_options(self):
        for wrong, named in (
            (["--model", "lstm"], "lstm"),
            (["--alone", "--data-parallel", 2, "--accumulate", 2], "--data-parallel"),
            (["--data-parallel", 2], "--alone"),
            (["--hash", "--json", "result.json"], "--json"),
            (["--alone", "--hash", "--hold"], "--hold"),
        ):
            done = run(1, *wrong)
            self.assertEqual(done.returncode, 2, wrong)
            self.assertIn(named, done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(2)
    LAUNCHER = sys.argv.pop(1)
    unittest.main()
