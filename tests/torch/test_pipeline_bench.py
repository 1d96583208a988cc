#!/usr/bin/env python3
"""What pipeline_bench prints: test_pipeline_bench.py LAUNCHER PROGRAM."""

import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "pipeline"))

import pipeline_bench

SMALL = ["--width", 16, "--layers", 4, "--batch", 16, "--chunks", 4, "--steps", 2]
FIELDS = {
    "schedule",
    "chunks",
    "step_ms_median",
    "first_step_ms",
    "bubble",
    "peak_activation_mib",
}


def run(*arguments):
    command = [LAUNCHER, "run", "-n", "2", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100)


class PipelineBench(unittest.TestCase):
    def measure(self, schedule, stages):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "result.json"
            done = run("--schedule", schedule, "--stages", stages, "--json", file, *SMALL)
            self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
            return json.loads(file.read_text())

    def test_each_schedule_is_measured(self):
        self.assertEqual(len(pipeline_bench.OURS), 8)
        for schedule, stages_per_rank in pipeline_bench.OURS.items():
            with self.subTest(schedule):
                result = self.measure(schedule, 2 * stages_per_rank)
                self.assertEqual(set(result), FIELDS)
                self.assertEqual((result["schedule"], result["chunks"]), (schedule, 4))
                self.assertGreater(result["step_ms_median"], 0)
                self.assertGreater(result["first_step_ms"], 0)
                self.assertLess(result["bubble"], 1)
                self.assertGreaterEqual(result["bubble"], 0)
                # At least the inputs of half of the layers for a chunk of 4 rows.
                self.assertGreater(result["peak_activation_mib"], 2 * 4 * 16 * 4 / 2**20)

    def test_pytorchs_schedules_have_its_names(self):
        """What torch_pipeline.py, which needs torch to be imported, has a class for."""
        text = Path(pipeline_bench.SOURCE / "torch_pipeline.py").read_text()
        for schedule in pipeline_bench.THEIRS:
            self.assertIn(f'"{schedule}": (pipelining.Schedule', text)
        self.assertEqual(text.count("(pipelining.Schedule"), len(pipeline_bench.THEIRS))

    def test_wrong_options(self):
        done = run("--schedule", "v_half", "--stages", 2)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--schedule v_half on 2 ranks has 4 --stages, not 2", done.stderr)
        done = run("--width", 0)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--width", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(2)
    LAUNCHER = sys.argv.pop(1)
    unittest.main()
