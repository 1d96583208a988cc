"""Expects the grid of examples/12_imdb_hybrid to measure small layouts of the program itself.

python small_grid.py UNISONO IMDB_HYBRID
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "12_imdb_hybrid"))

import table
from cells import Cell

TIMEOUT_S = 100
UNISONO, HYBRID = sys.argv.pop(1), sys.argv.pop(1)
MODEL = ["--generated", "--limit", "40", "--max-length", "16", "--nlayers", "2"]
MODEL += ["--d_model", "16", "--d_hid", "16", "--n_head", "2"]


class SmallGridTest(unittest.TestCase):
    def grid(self, folder: str, *words: str) -> list[dict[str, str]]:
        grid = [sys.executable, str(Path(table.__file__).with_name("grid.py"))]
        grid += ["--program", HYBRID, "--launcher", UNISONO, "--output", folder, "--steps", "1"]
        done = subprocess.run(
            [*grid, *words, "--", *MODEL],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return table.read(Path(folder) / "grid.csv")

    def test_all_layouts_of_two_and_four_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--ranks", "2", "4", "--batch", "4", "8", "--chunks", "1", "4"]
            rows = self.grid(folder, *words, "--parts", "1", "2")
            for ranks in (2, 4):
                self.assertTrue((Path(folder) / f"throughput_{ranks}_ranks.svg").exists())
        cells = {table.cell_of(row): row for row in rows}
        self.assertEqual(len(cells), 3 * 2 * 2 * 2)
        for cell in (Cell(2, 1, 4, 1), Cell(4, 1, 8, 1), Cell(1, 2, 8, 4), Cell(2, 2, 8, 4)):
            self.assertGreater(float(cells[cell]["reviews_per_s"]), 0, cells[cell])
            self.assertGreater(float(cells[cell]["peak_activation_mib"]), 0, cells[cell])
        self.assertIn("not 2 or 4", cells[Cell(4, 2, 8, 1)]["reason"])
        self.assertIn("no pipeline", cells[Cell(2, 1, 8, 4)]["reason"])

    def test_a_schedule_of_two_stages_per_rank(self):
        with tempfile.TemporaryDirectory() as folder:
            rows = self.grid(
                folder, "--batch", "8", "--chunks", "4", "--parts", "2", "--schedule", "v_half"
            )
        measured = [row for row in rows if not row["reason"]]
        self.assertEqual([table.cell_of(row) for row in measured], [Cell(1, 2, 8, 4)])


if __name__ == "__main__":
    unittest.main()
