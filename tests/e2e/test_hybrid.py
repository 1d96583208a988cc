"""Tests imdb_hybrid of examples/10_imdb_transformer on generated reviews.

python test_hybrid.py UNISONO IMDB_HYBRID [TEST...]
"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

UNISONO, HYBRID = sys.argv.pop(1), sys.argv.pop(1)
TIMEOUT_S = 100
# Large enough for the model to learn.
MODEL = ["--generated", "--limit", 600, "--max-length", 24, "--d_model", 32, "--d_hid", 32]
MODEL += ["--batch-size", 16, "--chunks", 2]
ACCURACY = re.compile(r"test accuracy (\S+)%")


class Hybrid(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_hybrid(self, n_ranks, *words):
        command = [UNISONO, "run", "-n", n_ranks, HYBRID, *MODEL, *words]
        return subprocess.run(
            list(map(str, command)), capture_output=True, text=True, timeout=TIMEOUT_S
        )

    def train(self, n_ranks, *words):
        done = self.run_hybrid(n_ranks, *words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_a_model_of_three_dimensions_is_loaded_by_any_mesh(self):
        saved = ["--model_path", self.folder / "model"]
        trained = self.train(8, "--epochs", 8, "--parts", 2, "--tensor", 2, *saved)
        self.assertIn("2 x 2 x 2 ranks", trained)
        reached = float(ACCURACY.findall(trained)[-1])
        self.assertGreater(reached, 55)  # An untrained model has 50.
        # Steps of this size do not change any answer.
        loads = [*saved, "--load_model", "--epochs", 1, "--lr", 1e-12]
        for n_ranks, parts, tensor in ((2, 1, 1), (2, 2, 1), (2, 1, 2)):
            words = ["--parts", parts, "--tensor", tensor]
            loaded = self.train(n_ranks, *loads, *words)
            self.assertAlmostEqual(float(ACCURACY.findall(loaded)[-1]), reached, delta=0.2)

    def test_a_layer_that_the_ranks_cannot_divide_is_an_error(self):
        done = self.run_hybrid(3, "--parts", 1, "--tensor", 3)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("imdb_hybrid: ", done.stderr)
        self.assertRegex(done.stderr, "3 ranks|by 3|multiple of 3")


if __name__ == "__main__":
    unittest.main()
