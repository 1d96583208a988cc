"""Tests that bench/parallel/imdb_grid/grid.py runs as a job of a real Slurm.

python test_slurm_grid.py IMDB_LAYOUT UNISONO
"""

from __future__ import annotations

import csv
import subprocess
import sys
import tempfile
from pathlib import Path

from slurm_cluster import SlurmCluster
from support import DEPLOY, PROGRAM, RUN_TIMEOUT_S, LauncherTest, main

GRID = DEPLOY.parent / "bench" / "parallel" / "imdb_grid" / "grid.py"
MODEL = ["--ntokens", "200", "--max-length", "16", "--d_model", "16", "--n_head", "2"]


class SlurmGridTest(LauncherTest):
    cluster: SlurmCluster

    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster()
        cls.addClassCleanup(cls.cluster.stop)

    def test_submits_itself_and_measures_layouts_by_srun(self):
        with tempfile.TemporaryDirectory() as folder:
            words = ["--ranks", "2", "--batch", "8", "--chunks", "1", "4", "--steps", "1"]
            words += ["--program", PROGRAM, "--output", folder, "--sbatch"]
            done = subprocess.run(
                [sys.executable, str(GRID), *words, "--sbatch-options=--wait", "--", *MODEL],
                env=self.cluster.environment | {"HOME": folder},
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            said = [path.read_text() for path in Path(folder).glob("slurm-*.out")]
            self.assertEqual(done.returncode, 0, f"{done.stdout}{done.stderr}{said}")
            with (Path(folder) / "grid.csv").open(newline="", encoding="utf-8") as file:
                rows = list(csv.DictReader(file))
        layouts = [(row["tasks"], row["parts"], row["chunks"]) for row in rows if not row["reason"]]
        self.assertCountEqual(layouts, [("2", "1", "1"), ("1", "2", "1"), ("1", "2", "4")])


if __name__ == "__main__":
    main()
