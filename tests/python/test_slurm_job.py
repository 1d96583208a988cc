#!/usr/bin/env python3
"""What Slurm tells a task, from Python."""

import os
import unittest
from unittest import mock

import unisono

# Environment of a task of `srun -N2 --ntasks-per-node=2 -c 3`.
TASK = {
    "SLURM_JOB_ID": "12",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_STEP_NODELIST": "gpu[05-06]",
    "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
    "SLURM_NTASKS_PER_NODE": "2",
    "SLURM_CPUS_PER_TASK": "3",
    "SLURM_STEP_GPUS": "0,2-3",
}


class SlurmJob(unittest.TestCase):
    def test_is_what_slurm_says(self) -> None:
        with mock.patch.dict(os.environ, TASK):
            job = unisono.slurm_job()
        self.assertEqual(job.hostnames, ["gpu05", "gpu06"])
        self.assertEqual((job.size, job.rank, job.local_rank), (4, 3, 1))
        self.assertEqual((job.cpus_per_task, job.ntasks_per_node), (3, 2))
        self.assertEqual((job.tasks_of_nodes, job.gpu_ids), ([2, 2], [0, 2, 3]))

    def test_says_where_ranks_meet(self) -> None:
        with mock.patch.dict(os.environ, TASK):
            job = unisono.slurm_job()
        self.assertEqual((job.master_addr, job.master_port), ("gpu05", 61012))
        with mock.patch.dict(os.environ, TASK | {"MASTER_ADDR": "alpha", "MASTER_PORT": "29501"}):
            job = unisono.slurm_job()
        self.assertEqual((job.master_addr, job.master_port), ("alpha", 29501))

    def test_is_readable(self) -> None:
        with mock.patch.dict(os.environ, TASK):
            text = str(unisono.slurm_job())
        self.assertEqual(
            text,
            "SlurmJob(hostnames=['gpu05', 'gpu06'], size=4, rank=3, local_rank=1, "
            "cpus_per_task=3, ntasks_per_node=2, tasks_of_nodes=[2, 2], gpu_ids=[0, 2, 3], "
            "master_addr='gpu05', master_port=61012)",
        )

    def test_names_what_is_missing(self) -> None:
        others = {name: value for name, value in os.environ.items() if "SLURM" not in name}
        without = mock.patch.dict(os.environ, others, clear=True)
        with without, self.assertRaisesRegex(ValueError, "SLURM_PROCID"):
            unisono.slurm_job()


if __name__ == "__main__":
    unittest.main()
