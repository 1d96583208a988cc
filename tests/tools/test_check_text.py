"""Expects check_text to name one violation of each rule, and to accept what the rules allow."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import check_text


class CheckTextTest(unittest.TestCase):
    def problems(self, text):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "file.txt"
            path.write_text(text)
            return check_text.problems_of(path)

    def test_names_each_violation_with_its_line(self):
        # The ~ prevents these lines from being violations themselves.
        for bad in (
            "see /wo~rk/main/README",
            "in /ho~me/ann/x",
            "// TO~DO: later",
            "# FIX~ME",
            "fixed in issue #~3",
            "in shar~ed/design.md",
            "in ../shar~ed/spec",
        ):
            bad = bad.replace("~", "")
            problems = self.problems(f"fine\n{bad}\n")
            self.assertEqual(len(problems), 1, bad)
            self.assertIn("file.txt:2: ", problems[0])

    def test_accepts_what_the_rules_allow(self):
        for good in (
            "// TODO(perf): one copy less",
            "../shared/data",
            "https://example.org/home/",
            "the network/works",
            "shared memory",
            "/" + "work/main check_text: allow",
        ):
            self.assertEqual(self.problems(good), [], good)

    def test_names_a_file_that_is_too_long(self):
        self.assertEqual(self.problems("x\n" * 600), [])
        self.assertIn("601 lines", self.problems("x\n" * 601)[0])


if __name__ == "__main__":
    unittest.main()
