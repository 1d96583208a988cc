"""`unisono plan pipeline`, as people start it: python test_plan.py PATH_OF_UNISONO"""

import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

PROGRAM = sys.argv.pop(1)
SVG = "{http://www.w3.org/2000/svg}"


def plan(*words):
    return subprocess.run(
        [PROGRAM, "plan", "pipeline", *map(str, words)], capture_output=True, text=True, timeout=60
    )


class Pipeline(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def check(self, *words):
        done = plan(*words)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout

    def expect_error(self, what, *words):
        done = plan(*words)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stdout, "")
        self.assertIn(what, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)

    def test_each_schedule_is_drawn(self):
        names = re.findall(r"^(\w+) +\d+ +[\d.]+", self.check("--schedule", "all"), re.MULTILINE)
        self.assertGreater(len(names), 7)
        for name in names:
            with self.subTest(name):
                text = self.check("--schedule", name, "--ranks", 3, "--chunks", 5)
                self.assertEqual(len(re.findall(r"^rank \d \|.*\|$", text, re.MULTILINE)), 3)
                self.assertRegex(text, rf"(?m)^{name}: 3 ranks, \d stages, 5 chunks$")

    def test_the_picture_has_every_action(self):
        path = self.folder / "step.svg"
        self.check("--schedule", "zb_h1", "--ranks", 3, "--chunks", 4, "--svg", path)
        root = xml.etree.ElementTree.parse(path).getroot()
        titles = [title.text for title in root.iter(f"{SVG}title")]
        self.assertEqual(len(set(titles)), 3 * 4 * 3)
        self.assertIn("weight gradients of chunk 3 in stage 2: 13 to 14", titles)

    def test_a_schedule_is_written_and_read(self):
        path = self.folder / "schedule.csv"
        text = self.check("--schedule", "v_half", "--csv", path)
        again = self.check("--table", path)
        self.assertEqual(again.replace(str(path), "v_half").splitlines()[:4], text.splitlines()[:4])

    def test_ranks_that_take_what_has_arrived_are_faster_here(self):
        def step(*words):
            text = self.check("--schedule", "v_half", "--transfer-ms", 0.5, *words)
            return float(re.search(r"^step ([\d.]+) ms", text, re.MULTILINE).group(1))

        self.assertLess(step("--by-arrival"), step())

    def test_schedules_have_pytorchs_names_too(self):
        for torchs, ours in (
            ("GPipe", "fill_drain"),
            ("1F1B", "1f1b"),
            ("Interleaved1F1B", "interleaved_1f1b"),
            ("ZBVZeroBubble", "v_zb"),
            ("DualPipeV", "dual_pipe_v"),
        ):
            with self.subTest(torchs):
                plans = [self.check("--schedule", name) for name in (torchs, ours)]
                self.assertEqual(plans[0], plans[1])

    def test_wrong_words_are_one_error(self):
        self.expect_error('there is no schedule "gpip"; there are fill', "--schedule", "gpip")
        self.expect_error("the nearest one is zb_h1", "--schedule", "InterleavedZeroBubble")
        self.expect_error("--ranks", "--ranks", 0)
        self.expect_error("--weight-ms 3 is a part of --backward-ms", "--weight-ms", 3)
        self.expect_error("--balance fair: there are time, memory and count", "--balance", "fair")
        self.expect_error("of one schedule", "--schedule", "all", "--svg", self.folder / "x.svg")
        self.expect_error("none.csv", "--table", self.folder / "none.csv")
        self.expect_error("none.csv", "--layer-times", self.folder / "none.csv")
        layers = self.folder / "layers.csv"
        layers.write_text("forward_ms,backward_ms\n1,2\n1,2\n")
        self.expect_error("2 layers can't be cut into 4 stages", "--layer-times", layers)
        self.expect_error("--forward-ms", "--layer-times", layers, "--forward-ms", 2)
        self.expect_error("no/folder", "--svg", self.folder / "no/folder/x.svg")


if __name__ == "__main__":
    unittest.main()
