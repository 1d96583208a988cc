"""What processes of tests find around them: an environment, a port."""

from __future__ import annotations

import os
import re
import socket

OF_JOBS = re.compile(
    r"HOME$|UNISONO_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|TORCHELASTIC_|OMPI_|PMI|SLURM_"
)


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what belongs to a job that the test may itself run in."""
    return {k: v for k, v in os.environ.items() if not OF_JOBS.match(k)} | variables


class ReservedPort:
    """A port that nobody else gets, and that a program started later can listen on."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("127.0.0.1", 0))
        self.number = self.socket.getsockname()[1]

    def close(self) -> None:
        self.socket.close()
