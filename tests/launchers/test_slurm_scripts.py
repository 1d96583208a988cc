"""Expects the scripts of deploy/slurm to make one world under a real Slurm.

python test_slurm_scripts.py PROGRAM UNISONO
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from slurm_cluster import SlurmCluster
from support import DEPLOY, PROGRAM, RUN_TIMEOUT_S, UNISONO, LauncherTest, main

CORES = 2


class SlurmScriptsTest(LauncherTest):
    cluster: SlurmCluster

    @classmethod
    def setUpClass(cls):
        # Slurm's daemons and all their processes are limited to these cores on any machine.
        allowed = os.sched_getaffinity(0)
        os.sched_setaffinity(0, sorted(allowed)[:CORES])
        cls.addClassCleanup(os.sched_setaffinity, 0, allowed)
        cls.cluster = SlurmCluster()
        cls.addClassCleanup(cls.cluster.stop)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def sbatch(self, *words: str, **variables: str) -> tuple[int, str]:
        """The exit code of a job, and what it writes. Its PATH leads to the program `unisono`."""
        output = self.folder / "output.txt"
        # A home folder without a secret.
        set_here = {
            "HOME": str(self.folder),
            "PATH": f"{Path(UNISONO).parent}:{os.environ['PATH']}",
        }
        done = subprocess.run(
            ["sbatch", "--wait", "-o", str(output), *words],
            env=self.cluster.environment | set_here | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=RUN_TIMEOUT_S,
            check=False,
        )
        return done.returncode, output.read_text() if output.exists() else done.stderr

    def expect_job(self, size: int, *words: str, **variables: str) -> str:
        code, said = self.sbatch(*words, **variables)
        self.assertEqual(code, 0, said)
        lines = [line for line in said.splitlines() if line.startswith("(")]
        expected = [f"({rank},{size}) all_reduce(ones)={size}" for rank in range(size)]
        self.assertEqual(sorted(lines), sorted(expected), said)
        return said

    def script(self, name: str) -> str:
        return str(DEPLOY / "slurm" / name)

    def test_a_launcher_per_node_makes_one_world(self):
        cores = len(os.sched_getaffinity(0))
        said = self.expect_job(2 * cores, self.script("launcher_per_node.sbatch"), PROGRAM)
        self.assertRegex(
            said,
            r"\[unisono launcher 0\] started by Slurm \(.*: 2 launchers meet at node1:6\d{4}",
        )
        words = ["--nodes=3", self.script("launcher_per_node.sbatch"), PROGRAM]
        self.expect_job(6, *words, UNISONO_RUN="-n 2 --max_restarts 1")

    def test_arguments_and_exit_code_of_a_rank_pass_a_launcher_per_node(self):
        code, said = self.sbatch(
            self.script("launcher_per_node.sbatch"),
            *("sh", "-c", '[ $RANK = 1 ] && exit "$1"; exec sleep 100', "sh", "9"),
            UNISONO_RUN="-n 1",
        )
        self.assertEqual(code, 9, said)
        self.assertRegex(said, r"rank 1 \(.*\) failed after .*: exit code 9")

    def test_a_launcher_has_all_cores_that_the_job_has_on_its_node(self):
        told = 'echo "cores $SLURM_CPUS_PER_TASK"'
        _, said = self.sbatch(self.script("launcher_per_node.sbatch"), "sh", "-c", told)
        self.assertIn("cores 4\n", said)

    def test_a_rank_per_task(self):
        said = self.expect_job(4, self.script("rank_per_task.sbatch"), PROGRAM)
        self.assertRegex(said, r"started by Slurm \(.*4 ranks meet at node1:6\d{4}\n")
        words = ["--nodes=3", "--ntasks-per-node=1", self.script("rank_per_task.sbatch")]
        self.expect_job(3, *words, PROGRAM)

    def test_all_tasks_have_one_secret_though_sbatch_passes_no_variables_on(self):
        # On the cluster's loopback interface the ranks would also meet without a secret.
        told = 'echo "secret $UNISONO_SECRET"'
        rank_per_task = [self.script("rank_per_task.sbatch")]
        for words in (
            [self.script("launcher_per_node.sbatch")],
            rank_per_task,
            ["--export=NONE", *rank_per_task],
        ):
            code, said = self.sbatch(*words, "sh", "-c", told, UNISONO_RUN="-n 2")
            self.assertEqual(code, 0, said)
            secrets = re.findall(r"^secret ([0-9a-f]{64})$", said, re.M)
            self.assertEqual((len(secrets), len(set(secrets))), (4, 1), said)
        _, said = self.sbatch(*rank_per_task, "sh", "-c", told, UNISONO_SECRET="mine")
        self.assertEqual(said, "secret mine\n" * 4)

    def test_cores_per_task_are_those_of_the_job(self):
        told = 'echo "$SLURM_CPUS_PER_TASK $OMP_NUM_THREADS"'
        words = ["--cpus-per-task=2", self.script("rank_per_task.sbatch"), "sh", "-c", told]
        code, said = self.sbatch(*words)
        self.assertEqual((code, said), (0, "2 2\n" * 4))

    def test_a_failed_task_ends_the_others(self):
        failing = "[ $SLURM_PROCID = 1 ] && exit 9; exec sleep 100"
        code, said = self.sbatch(self.script("rank_per_task.sbatch"), "sh", "-c", failing)
        self.assertNotEqual(code, 0, said)

    def test_the_plan_is_what_the_program_prints_and_runs(self):
        planned = DEPLOY / "slurm/planned.sbatch"
        readme = (DEPLOY / "README.md").read_text()
        found = re.search(r"`unisono (plan slurm [^`]*)`", readme)
        self.assertIsNotNone(found)
        done = self.run_command([UNISONO, *found[1].split()])
        self.assertEqual(done.stdout, planned.read_text())
        (self.folder / "train").symlink_to(PROGRAM)
        self.expect_job(4, str(planned), UNISONO_SECRET="0123456789abcdef")

    def test_a_planned_task_has_its_share_of_the_cores(self):
        plan = ["plan", "slurm", "--nodes", "2", "--tasks-per-node", "2", "--cpus-per-node", "4"]
        script = self.folder / "planned.sbatch"
        script.write_text(self.run_command([UNISONO, *plan, PROGRAM]).stdout)
        told = self.folder / "bin" / "srun"
        told.parent.mkdir()
        told.write_text(f'#!/bin/sh\necho "srun $*"; exec {shutil.which("srun")} "$@"\n')
        told.chmod(0o755)
        path = f"{told.parent}:{os.environ['PATH']}"
        for options, cpus in (([], 2), (["--cpus-per-task=1"], 1)):
            said = self.expect_job(
                4, *options, str(script), PATH=path, UNISONO_SECRET="0123456789abcdef"
            )
            self.assertIn(f"srun --cpus-per-task={cpus} {PROGRAM}\n", said)


if __name__ == "__main__":
    main()
