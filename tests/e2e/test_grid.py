"""Expects the grid of examples/12_imdb_hybrid to measure what can be, once, and to draw it.

The program that it measures is a script here; Slurm's commands are, too.
"""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock as mock
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "12_imdb_hybrid"))

import figure
import starts
import table
from cells import Cell, Limits, why_impossible

EXAMPLE = Path(table.__file__).parent
TIMEOUT_S = 60
# Runs `-n RANKS PROGRAM ...`, or srun's `--ntasks=RANKS PROGRAM ...`, as one process.
LAUNCHER = """#!{python}
import os, sys
words = sys.argv[1:]
while words and not words[0].endswith("program"):
    words.pop(0)
os.execv(words[0], words)
"""
# Throughput: the batch times the chunks. Notes that it ran; fails while a file "broken" is there.
PROGRAM = """#!{python}
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
of = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(folder / "ran", "a") as log:
    log.write(of["--parts"] + "," + of["--batch-size"] + "," + of["--chunks"] + "\\n")
if (folder / "broken").exists() and of["--chunks"] == "2":
    sys.exit("out of luck\\nand more")
speed = int(of["--batch-size"]) * int(of["--chunks"])
result = dict(reviews_per_s=speed, step_ms=1.5, bubble=0.25, peak_activation_mib=3)
pathlib.Path(of["--json"]).write_text(json.dumps(result))
"""
# Never ends by itself; notes how it is asked to, and heeds it unless a file "deaf" is there.
LATE = """#!{python}
import pathlib, signal, sys
folder = pathlib.Path(__file__).parent
def note(*_):
    with open(folder / "asked", "a") as log:
        log.write("SIGTERM\\n")
    if not (folder / "deaf").exists():
        sys.exit(143)
signal.signal(signal.SIGTERM, note)
(folder / "started").touch()
while True:
    signal.pause()
"""
# Runs the job at once.
SBATCH = """#!{python}
import os, subprocess, sys
script = [word for word in sys.argv if word.startswith("--wrap=")][0][len("--wrap="):]
print("submitted", *[word for word in sys.argv[1:] if not word.startswith("--wrap=")])
sys.exit(subprocess.call(script, shell=True, env=os.environ | dict(SLURM_JOB_ID="7")))
"""


class CellsTest(unittest.TestCase):
    def why(self, cell: Cell, ranks: tuple[int, ...] = (4,), schedule: str = "1f1b") -> str | None:
        return why_impossible(cell, Limits(ranks, layers=2, schedule=schedule))

    def test_the_layouts_of_all_ranks_are_possible(self):
        for tasks, parts, chunks in ((4, 1, 1), (2, 2, 8), (1, 4, 32)):
            self.assertIsNone(self.why(Cell(tasks, parts, 32, chunks)))
        self.assertIsNone(self.why(Cell(1, 2, 32, 1), ranks=(2, 4)))

    def test_each_reason_is_said(self):
        for cell, reason in (
            (Cell(4, 2, 32, 1), "4 x 2 ranks are 8, not 4"),
            (Cell(1, 2, 32, 1), "1 x 2 ranks are 2, not 4"),
            (Cell(4, 1, 32, 2), "one part is no pipeline, which chunks could fill"),
            (Cell(1, 4, 30, 4), "a batch of 30 can't be divided into 4 equal chunks"),
        ):
            self.assertEqual(self.why(cell), reason)
        self.assertEqual(
            self.why(Cell(1, 5, 32, 1), ranks=(5,)), "4 modules can't be cut into 5 stages"
        )
        self.assertEqual(
            self.why(Cell(1, 4, 32, 1), schedule="v_half"), "4 modules can't be cut into 8 stages"
        )


class FigureTest(unittest.TestCase):
    def test_layouts_are_lines_with_their_best_chunks(self):
        picture = figure.draw(
            "A & B",
            {
                Cell(2, 1, 32, 1): 100,
                Cell(2, 1, 128, 1): 150,
                Cell(1, 2, 32, 1): 50,
                Cell(1, 2, 32, 16): 90,
                Cell(1, 2, 64, 4): 99,
            },
        )
        root = ElementTree.fromstring(picture)
        words = [node.text for node in root.iter("{http://www.w3.org/2000/svg}text")]
        for expected in ("A & B", "2 x 1: data parallel", "1 x 2: model parallel", "16", "4"):
            self.assertIn(expected, words)
        self.assertEqual(picture.count("<circle"), 4)
        # Nothing was measured between the two points of the data parallel layout.
        line = next(node.get("d") for node in root.iter() if node.get("stroke") == "#1f77b4")
        self.assertEqual(line.count("M"), 2)


class GridTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        for name, script in {
            "launcher": LAUNCHER,
            "srun": LAUNCHER,
            "program": PROGRAM,
            "sbatch": SBATCH,
        }.items():
            path = self.folder / name
            path.write_text(script.replace("{python}", sys.executable))
            path.chmod(0o755)

    def grid(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_")}
        command = [sys.executable, str(EXAMPLE / "grid.py"), "--output", str(self.folder / "out")]
        command += ["--program", str(self.folder / "program")]
        command += ["--launcher", str(self.folder / "launcher")]
        return subprocess.run(
            [*command, "--batch", "8", "9", "--chunks", "1", "2", *words],
            env=kept | {"PATH": f"{self.folder}:{os.environ['PATH']}"} | variables,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def ran(self) -> list[str]:
        return (self.folder / "ran").read_text().split()

    def rows(self) -> dict[Cell, dict[str, str]]:
        with (self.folder / "out" / "grid.csv").open(newline="", encoding="utf-8") as file:
            return {table.cell_of(row): row for row in csv.DictReader(file)}

    def test_measures_what_can_be_and_leaves_the_rest_blank_with_the_reason(self):
        done = self.grid()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.ran(), ["2,8,1", "2,8,2", "2,9,1", "1,8,1", "1,9,1"])
        rows = self.rows()
        self.assertEqual(len(rows), 2 * 2 * 2 * 2)
        self.assertEqual(rows[Cell(1, 2, 8, 2)]["reviews_per_s"], "16")
        self.assertEqual(rows[Cell(1, 2, 9, 2)]["reviews_per_s"], "")
        self.assertIn("equal chunks", rows[Cell(1, 2, 9, 2)]["reason"])
        self.assertIn("2/5  1 x 2 ranks, batch 8 in 2 chunks: 16 reviews/s", done.stdout)
        ElementTree.parse(self.folder / "out" / "throughput_2_ranks.svg")

    def test_goes_on_with_what_is_missing_or_has_failed(self):
        (self.folder / "broken").touch()
        done = self.grid("--batch", "8")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertEqual(self.rows()[Cell(1, 2, 8, 2)]["reason"], "failed: status 1: out of luck")
        (self.folder / "broken").unlink()
        (self.folder / "ran").unlink()
        self.assertEqual(self.grid().returncode, 0)
        self.assertEqual(self.ran(), ["2,8,2", "2,9,1", "1,9,1"])
        self.assertEqual(self.rows()[Cell(1, 2, 8, 2)]["reason"], "")

    def test_other_settings_are_other_cells(self):
        self.grid("--batch", "8")
        self.grid("--batch", "8", "--", "--nlayers", "3")
        self.assertEqual(self.ran(), ["2,8,1", "2,8,2", "1,8,1"] * 2)

    def test_submits_itself_and_starts_ranks_by_srun_there(self):
        (self.folder / "launcher").unlink()
        done = self.grid("--ranks", "4", "--sbatch", "--sbatch-options=--partition=gpu")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("--ntasks=4", done.stdout)
        self.assertIn("--partition=gpu", done.stdout)
        self.assertIn("4,8,2", self.ran())

    def test_a_cell_that_takes_too_long_is_asked_to_end(self):
        """srun ends its ranks when it is asked to, and not when it is killed."""
        (self.folder / "srun").write_text(LATE.replace("{python}", sys.executable))
        words = ["--batch", "8", "--chunks", "2", "--parts", "2", "--timeout", "5"]
        done = self.grid(*words, SLURM_JOB_ID="7")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertTrue((self.folder / "started").exists())
        self.assertEqual((self.folder / "asked").read_text(), "SIGTERM\n")
        self.assertEqual(self.rows()[Cell(1, 2, 8, 2)]["reason"], "failed: took longer than 5 s")

    def test_a_launcher_that_does_not_end_is_killed(self):
        (self.folder / "deaf").touch()
        program = self.folder / "srun"
        program.write_text(LATE.replace("{python}", sys.executable))
        process = subprocess.Popen([program], stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        while not (self.folder / "started").exists():
            self.assertIsNone(process.poll())
        with mock.patch.object(starts, "GRACE_S", 0.1):
            starts.end(process)
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.assertEqual((self.folder / "asked").read_text(), "SIGTERM\n")

    def test_says_what_is_wrong(self):
        for words, complaint in (
            (["--ranks", "0"], "are numbers from 1"),
            (["--launcher", str(self.folder / "none")], "can't start"),
        ):
            done = self.grid(*words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(complaint, done.stderr)
        (self.folder / "out" / "grid.csv").write_text("a,b\n1,2\n")
        self.assertIn("is no grid's table", self.grid().stderr)


if __name__ == "__main__":
    unittest.main()
