"""Runs the suites that every backend passes for backend mpi, as ranks of every MPI that is here.

python test_mpi_conformance.py PROGRAM UNISONO
"""

from __future__ import annotations

import re

from mpi_support import MPICH, OPEN_MPI, need_module
from support import PROGRAM, LauncherTest, main, need

# Each job: number of ranks, from which smaller worlds are also made; pattern of its tests; excluded
# patterns.
PARTS = [
    (3, "*AllReduce*", []),
    (3, "*Reduce*", ["*AllReduce*"]),
    (3, "*", ["*Reduce*", "*Messages*"]),
    (4, "*Messages*", []),
]

# These tests share state between threads of one process, or fail the group and with it the MPI.
NOT_FOR_PROCESSES = [
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
    timeout_s = 150  # 15 s where the machine does nothing else; ranks that share cores take long.

    def setUp(self):
        need(self.mpirun[0])
        need_module(self.name)

    def test_the_suites_of_every_backend(self):
        n_passed = 0
        for size, wanted, unwanted in PARTS:
            with self.subTest(part=wanted, without=unwanted):
                left_out = ":".join([*unwanted, *NOT_FOR_PROCESSES])
                n_passed += self.count_passed(size, f"--gtest_filter={wanted}-{left_out}")
        self.assertGreater(n_passed, 155)

    def count_passed(self, size: int, pattern: str) -> int:
        """Runs these tests: how many have passed, on every rank."""
        command = [*self.mpirun, "-n", str(size), PROGRAM, pattern]
        done = self.run_command(command, GTEST_BRIEF="1", GTEST_COLOR="no")
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        passed = re.search(r"passed on every rank: (\d+)", said)
        self.assertIsNotNone(passed, said)
        return int(passed[1])


class OpenMpiTest(MpiConformanceTest, LauncherTest):
    mpirun = OPEN_MPI
    name = "Open MPI"


class MpichTest(MpiConformanceTest, LauncherTest):
    mpirun = MPICH
    name = "MPICH"


if __name__ == "__main__":
    main()
