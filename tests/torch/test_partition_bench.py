#!/usr/bin/env python3
"""What partition_bench prints: test_partition_bench.py LAUNCHER PROGRAM."""

import json
import subprocess
import sys
import unittest

# A step that takes long compared with the transfer of its results.
SIZE = ["--blocks", 4, "--width", 192, "--batch", 128]


def run(world_size, *arguments):
    command = [LAUNCHER, "run", "-n", str(world_size), PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


def measure(world_size, *arguments):
    done = run(world_size, *arguments)
    assert done.returncode == 0, done.stderr
    return {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}


class PartitionBench(unittest.TestCase):
    def test_parts_come_to_what_the_whole_comes_to(self):
        for world_size in (1, 2, 4):
            results = measure(world_size, "--steps", 1, *SIZE)
            self.assertEqual(set(results), {"whole", "serial", "parallel"})
            self.assertEqual(results["whole"]["ranks"], world_size)
            # The operations and numbers are the same.
            self.assertEqual(results["whole"]["difference"], 0)
            self.assertEqual(results["serial"]["difference"], 0)
            # The order of the sums differs.
            self.assertLess(results["parallel"]["difference"], 1e-4)
            if world_size > 1:
                self.assertGreater(results["parallel"]["difference"], 0)

    def test_parts_one_after_the_other_are_no_faster(self):
        # The machine may be slower during one of the two measurements, so one correct run of three
        # is sufficient.
        speed_ups = []
        for _ in range(3):
            speed_ups.append(measure(2, "--steps", 20, *SIZE)["serial"]["speed_up"])
            if speed_ups[-1] <= 1.05:
                return
        self.fail(f"speed-ups {speed_ups}")

    def test_wrong_options(self):
        done = run(1, "--width", 0)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--width", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(2)
    LAUNCHER = sys.argv.pop(1)
    unittest.main()
