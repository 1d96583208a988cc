"""Runs the tests of backend mpi as ranks of every MPI that is here.

python test_mpi_backend.py PROGRAM UNISONO
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from mpi_support import MPICH, OPEN_MPI, need_module
from support import PROGRAM, UNISONO, LauncherTest, main, need


class MpiBackendTest:
    """What holds for every MPI; each runs it as its own test."""

    mpirun: list[str]
    name: str
    survive: tuple[str, ...]  # Options with which ranks outlive others.

    def setUp(self):
        need(self.mpirun[0])
        need_module(self.name)

    def run_tests(self, size: int, pattern: str, *options: str, **variables: str) -> str:
        command = [*self.mpirun, *options, "-n", str(size), PROGRAM, f"--gtest_filter={pattern}"]
        done = self.run_command(command, GTEST_BRIEF="1", GTEST_COLOR="no", **variables)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said)
        self.assertNotIn("FAILED", said)
        return said

    def run_failing(self, size: int, pattern: str, **variables: str) -> None:
        """A job whose ranks may have to end without MPI_Finalize, which its mpirun may resent."""
        command = [*self.mpirun, *self.survive, "-n", str(size), PROGRAM]
        with tempfile.TemporaryDirectory() as ends:
            done = self.run_command(
                [*command, f"--gtest_filter={pattern}"],
                GTEST_COLOR="no",
                MPI_TEST_ENDS=ends,
                **variables,
            )
        said = done.stdout + done.stderr
        self.assertNotIn("FAILED", said)
        self.assertEqual(said.count("[  PASSED  ]"), size, said)

    def test_operations(self):
        for size in (1, 2, 4):
            with self.subTest(size=size):
                self.run_tests(size, "MpiReductions.*:MpiMovement.*")

    def test_operations_over_nodes(self):
        for size, nodes in ((2, 2), (3, 2)):
            with self.subTest(size=size, nodes=nodes):
                self.run_tests(size, "MpiReductions.*:MpiMovement.*", MPI_TEST_NODES=str(nodes))

    def test_groups_and_refusals(self):
        self.run_tests(3, "MpiGroups.*:MpiRefusals.*")
        self.run_tests(3, "MpiGroups.RankAndSize*:MpiRefusals.*", MPI_TEST_NODES="3")

    def test_programs_as_tutorials_have_them(self):
        said = self.run_tests(4, "MpiTutorials.*")
        self.assertEqual(said.count("[  PASSED  ]"), 4, said)  # Lines of ranks may meet.

    def test_ranks_that_differ(self):
        for nodes in ("1", "2"):
            with self.subTest(nodes=nodes):
                self.run_failing(2, "MpiFailure.RanksThatCall*", MPI_TEST_NODES=nodes)

    def test_blocks_that_differ(self):
        for operation in ("AllToAll", "AGather", "AScatter"):
            with self.subTest(operation=operation):
                self.run_failing(3, f"MpiFailure.BlocksOf{operation}That*")

    def test_a_late_rank(self):
        for nodes in ("1", "2"):
            with self.subTest(nodes=nodes):
                self.run_failing(2, "MpiFailure.ALate*", MPI_TEST_NODES=nodes)

    def test_the_bench(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            command = [UNISONO, "bench", "all", "--backend", "mpi", "--sizes", "8,4K"]
            options = ["--seconds", "0.01", "--check", "--json", str(path)]
            done = self.run_command([*self.mpirun, "-n", "2", *command, *options])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            results = [json.loads(line) for line in path.read_text().splitlines()]
            self.assertIn("all_reduce", {result["op"] for result in results})
            self.assertEqual({result["backend"] for result in results}, {"mpi"})
            self.assertTrue(all(result["wrong"] in (0, None) for result in results), results)


class OpenMpiTest(MpiBackendTest, LauncherTest):
    mpirun = OPEN_MPI
    name = "Open MPI"
    survive = ("--mca", "orte_abort_on_non_zero_status", "0")


class MpichTest(MpiBackendTest, LauncherTest):
    mpirun = MPICH
    name = "MPICH"
    survive = ("-disable-auto-cleanup",)

    # Open MPI's mpirun ends all ranks when a rank dies.
    def test_a_dead_rank(self):
        command = [*self.mpirun, *self.survive, "-n", "2", PROGRAM]
        done = self.run_command([*command, "--gtest_filter=MpiFailure.ADead*"])
        said = done.stdout + done.stderr
        self.assertRegex(said, r"survivor 0: .*rank 1 \(pid \d+ on .*\) is gone")


class OutsideTest(LauncherTest):
    def test_ranks_of_no_mpi_are_told_how_to_start(self):
        need_module("MPI")
        for launch in ([], [UNISONO, "run", "-n", "2"]):
            done = self.run_command([*launch, PROGRAM])
            self.assertNotEqual(done.returncode, 0)
            said = done.stdout + done.stderr
            self.assertIn("init_process_group: backend mpi: this process is not a rank of an", said)
            self.assertIn("mpirun -n 4 PROGRAM", said)


if __name__ == "__main__":
    main()
