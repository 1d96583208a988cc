"""What the tests of launchers share: a clean environment, a run with a deadline, and skips."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
UNISONO = sys.argv.pop(1)  # The program `unisono`, for launchers that start ours.
DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RUN_TIMEOUT_S = 60
SKIPPED = 77
LAUNCHERS = re.compile(r"(OMPI|PMI|PMIX|PRTE|HYDRA|HYDI|I_MPI|MPI|SLURM|PET|UNISONO|TORCHELASTIC)_")
# Open MPI fails where jobs of several tests make their common folder at the same time.
OWN_FOLDER = tempfile.TemporaryDirectory(prefix="unisono-launchers-")
EXPLICIT = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "PYTORCH_VERSION"}


def clean_environment(**variables: str) -> dict[str, str]:
    """The test's own environment, without what tells a process that it is a rank."""
    kept = {k: v for k, v in os.environ.items() if not LAUNCHERS.match(k) and k not in EXPLICIT}
    return kept | variables


def need(*programs: str) -> None:
    """Skips the test unless all programs are installed."""
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        raise unittest.SkipTest(f"not installed: {', '.join(missing)}")


def need_namespaces() -> None:
    """Skips the test unless programs may get a host name and a hosts file of their own."""
    need("unshare")
    tried = subprocess.run(
        ["unshare", "--uts", "--mount", "true"], capture_output=True, text=True, check=False
    )
    if tried.returncode != 0:
        raise unittest.SkipTest(f"takes root, for namespaces: {tried.stderr.strip()}")


class LauncherTest(unittest.TestCase):
    """A test that starts ranks by a command."""

    timeout_s = RUN_TIMEOUT_S

    def run_command(self, command: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            env=clean_environment(**{"TMPDIR": OWN_FOLDER.name, **variables}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.timeout_s,
            check=False,
        )

    def expect_world(self, size: int, command: list[str], **variables: str) -> str:
        """Expects one world of `size` ranks; returns what was written to stderr."""
        done = self.run_command(command, **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        lines = [line for line in done.stdout.splitlines() if line.startswith("(")]
        expected = [f"({rank},{size}) all_reduce(ones)={size}" for rank in range(size)]
        self.assertEqual(sorted(lines), sorted(expected), done.stdout + done.stderr)
        return done.stderr

    def expect_error(self, command: list[str], *complaints: str, **variables: str) -> None:
        done = self.run_command(command, **variables)
        self.assertNotEqual(done.returncode, 0, done.stdout + done.stderr)
        for complaint in complaints:
            self.assertIn(complaint, done.stdout + done.stderr)


def main() -> None:
    """As unittest.main(); the exit code says when all was skipped."""
    done = unittest.main(exit=False).result
    if done.wasSuccessful() and done.testsRun <= len(done.skipped):
        for test, reason in done.skipped:
            print(f"skipped {test}: {reason}")
        sys.exit(SKIPPED)
    sys.exit(not done.wasSuccessful())
