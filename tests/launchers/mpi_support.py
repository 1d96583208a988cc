"""What the tests of backend mpi share: how each MPI starts ranks."""

from __future__ import annotations

import subprocess
import unittest

from support import UNISONO

# Open MPI rejects root and more ranks than cores without these options.
OPEN_MPI = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"]
MPICH = ["mpirun.mpich"]


def need_module(name: str) -> None:
    """Skips the test unless unisono was built for that MPI."""
    said = subprocess.run([UNISONO, "backends"], capture_output=True, text=True, check=True).stdout
    line = next(line for line in said.splitlines() if line.startswith("mpi:"))
    if name not in line or "can't be used here" in line:
        raise unittest.SkipTest(f"unisono was built without {name}: {line}")
