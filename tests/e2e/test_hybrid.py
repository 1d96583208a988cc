"""What examples/12_imdb_hybrid says and writes, of small models on reviews that it makes up.

python test_hybrid.py UNISONO IMDB_HYBRID [TEST...]
"""

import csv
import itertools
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

UNISONO, HYBRID = sys.argv.pop(1), sys.argv.pop(1)
TIMEOUT_S = 100
LAYERS = 2
MODEL = ["--generated", "--limit", 200, "--max-length", 16, "--nlayers", LAYERS]
MODEL += ["--d_model", 16, "--d_hid", 16, "--n_head", 2]
SVG = "{http://www.w3.org/2000/svg}"
# Large enough to learn something.
LEARNER = ["--generated", "--limit", 600, "--max-length", 24, "--d_model", 32, "--d_hid", 32]
ACCURACY = re.compile(r"test accuracy (\S+)%")


def run(*words):
    return subprocess.run(
        [UNISONO, *map(str, words)], capture_output=True, text=True, timeout=TIMEOUT_S
    )


class Hybrid(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check(self, *words):
        done = run(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def train(self, n_ranks, *words, model=MODEL):
        return self.check("run", "-n", n_ranks, HYBRID, *model, *words)

    def figures(self, text):
        """Planned, measured and off by, of the table of a plan and what came of it."""
        rows = re.findall(
            r"^(step ms|bubble %|rank \d MiB) +(\S+) +(\S+) +(\S+) (?:%|points)$",
            text,
            re.MULTILINE,
        )
        return {name: tuple(map(float, numbers)) for name, *numbers in rows}

    def test_layers_are_measured_and_a_step_is_planned_by_them(self):
        path = self.folder / "layers.csv"
        for schedule, stages in (("1f1b", 2), ("v_zb", 4)):
            words = ["--chunks", 4, "--epochs", 1, "--schedule", schedule, "--layer-times", path]
            text = self.train(2, *words)
            with path.open(newline="") as file:
                layers = list(csv.DictReader(file))
            self.assertEqual(len(layers), LAYERS + 2)
            for layer in layers:
                numbers = {key: float(value) for key, value in layer.items() if key != "name"}
                self.assertEqual(
                    list(numbers),
                    ["forward_ms", "backward_ms", "weight_ms", "activation_mib", "gradient_mib"],
                )
                self.assertTrue(all(number >= 0 for number in numbers.values()), layer)
                self.assertGreater(numbers["gradient_mib"], 0)
            self.assertIn("EncoderImpl", layers[0]["name"])

            self.assertIn("a step of 16 tokens, planned by the layers, and the median of 7:", text)
            figures = self.figures(text)
            self.assertEqual(set(figures), {"step ms", "bubble %", "rank 0 MiB", "rank 1 MiB"})
            for name, (planned, measured, off_by) in figures.items():
                self.assertGreater(planned, 0, text)
                if name == "bubble %":
                    self.assertAlmostEqual(measured - planned, off_by, delta=0.11)
                else:
                    self.assertAlmostEqual(100 * (measured / planned - 1), off_by, delta=2)

            # `unisono plan` comes to the same by the file, but for what is rounded there.
            words = ["--ranks", 2, "--chunks", 4, "--schedule", schedule, "--balance", "count"]
            plan = self.check("plan", "pipeline", *words, "--by-arrival", "--layer-times", path)
            self.assertIn(f"{schedule}: 2 ranks, {stages} stages, 4 chunks", plan)
            step, bubble = (
                float(re.search(pattern, plan, re.MULTILINE).group(1))
                for pattern in (r"^step (\S+) ms", r"^bubble (\S+) %")
            )
            self.assertAlmostEqual(step, figures["step ms"][0], delta=0.05 * step)
            self.assertAlmostEqual(bubble, figures["bubble %"][0], delta=5)

    def test_replicas_measure_too(self):
        words = ["--parts", 2, "--chunks", 2, "--epochs", 1]
        text = self.train(4, *words, "--layer-times", self.folder / "layers.csv")
        self.assertEqual(len(self.figures(text)), 4, text)

    def test_the_picture_of_a_step_has_every_action(self):
        path = self.folder / "step.svg"
        self.train(2, "--chunks", 4, "--steps", 1, "--svg", path, "--json", self.folder / "json")
        root = ElementTree.parse(path).getroot()
        spans = {}
        for title in root.iter(f"{SVG}title"):
            what, start, end = re.fullmatch(
                r"(\w+ of chunk \d in stage \d): (\S+) to (\S+)", title.text
            ).groups()
            spans[what] = float(start), float(end)
        expected = {
            f"{kind} of chunk {chunk} in stage {stage}"
            for kind in ("forward", "backward")
            for chunk in range(4)
            for stage in range(2)
        }
        self.assertEqual(set(spans), expected)
        self.assertEqual(min(start for start, _ in spans.values()), 0)
        for chunk in range(4):
            ways = [f"forward of chunk {chunk} in stage {stage}" for stage in (0, 1)]
            ways += [f"backward of chunk {chunk} in stage {stage}" for stage in (1, 0)]
            for before, after in itertools.pairwise(ways):
                self.assertLessEqual(spans[before][0], spans[after][0], (before, after))

    def test_a_model_of_replicas_in_parts_is_loaded_whole(self):
        words = ["--batch-size", 16, "--chunks", 2, "--model_path", self.folder / "model"]
        parts = ["--epochs", 8, "--parts", 2, "--checkpoint", "always"]
        trained = self.train(4, *words, *parts, model=LEARNER)
        self.assertIn("2 x 2 ranks", trained)
        whole = ["--epochs", 1, "--parts", 1, "--load_model"]
        loaded = self.train(2, *words, *whole, model=LEARNER)
        self.assertIn("2 x 1 ranks", loaded)
        reached = ACCURACY.findall(trained)[-1]
        self.assertRegex(loaded, rf"(?m)^loaded \S+/model: test accuracy {reached}%$")
        # It is no model that has learnt nothing.
        self.assertGreater(float(reached), 55)

    def test_wrong_words_are_one_error(self):
        path = self.folder / "layers.csv"
        for words, complaint in (
            (["--checkpoint", "always", "--layer-times", path], "--checkpoint is always"),
            (["--layer-times", self.folder / "no/folder/x", "--epochs", 1], "can't write"),
            (["--load_model"], "--model-path"),
        ):
            done = run("run", "-n", 1, HYBRID, *MODEL, "--parts", 1, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(complaint, done.stderr)


if __name__ == "__main__":
    unittest.main()
