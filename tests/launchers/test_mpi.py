"""Expects ranks that a real mpirun starts to find each other, though the program knows no MPI.

python test_mpi.py PROGRAM UNISONO
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from support import (
    OWN_FOLDER,
    PROGRAM,
    RUN_TIMEOUT_S,
    UNISONO,
    LauncherTest,
    clean_environment,
    main,
    need,
)

# Open MPI rejects root and more ranks than cores without these options.
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
MPICH = ["mpirun.mpich"]


class MpirunTest:
    """What holds for every mpirun; each runs it as its own test."""

    mpirun: list[str]
    variables: str

    def setUp(self):
        need(self.mpirun[0])

    def test_ranks_meet(self):
        for size in (1, 2, 4):
            said = self.expect_world(size, [*self.mpirun, "-n", str(size), PROGRAM])
            info = f"[unisono rank 0] started by {self.variables}"
            self.assertEqual(said.count(info), 1, said)
            # The line must end here: on one node no rank requests a secret from the launcher.
            self.assertRegex(said, rf": {size} ranks meet at 127\.0\.0\.1:6\d{{4}}\n")

    def test_ranks_meet_through_a_script(self):
        # A shell that stays between mpirun and the rank, and a Python that closes descriptors.
        script = ["sh", "-c", '"$0"; exit $?', PROGRAM]
        said = self.expect_world(3, [*self.mpirun, "-n", "3", *script])
        self.assertRegex(said, r"meet at 127\.0\.0\.1:6\d{4}")
        code = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
        self.expect_world(2, [*self.mpirun, "-n", "2", sys.executable, "-c", code, PROGRAM])

    def test_launchers_of_ours_make_one_world(self):
        ours = [UNISONO, "run", "-n", "2", PROGRAM]
        self.expect_world(4, [*self.mpirun, "-n", "2", *ours])

    def test_launchers_of_ours_say_that_they_have_too_few_cores(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("takes two cores")
        one_core = ["taskset", "-c", "0", UNISONO, "run", "-n", "2", PROGRAM]
        said = self.expect_world(4, [*self.mpirun, "-n", "2", *one_core])
        self.assertRegex(said, r"lets this launcher use 1 of \d+ cores, for 2 ranks")

    def test_ranks_on_one_core_are_told_so(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("takes two cores")
        bound = [*self.mpirun, "-n", "2", "taskset", "-c", "1", PROGRAM]
        said = self.expect_world(2, bound)
        self.assertEqual(said.count("ranks 0 and 1 may use core 1 only"), 1, said)
        apart = 'exec taskset -c "$OMPI_COMM_WORLD_RANK$PMI_RANK" "$0"'
        said = self.expect_world(2, [*self.mpirun, "-n", "2", "sh", "-c", apart, PROGRAM])
        self.assertNotIn("may use core", said)

    def test_launchers_of_ours_end_with_the_rank_that_fails(self):
        script = ["sh", "-c", "[ $RANK = 3 ] && exit 7; exec sleep 100"]
        done = self.run_command([*self.mpirun, "-n", "2", UNISONO, "run", "-n", "2", *script])
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        said = done.stdout + done.stderr
        self.assertRegex(said, r"rank 3 \(.*, pid \d+\) failed after .*: exit code 7")

    def test_launchers_of_ours_may_be_jobs_of_their_own(self):
        alone = [UNISONO, "run", "--standalone", "-n", "2", PROGRAM]
        done = self.run_command([*self.mpirun, "-n", "2", *alone])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("all_reduce(ones)=2"), 4, done.stdout)

    def test_jobs_at_the_same_time_do_not_meet(self):
        with tempfile.TemporaryDirectory() as folder:
            jobs = []
            for size in (2, 3, 2):
                path = Path(folder) / f"{len(jobs)}.txt"
                # Two Open MPI jobs that create their folder at the same time may fail because of
                # each other.
                own_folder = Path(folder) / f"{len(jobs)}"
                own_folder.mkdir()
                with path.open("w") as output:
                    command = [*self.mpirun, "-n", str(size), PROGRAM]
                    job = subprocess.Popen(
                        command,
                        env=clean_environment(TMPDIR=str(own_folder)),
                        stdout=output,
                        stderr=output,
                    )
                jobs.append((size, path, job))
            for size, path, job in jobs:
                code = job.wait(timeout=60)
                text = path.read_text()
                self.assertEqual(code, 0, text)
                self.assertEqual(len(re.findall(rf"all_reduce\(ones\)={size}\n", text)), size, text)

    def test_what_the_user_sets_comes_first(self):
        said = self.expect_world(
            2, [*self.mpirun, "-n", "2", PROGRAM], MASTER_ADDR="127.0.0.1", MASTER_PORT="29777"
        )
        self.assertIn("2 ranks meet at 127.0.0.1:29777", said)

    def test_rank_0_of_0_leaves_both_to_mpirun(self):
        # Programs for the MPI backend start this way, and may also set an address.
        for place in ({}, {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29778"}):
            command = [*self.mpirun, "-n", "4", PROGRAM, "0", "0"]
            said = self.expect_world(4, command, **place)
            launcher = self.variables.partition(" (")[0]
            self.assertIn(f"[unisono rank 0] started by {launcher} (", said)

    def test_a_world_size_that_differs_is_an_error(self):
        for _ in range(5):
            done = self.run_command([*self.mpirun, "-n", "2", PROGRAM], WORLD_SIZE="3")
            self.assertNotEqual(done.returncode, 0)
            said = done.stdout + done.stderr
            if said:  # MPICH's mpirun may end before it has passed on what the ranks said.
                break
        self.assertIn("WORLD_SIZE=3 differs from", said)


class OpenMpiTest(MpirunTest, LauncherTest):
    mpirun = OPEN_MPI
    variables = "Open MPI (OMPI_COMM_WORLD_SIZE"

    def test_a_second_job_at_the_port_is_told_so(self):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            go = folder / "go"
            late = f"[ $OMPI_COMM_WORLD_RANK = 0 ] || until [ -e {go} ]; do sleep 0.05; done"
            variables = {"MASTER_PORT": "29776", "UNISONO_LOG": "debug"}
            with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
                first = subprocess.Popen(
                    [*self.mpirun, "-n", "2", "sh", "-c", f"{late}; exec {PROGRAM}"],
                    env=clean_environment(TMPDIR=OWN_FOLDER.name, **variables),
                    stdout=out,
                    stderr=err,
                )
            end = time.monotonic() + RUN_TIMEOUT_S
            while "connected to the store" not in (folder / "err").read_text():
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
            (folder / "other").mkdir()  # Two mpiruns may fail over each other's folder.
            self.expect_error(
                [*self.mpirun, "-n", "2", PROGRAM],
                "another job meets there, PMIX_NAMESPACE=",
                "MASTER_PORT=29776",
                TMPDIR=str(folder / "other"),
                **variables,
            )
            go.touch()
            self.assertEqual(first.wait(timeout=RUN_TIMEOUT_S), 0, (folder / "err").read_text())
            self.assertEqual((folder / "out").read_text().count("all_reduce(ones)=2\n"), 2)


class MpichTest(MpirunTest, LauncherTest):
    mpirun = MPICH
    variables = "MPICH or Intel MPI (PMI_SIZE"


if __name__ == "__main__":
    main()
