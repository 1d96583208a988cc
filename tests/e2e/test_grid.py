"""Tests the study of bench/parallel/imdb_grid: its grid, its figure, and the program it measures.

python test_grid.py UNISONO IMDB_LAYOUT [TEST...]

Most tests of the grid measure a script instead of the program; Slurm's commands are scripts too.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock as mock
import xml.etree.ElementTree as ElementTree
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench" / "parallel" / "imdb_grid"))

import cells
import figure
import grid
from cells import Cell, Limits, why_impossible

STUDY = Path(grid.__file__).parent
UNISONO, LAYOUT = sys.argv.pop(1), sys.argv.pop(1)
TIMEOUT_S = 100
LAYERS = 2
MODEL = ["--max-length", "16", "--ntokens", "200", "--nlayers", str(LAYERS)]
MODEL += ["--d_model", "16", "--d_hid", "16", "--n_head", "2"]
SVG = "{http://www.w3.org/2000/svg}"
# Runs `-n RANKS PROGRAM ...`, or srun's `--ntasks=RANKS PROGRAM ...`, as one process.
LAUNCHER = """#!{python}
import os, sys
words = sys.argv[1:]
while words and not words[0].endswith("program"):
    words.pop(0)
os.execv(words[0], words)
"""
# A program whose throughput is the batch size times the number of chunks. The program logs each
# run, and fails for two chunks while a file "broken" exists.
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
# Ends only after SIGTERM and logs the signal. Ignores SIGTERM while a file "deaf" exists.
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
# Replaces sbatch: runs the job at once.
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
        # There is no measurement between the two points of the data parallel layout.
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
        command = [sys.executable, str(STUDY / "grid.py"), "--output", str(self.folder / "out")]
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
            return {cells.cell_of(row): row for row in csv.DictReader(file)}

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
        """srun ends its ranks after SIGTERM, and leaves them running after SIGKILL."""
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
        with mock.patch.object(grid, "GRACE_S", 0.1):
            grid.end(process)
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


class MeasuredLayoutsTest(unittest.TestCase):
    def grid(self, folder: str, *words: str) -> list[dict[str, str]]:
        command = [sys.executable, str(STUDY / "grid.py"), "--program", LAYOUT]
        command += ["--launcher", UNISONO, "--output", folder, "--steps", "1"]
        done = subprocess.run(
            [*command, *words, "--", *MODEL],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return cells.read_rows(Path(folder) / "grid.csv")

    def test_all_layouts_of_two_and_four_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--ranks", "2", "4", "--batch", "4", "8", "--chunks", "1", "4"]
            rows = self.grid(folder, *words, "--parts", "1", "2")
            for ranks in (2, 4):
                self.assertTrue((Path(folder) / f"throughput_{ranks}_ranks.svg").exists())
        measured = {cells.cell_of(row): row for row in rows}
        self.assertEqual(len(measured), 3 * 2 * 2 * 2)
        for cell in (Cell(2, 1, 4, 1), Cell(4, 1, 8, 1), Cell(1, 2, 8, 4), Cell(2, 2, 8, 4)):
            self.assertGreater(float(measured[cell]["reviews_per_s"]), 0, measured[cell])
            self.assertGreater(float(measured[cell]["peak_activation_mib"]), 0, measured[cell])
        self.assertIn("not 2 or 4", measured[Cell(4, 2, 8, 1)]["reason"])
        self.assertIn("no pipeline", measured[Cell(2, 1, 8, 4)]["reason"])

    def test_a_schedule_of_two_stages_per_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = self.grid(
                folder, "--batch", "8", "--chunks", "4", "--parts", "2", "--schedule", "v_half"
            )
        measured = [row for row in rows if not row["reason"]]
        self.assertEqual([cells.cell_of(row) for row in measured], [Cell(1, 2, 8, 4)])


class LayoutTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def run_unisono(self, *words: str | int | Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [UNISONO, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )

    def check(self, *words: str | int | Path) -> str:
        done = self.run_unisono(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def measure(self, n_ranks: int, *words: str | int | Path) -> str:
        return self.check("run", "-n", n_ranks, LAYOUT, *MODEL, "--steps", 1, *words)

    def figures(self, text: str) -> dict[str, tuple[float, ...]]:
        """Returns planned, measured and off by, for each line of the table of a plan."""
        rows = re.findall(
            r"^(step ms|bubble %|rank \d MiB) +(\S+) +(\S+) +(\S+) (?:%|points)$",
            text,
            re.MULTILINE,
        )
        return {name: tuple(map(float, numbers)) for name, *numbers in rows}

    def test_layers_are_measured_and_a_step_is_planned_by_them(self):
        path = self.folder / "layers.csv"
        for schedule, stages in (("1f1b", 2), ("v_zb", 4)):
            words = ["--chunks", 4, "--schedule", schedule, "--layer-times", path]
            text = self.measure(2, *words)
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

            # `unisono plan` computes the same figures from the file, up to rounding.
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
        words = ["--parts", 2, "--chunks", 2]
        text = self.measure(4, *words, "--layer-times", self.folder / "layers.csv")
        self.assertEqual(len(self.figures(text)), 4, text)

    def test_the_picture_of_a_step_has_every_action(self):
        path = self.folder / "step.svg"
        self.measure(2, "--chunks", 4, "--svg", path, "--json", self.folder / "json")
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

    def test_the_table_of_gains_has_every_stage(self):
        text = self.measure(2, "--chunks", 4)
        self.assertRegex(text, r"stage +rank +forward ms +backward ms")
        for stage in range(2):
            self.assertRegex(text, rf"(?m)^ +{stage} +{stage} ")
        self.assertIn("Pipelining ", text)

    def test_a_wrong_option_is_one_error(self):
        path = self.folder / "layers.csv"
        for words, complaint in (
            (["--checkpoint", "always", "--layer-times", path], "--checkpoint is always"),
            (["--layer-times", self.folder / "no/folder/x"], "can't write"),
            (["--chunks", 5], "--batch-size 32 can't be divided into 5 --chunks"),
            ([], "1 ranks can't be divided into replicas of --parts 2"),
            (["--schedule", "none"], 'there is no schedule "none"'),
        ):
            parts = ["--parts", 1] if words else []
            done = self.run_unisono("run", "-n", 1, LAYOUT, *MODEL, *parts, *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(complaint, done.stderr)


if __name__ == "__main__":
    unittest.main()
