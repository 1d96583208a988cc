"""Expects ranks that a real mpirun starts on several nodes, without a word about where they meet
and without a secret, to agree on both in its key space. The nodes are names of this machine.

python test_mpi_nodes.py PROGRAM UNISONO, which lies beside launched_mpi_program
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import unittest
from pathlib import Path

from support import PROGRAM, UNISONO, LauncherTest, main, need, need_namespaces

MPI_PROGRAM = str(Path(PROGRAM).with_name("launched_mpi_program"))
# Replaces ssh: agent [options] HOST command...
AGENT = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -l|-p|-o) shift 2;; *) shift;; esac; done
host=$1; shift
exec unshare --uts sh -c 'hostname "$1"; shift; exec sh -c "$*"' sh "$host" "$@"
"""
# Each rank has a separate node id, so that no data goes through shared memory.
APART = ["sh", "-c", 'UNISONO_NODE_ID=node${OMPI_COMM_WORLD_RANK:-$PMI_RANK} exec "$@"', "sh"]
CLOSING = ["import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"]
TOLD = "their secret is in the launcher's key space"


class NodesTest:
    """What holds for every mpirun; each runs it as its own test."""

    kind: str
    library: str

    def mpirun(self, *words: str) -> list[str]:
        """The command that starts the words on nodes a, with one rank, and b."""
        raise NotImplementedError

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        # A home folder without a secret.
        self.variables = {"HOME": folder.name}

    def expect_told(self, said: str) -> None:
        self.assertIn(f"{TOLD} ({self.kind})", said)
        self.assertRegex(said, r" ranks meet at [0-9a-f.:]+:\d+;")

    def test_ranks_agree_by_themselves(self):
        for size in (2, 3):
            command = self.mpirun("-n", str(size), *APART, PROGRAM)
            self.expect_told(self.expect_world(size, command, **self.variables))

    def test_launchers_of_ours_make_one_world(self):
        ours = [UNISONO, "run", "-n", "2", PROGRAM]
        self.expect_world(4, self.mpirun("-n", "2", *APART, *ours), **self.variables)

    def test_a_secret_at_home_comes_behind(self):
        (self.folder / ".unisono").mkdir()
        secret = self.folder / ".unisono" / "secret"
        secret.touch(0o600)
        secret.write_text("at home\n")
        self.expect_told(self.expect_world(2, self.mpirun("-n", "2", PROGRAM), **self.variables))

    def test_a_port_and_the_ports_of_a_firewall_are_kept_to(self):
        command = self.mpirun("-n", "2", PROGRAM)
        said = self.expect_world(2, command, MASTER_PORT="61777", **self.variables)
        self.assertIn(":61777; their secret", said)
        said = self.expect_world(2, command, UNISONO_PORTS="47100-47140", **self.variables)
        self.assertRegex(said, r":471[0-4]\d; their secret")

    def test_what_the_user_sets_leaves_the_key_space_alone(self):
        given = {"MASTER_ADDR": "127.0.0.1", "UNISONO_SECRET": "0123456789abcdef"} | self.variables
        command = self.mpirun("-n", "2", *APART, *self.cut_off(PROGRAM))
        said = self.expect_world(2, command, MASTER_PORT="29778", **given)
        self.assertIn("2 ranks meet at 127.0.0.1:29778\n", said)
        # One of the two settings alone is not sufficient.
        command = self.mpirun("-n", "2", *APART, PROGRAM)
        said = self.expect_world(2, command, UNISONO_SECRET="0123456789abcdef", **self.variables)
        self.assertRegex(said, r"2 ranks meet at \S+:\d+\n")
        said = self.expect_world(
            2, command, MASTER_ADDR="127.0.0.1", MASTER_PORT="29779", **self.variables
        )
        self.assertIn(f"2 ranks meet at 127.0.0.1:29779; {TOLD}", said)

    def test_without_a_way_to_the_launcher_an_error_says_why(self):
        self.expect_error(
            self.mpirun("-n", "2", *self.cut_off(PROGRAM)),
            f"key space ({self.kind}) can't be used",
            "Set MASTER_ADDR for all ranks",
            **self.variables,
        )

    def test_a_secret_for_a_part_of_the_ranks_is_an_error(self):
        only_first = 'test "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 && export UNISONO_SECRET=abc;'
        self.expect_error(
            self.mpirun("-n", "2", "sh", "-c", only_first + ' exec "$0"', PROGRAM),
            "rank 1 has no UNISONO_SECRET or UNISONO_SECRET_FILE, and rank 0 has one",
            # Some versions of mpirun do not end the other ranks when a rank fails.
            UNISONO_TIMEOUT_SECONDS="3",
            **self.variables,
        )

    def test_a_program_may_use_the_mpi_too(self):
        try:
            ctypes.CDLL(self.library)
        except OSError as error:
            raise unittest.SkipTest(f"not installed: {error}") from None
        for when in ("before", "after", "never"):
            with self.subTest(when):
                command = self.mpirun("-n", "2", *APART, MPI_PROGRAM, self.library, when)
                done = self.run_command(command, **self.variables)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.expect_told(done.stderr)
                self.assertEqual(done.stdout.count("all_reduce(ones)=2\n"), 4, done.stdout)
                calls = 0 if when == "never" else 2
                for call in ("MPI_Init", "MPI_Finalize"):
                    self.assertEqual(done.stdout.count(call + " done\n"), calls, done.stdout)


class OpenMpiTest(NodesTest, LauncherTest):
    kind = "PMIx"
    library = "libmpi.so.40"

    def setUp(self):
        super().setUp()
        need("mpirun.openmpi")
        need_namespaces()
        self.agent = self.folder / "agent.sh"
        self.agent.write_text(AGENT)
        self.agent.chmod(0o755)

    def mpirun(self, *words: str) -> list[str]:
        options = ["--allow-run-as-root", "--mca", "plm_rsh_agent", str(self.agent)]
        return ["mpirun.openmpi", *options, "--host", "a:1,b:2", *words]

    def cut_off(self, program: str) -> list[str]:
        """Starts the program without what leads to the launcher's daemon."""
        unset = 'for name in $(env | sed -n "s/^\\(PMIX_SERVER_[^=]*\\)=.*/\\1/p"); do '
        return ["sh", "-c", unset + 'unset $name; done; exec "$0"', program]


class MpichTest(NodesTest, LauncherTest):
    kind = "PMI"
    library = "libmpich.so.12"

    def setUp(self):
        super().setUp()
        need("mpirun.mpich")

    def mpirun(self, *words: str) -> list[str]:
        return ["mpirun.mpich", "-launcher", "fork", "-hosts", "a,b", "-ppn", "1", *words]

    def cut_off(self, program: str) -> list[str]:
        """Starts the program without the launcher's descriptor."""
        return [sys.executable, "-c", *CLOSING, program]


if __name__ == "__main__":
    main()
