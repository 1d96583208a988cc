"""Expects `unisono doctor` to find its way, and nothing wrong, as the ranks of real launchers.

python test_doctor.py UNISONO
"""

from __future__ import annotations

import json
import re

from slurm_cluster import SlurmCluster
from support import PROGRAM, LauncherTest, main, need

SRUN = ["srun", "--immediate=30"]
TWO_NODES = ["-w", "node[1-2]", "-n2"]
DOCTOR = [PROGRAM, "doctor", "--json"]


class DoctorTest(LauncherTest):
    def examine(self, *launcher: str, **variables: str) -> dict:
        """The one report of all ranks; it must be free of problems and warnings."""
        done = self.run_command([*launcher, *DOCTOR], **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        report = json.loads(done.stdout)
        wrong = [row for row in report["findings"] if row["state"] in ("problem", "warning")]
        self.assertEqual(wrong, [])
        self.assertEqual(len(report["pairs"]), 1)
        return report

    def texts(self, report: dict, topic: str) -> list[str]:
        return [row["text"] for row in report["findings"] if row["topic"] == topic]

    def expect_ranks(self, report: dict, launcher: str, place: str, local_ranks: list[int]) -> None:
        """What each rank says of itself, and of the place where all meet."""
        size = len(local_ranks)
        said = self.texts(report, "launcher")
        for rank, local_rank in enumerate(local_ranks):
            own = rf"^started by {launcher}: rank {rank} of {size}, local rank {local_rank}; "
            where = rf"the ranks meet at {place}, which rank 0 serves$"
            self.assertEqual(sum(bool(re.search(own + where, text)) for text in said), 1, said)


class SlurmTest(DoctorTest):
    @classmethod
    def setUpClass(cls):
        cls.cluster = SlurmCluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.conf = cls.cluster.environment["SLURM_CONF"]

    def test_tasks_of_two_nodes(self):
        for mpi, secret in {"none": "none", "pmi2": "key space (PMI)"}.items():
            with self.subTest(mpi=mpi):
                report = self.examine(*SRUN, f"--mpi={mpi}", *TWO_NODES, SLURM_CONF=self.conf)
                # Both nodes are on one machine, which determines the result.
                self.assertEqual([node["ranks"] for node in report["nodes"]], [[0, 1]])
                job = self.variable(report, "SLURM_JOB_ID")
                port = 61000 + int(job) % 4536
                self.expect_ranks(report, "Slurm", f"node1:{port}", [0, 0])
                self.assertEqual(
                    self.texts(report, "Slurm"),
                    ["2 tasks on node1, node2; 1 core for each; no GPUs"],
                )
                self.assertEqual(
                    self.texts(report, "meeting place"), ["the meeting place node1 is 127.0.0.1"]
                )
                free = f"MASTER_PORT {port}, where rank 0 serves the store, is free"
                self.assertEqual(self.texts(report, "port"), [free])
                self.assertIn(secret, self.texts(report, "secret")[0])
                self.assertEqual(self.variable(report, "SLURM_STEP_NODELIST"), "node[1-2]")
                self.assertEqual(self.variable(report, "SLURM_NTASKS"), "2")

    def test_tasks_of_one_node(self):
        command = [*SRUN, "-w", "node2", "-n2"]
        report = self.examine(*command, SLURM_CONF=self.conf, OMP_NUM_THREADS="1")
        self.expect_ranks(report, "Slurm", r"127\.0\.0\.1:6\d{4}", [0, 1])
        # Advice for programs that are not ours.
        torchs = [row["advice"] for row in report["findings"] if "of torchrun" in row["text"]]
        self.assertEqual(len(torchs), 2)
        self.assertRegex(torchs[0], r"MASTER_ADDR=node2 MASTER_PORT=6\d{4} WORLD_SIZE=2 RANK=0")

    def test_a_port_that_is_held_is_a_problem(self):
        """The doctor in the job sees it, too."""
        holder = (
            "import os, socket, subprocess, sys\n"
            "port = 61000 + int(os.environ['SLURM_JOB_ID']) % 4536\n"
            "server = os.environ['SLURM_PROCID'] == '0' and socket.create_server(('', port))\n"
            "sys.exit(subprocess.run(sys.argv[1:]).returncode)\n"
        )
        command = [*SRUN, *TWO_NODES, "python3", "-c", holder, *DOCTOR, "--timeout", "3"]
        done = self.run_command(command, SLURM_CONF=self.conf)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"MASTER_PORT 6\d{4} is held by process \d+ ")

    def variable(self, report: dict, name: str) -> str:
        (text,) = (t for t in self.texts(report, "variable") if t.startswith(f"{name}="))
        return text.partition("=")[2].partition(":")[0]


class MpirunTest(DoctorTest):
    def expect_two_ranks(self, launcher: str, *mpirun: str, **variables: str) -> None:
        need(mpirun[0])
        report = self.examine(*mpirun, "-n", "2", **variables)
        self.expect_ranks(report, launcher, r"127\.0\.0\.1:6\d{4}", [0, 1])

    def test_open_mpi(self):
        """It pins each rank to a core, so that there are no threads to set."""
        mpirun = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
        for variables in ({}, {"OMP_NUM_THREADS": "1"}):
            with self.subTest(variables=variables):
                self.expect_two_ranks("Open MPI", *mpirun, "--bind-to", "core", **variables)

    def test_mpich(self):
        self.expect_two_ranks("MPICH or Intel MPI", "mpirun.mpich", OMP_NUM_THREADS="1")


if __name__ == "__main__":
    main()
