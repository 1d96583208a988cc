"""Expects ranks that a real Slurm starts to find each other, though the program knows no Slurm.

python test_slurm.py PROGRAM UNISONO
"""

from __future__ import annotations

import re
import shlex
import tempfile
from pathlib import Path

from slurm_cluster import SlurmCluster
from support import PROGRAM, UNISONO, LauncherTest, main, need

TOLD = "their secret is in the launcher's key space"
SRUN = ["srun", "--immediate=30"]


class SlurmTest(LauncherTest):
    cluster: SlurmCluster

    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.conf = cls.cluster.environment["SLURM_CONF"]

    def script(self, text: str, *options: str) -> str:
        """What a batch script writes, run to its end."""
        with tempfile.TemporaryDirectory() as folder:
            script = Path(folder) / "script.sh"
            script.write_text("#!/bin/sh\n" + text)
            output = Path(folder) / "output.txt"
            self.run_command(
                ["sbatch", "--wait", "-o", str(output), *options, str(script)], SLURM_CONF=self.conf
            )
            return output.read_text() if output.exists() else ""

    def test_tasks_of_one_node_meet(self):
        said = self.expect_world(4, [*SRUN, "-N1", "-n4", PROGRAM], SLURM_CONF=self.conf)
        self.assertEqual(
            said.count("[unisono rank 0] started by Slurm (SLURM_STEP_NODELIST"), 1, said
        )
        self.assertRegex(said, r": 4 ranks meet at node\d:6\d{4}")

    def test_tasks_of_several_nodes_meet_on_the_first(self):
        command = [*SRUN, "-w", "node[1-2]", "-n5", PROGRAM]
        said = self.expect_world(5, command, SLURM_CONF=self.conf)
        self.assertRegex(said, r": 5 ranks meet at node1:6\d{4}")
        command = [*SRUN, "-w", "node[2-3]", "--ntasks-per-node=2", PROGRAM]
        said = self.expect_world(4, command, SLURM_CONF=self.conf)
        self.assertRegex(said, r": 4 ranks meet at node2:6\d{4}")

    def test_launchers_of_ours_make_one_world_of_all_nodes(self):
        ours = [UNISONO, "run", "-n", "2", PROGRAM]
        command = [*SRUN, "-w", "node[2-3]", "--ntasks-per-node=1", *ours]
        self.expect_world(4, command, SLURM_CONF=self.conf)
        failing = ["sh", "-c", "[ $RANK = 2 ] && exit 9; exec sleep 100"]
        command[-1:] = failing
        done = self.run_command(command, SLURM_CONF=self.conf)
        self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"rank 2 \(.*, pid \d+\) failed after .*: exit code 9")

    def test_the_port_is_that_of_the_job(self):
        said = self.script(f"echo job $SLURM_JOB_ID; srun {PROGRAM}", "-n2")
        job = int(said.split()[1])
        self.assertIn(f":{61000 + job % 4536}\n", said)

    def test_steps_of_a_job_run_beside_each_other(self):
        step = f"srun --exact -n2 --mem=0 {PROGRAM} &\n"
        said = self.script(2 * step + "wait\n", "-N1", "-n4")
        self.assertEqual(said.count("all_reduce(ones)=2\n"), 4, said)
        self.assertEqual(said.count("2 ranks meet at"), 2, said)

    def test_a_batch_script_is_no_task(self):
        said = self.script(PROGRAM, "-n2")
        self.assertIn("RANK is not set", said)
        self.assertIn('not a task: "srun program"', said)

    def test_tasks_of_several_nodes_agree_on_a_secret_by_pmi_and_pmix(self):
        told = {"none": "\n", "pmi2": f"; {TOLD} (PMI)\n", "pmix": f"; {TOLD} (PMIx)\n"}
        for mpi, end in told.items():
            if f" {mpi}" in self.cluster.command("srun", "--mpi=list").replace("\t", " "):
                for nodes in ("-N1", "-N2"):
                    command = [*SRUN, f"--mpi={mpi}", nodes, "-n3", PROGRAM]
                    said = self.expect_world(3, command, SLURM_CONF=self.conf)
                    self.assertIn("started by Slurm", said)
                    # On one node no secret is needed.
                    line_end = "\n" if nodes == "-N1" else end
                    self.assertRegex(said, r"3 ranks meet at node\d:6\d{4}" + re.escape(line_end))

    def test_a_secret_of_the_user_comes_first(self):
        command = [*SRUN, "--mpi=pmi2", "-N2", "-n2", PROGRAM]
        said = self.expect_world(2, command, SLURM_CONF=self.conf, UNISONO_SECRET="0123456789ab")
        self.assertNotIn(TOLD, said)

    def test_scripts_that_set_a_part_by_hand(self):
        text = "export MASTER_ADDR=127.0.0.1 MASTER_PORT=61998 WORLD_SIZE=4\n"
        said = self.script(text + f"srun {PROGRAM}", "-N2", "-n4")
        self.assertIn("4 ranks meet at 127.0.0.1:61998", said)
        self.assertEqual(said.count("all_reduce(ones)=4\n"), 4, said)

    def test_ranks_numbered_by_hand_may_be_of_several_steps(self):
        text = "export MASTER_ADDR=127.0.0.1 MASTER_PORT=61997 WORLD_SIZE=2\n"
        step = f"srun --exact -n1 --mem=0 {PROGRAM} &\n"
        said = self.script(f"{text}RANK=0 {step}RANK=1 {step}wait\n", "-N1", "-n2")
        self.assertEqual(said.count("all_reduce(ones)=2\n"), 2, said)

    def test_a_second_step_at_the_port_is_told_so(self):
        # In PyTorch containers all steps of a job have the same port.
        text = "export PYTORCH_VERSION=2 UNISONO_LOG=debug\n"
        late = "[ $SLURM_PROCID = 0 ] || until [ -e go ]; do sleep 0.05; done"
        step = "srun --exact -n2 --mem=0"
        with tempfile.TemporaryDirectory() as folder:
            said = self.script(
                f"{text}cd {folder}\n{step} sh -c '{late}; exec {PROGRAM}' 2>err &\n"
                f'until grep -q "connected to the store" err; do sleep 0.05; done\n'
                f"{step} {PROGRAM}\ntouch go\nwait\n",
                "-N1",
                "-n4",
            )
        self.assertEqual(said.count("all_reduce(ones)=2\n"), 2, said)
        self.assertRegex(said, r"meets there, SLURM_JOB_ID=\d+, SLURM_STEP_ID=0, and this one is S")

    def test_mpirun_in_a_job_starts_the_ranks(self):
        for mpirun in (["mpirun.openmpi", "--allow-run-as-root"], ["mpirun.mpich"]):
            with self.subTest(mpirun[0]):
                need(mpirun[0])
                command = shlex.join([*mpirun, "-n", "4", PROGRAM])
                for options in (["-N1", "-n4"], ["-N2", "--ntasks-per-node=2"]):
                    said = self.script(command, *options)
                    self.assertEqual(said.count("all_reduce(ones)=4\n"), 4, said)
                    self.assertNotIn("started by Slurm", said)
                    self.assertEqual(TOLD in said, "-N2" in options, said)


if __name__ == "__main__":
    main()
