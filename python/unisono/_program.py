"""Starts the program `unisono` of the package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "bin" / "unisono"


def main() -> None:
    """Replaces this process by the program."""
    try:
        os.execv(PROGRAM, [str(PROGRAM), *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"unisono: can't start {PROGRAM}: {error.strerror}")
