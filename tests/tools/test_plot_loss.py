"""Expects plot_loss to draw what a training's lines say, and to name what is wrong with them."""

import json
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import plot_loss

SVG = "{http://www.w3.org/2000/svg}"


def line(step, rank=0, **values):
    return json.dumps({"time": 1.5, "rank": rank, "step": step, "values": values}) + "\n"


class Parse(unittest.TestCase):
    def test_takes_steps_by_rank_in_order(self):
        text = line(2, loss=0.5) + line(1, rank=1, loss=3) + line(1, loss=1)
        found = plot_loss.parse(text, "file", "loss")
        self.assertEqual(found, {0: [(1, 1.0), (2, 0.5)], 1: [(1, 3.0)]})

    def test_takes_the_last_of_what_is_written_twice(self):
        text = line(1, loss=1) + line(2, loss=7) + line(2, loss=0.5, accuracy=0.9)
        self.assertEqual(plot_loss.parse(text, "file", "loss")[0], [(1, 1.0), (2, 0.5)])

    def test_leaves_out_what_has_no_finite_value(self):
        text = line(1, loss=1) + line(2) + line(3, loss="NaN") + line(4, loss="-Infinity")
        self.assertEqual(plot_loss.parse(text, "file", "loss"), {0: [(1, 1.0)]})

    def test_forgives_the_unfinished_line_of_a_killed_training_only(self):
        text = line(1, loss=1)
        unfinished = line(2, loss=2)[:-1]
        self.assertEqual(plot_loss.parse(text + unfinished, "file", "loss"), {0: [(1, 1.0)]})
        for bad in ("{}\n", "[1]\n", "no json\n", '{"rank": 0, "step": "x", "values": {}}\n'):
            with self.assertRaisesRegex(plot_loss.PlotError, r"^file:2: no line of "):
                plot_loss.parse(text + bad + text, "file", "loss")

    def test_ends_lines_at_line_feeds_alone(self):
        text = '{"rank": 0, "title": "a\u2028b", "step": 1, "values": {"loss": 1}}\n'
        self.assertEqual(plot_loss.parse(text, "file", "loss"), {0: [(1, 1.0)]})

    def test_names_a_value_that_no_line_has(self):
        with self.assertRaisesRegex(plot_loss.PlotError, 'file: .*"accuracy"'):
            plot_loss.parse(line(1, loss=1), "file", "accuracy")


class Draw(unittest.TestCase):
    def test_summarizes_neighbouring_steps(self):
        steps = [(step, float(step)) for step in range(1, 6)]
        points = plot_loss.summarize(steps, 3)
        self.assertEqual(
            [(p.step, p.mean, p.least, p.greatest) for p in points],
            [(1.5, 1.5, 1, 2), (3.5, 3.5, 3, 4), (5, 5, 5, 5)],
        )
        self.assertEqual(len(plot_loss.summarize(steps, 100)), 5)

    def test_has_round_ticks(self):
        self.assertEqual(plot_loss.ticks(0, 2.3, 5), [0, 0.5, 1, 1.5, 2])
        self.assertEqual(plot_loss.ticks(-3, 4, 5), [-2, 0, 2, 4])
        self.assertEqual(plot_loss.ticks(0, 4690, 8)[-1], 4000)

    def curve(self, values):
        """Where a curve of these values lies: its points' coordinates."""
        steps = list(enumerate(values, 1))
        image = plot_loss.draw([("one", plot_loss.summarize(steps, 10))], "A & B", "loss")
        root = ElementTree.fromstring(image)
        self.assertIn("A & B", [text.text for text in root.iter(f"{SVG}text")])
        (line_element,) = root.iter(f"{SVG}polyline")
        return [tuple(map(float, pair.split(","))) for pair in line_element.get("points").split()]

    def test_draws_smaller_values_lower_and_later_steps_further_right(self):
        points = self.curve([4.0, 2.0, 1.0])
        self.assertEqual(sorted(points), points)
        heights = [plot_loss.HEIGHT - plot_loss.BOTTOM - y for _, y in points]
        for height, expected in zip(heights, (1, 0.5, 0.25), strict=True):
            full = plot_loss.HEIGHT - plot_loss.TOP - plot_loss.BOTTOM
            self.assertAlmostEqual(height / full, expected, places=2)
        self.assertEqual(points[-1][0], plot_loss.WIDTH - plot_loss.RIGHT)

    def test_draws_curves_that_are_flat_negative_or_a_point(self):
        for values in ([0.0], [0.0, 0.0], [-1.0, -2.0], [3.0]):
            for x, y in self.curve(values):
                self.assertTrue(plot_loss.LEFT <= x <= plot_loss.WIDTH - plot_loss.RIGHT, values)
                self.assertTrue(plot_loss.TOP <= y <= plot_loss.HEIGHT - plot_loss.BOTTOM, values)


class Program(unittest.TestCase):
    def run_script(self, *words):
        command = [sys.executable, plot_loss.__file__, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)

    def test_draws_a_curve_of_each_file_and_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            one, two = Path(folder, "one.json"), Path(folder, "two.json")
            one.write_text("".join(line(step, loss=1 / step) for step in range(1, 400)))
            two.write_text(line(1, loss=1) + line(1, rank=1, loss=2))
            image = Path(folder, "loss.svg")
            done = self.run_script(f"{one}=alone", two, "--title", "Both", "--output", image)
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
            root = ElementTree.parse(image).getroot()
            self.assertEqual(len(list(root.iter(f"{SVG}polyline"))), 3)
            texts = [text.text for text in root.iter(f"{SVG}text")]
            for name in ("Both", "alone", f"{two} rank 0", f"{two} rank 1"):
                self.assertIn(name, texts)
            self.assertEqual(self.run_script(f"{one}=a").stdout.count("<polyline"), 1)

    def test_says_what_is_wrong(self):
        with tempfile.TemporaryDirectory() as folder:
            steps = Path(folder, "steps.json")
            steps.write_text(line(1, loss=1))
            for words, message in (
                ([folder + "/none.json"], "none.json: No such file or directory"),
                ([folder], f"{folder}: Is a directory"),
                ([steps, "--value", "speed"], f'{steps}: no line has a finite value "speed"'),
                ([steps, "--output", folder + "/no/x.svg"], "/no/x.svg: No such file"),
            ):
                done = self.run_script(*words)
                self.assertEqual(done.returncode, 1)
                self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
                self.assertIn(message, done.stderr)


if __name__ == "__main__":
    unittest.main()
