"""Runs the suites that every backend passes for backend mpi, as ranks of every MPI that is here.

python test_mpi_conformance.py PROGRAM UNISONO
"""

from __future__ import annotations

import re

from mpi_support import MPICH, OPEN_MPI, need_module
from support import PROGRAM, LauncherTest, main, need

SIZE = 3  # Of which worlds of one and two ranks are made, too.

# Threads of one process share something there, or the group fails, and with it the MPI.
NOT_FOR_PROCESSES = [
    "AllReduce.WhatAUsersFunctionThrows*",
    "Capabilities.AGroupIsOf*",
    "Coalesced.RanksThatCutDifferently*",
    "NewGroup.AFailure*",
    "NewGroup.AMismatch*",
    "NewGroup.AThousand*",
    "NewGroup.ItsErrors*",
    "Objects.ALateRank*",
    "Objects.ARankWithoutMemory*",
    "Objects.ASizeThat*",
]


class MpiConformanceTest:
    """What holds for every MPI; each runs it as its own test."""

    mpirun: list[str]
    name: str

    def setUp(self):
        need(self.mpirun[0])
        need_module(self.name)

    def test_the_suites_of_every_backend(self):
        command = [*self.mpirun, "-n", str(SIZE), PROGRAM]
        pattern = f"--gtest_filter=-{':'.join(NOT_FOR_PROCESSES)}"
        done = self.run_command([*command, pattern], GTEST_BRIEF="1")
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertNotIn("FAILED", said)
        passed = [int(number) for number in re.findall(r"\[  PASSED  \] (\d+) tests", said)]
        self.assertEqual(len(passed), SIZE, said)
        self.assertGreater(min(passed), 60, said)


class OpenMpiTest(MpiConformanceTest, LauncherTest):
    mpirun = OPEN_MPI
    name = "Open MPI"


class MpichTest(MpiConformanceTest, LauncherTest):
    mpirun = MPICH
    name = "MPICH"


if __name__ == "__main__":
    main()
