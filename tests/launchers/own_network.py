"""A network of its own, in which jobs may have the ports that they have in a cluster, and in which
the processes of one machine pass for nodes.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from support import need, need_namespaces

START = 'ip link set lo up && echo up && exec sh -c "read line"'
ENTER = 'hostname "$1" && mount --bind "$2" /etc/hosts && shift 2 && exec "$@"'


class OwnNetwork:
    """Started when it is made; stop() ends it. Names lead to its loopback."""

    def __init__(self) -> None:
        need("ip", "nsenter")
        need_namespaces()
        self.folder = tempfile.TemporaryDirectory(prefix="unisono-network-")
        self.hosts = Path(self.folder.name) / "hosts"
        self.set_names()
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", START],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        # Until then the holder is in the network of the host.
        self.is_up = self.holder.stdout.readline() == "up\n"
        if not self.is_up:
            self.stop()
            raise AssertionError("there is no network namespace")

    def set_names(self, *names: str) -> None:
        """The names that are known from now on, also to what runs."""
        # Written in place, because the file is bind-mounted over /etc/hosts of running processes.
        self.hosts.write_text(" ".join(["127.0.0.1 localhost", *names]) + "\n")

    def command(self, host: str, words: list[str]) -> list[str]:
        """What starts the words on a node of that name."""
        network = f"--net=/proc/{self.holder.pid}/ns/net"
        apart = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, "sh", host, str(self.hosts)]
        return ["nsenter", network, *apart, *words]

    def processes(self) -> list[int]:
        """All that run in the network, but for the one that holds it."""
        network = os.readlink(f"/proc/{self.holder.pid}/ns/net")
        found = []
        for link in Path("/proc").glob("[0-9]*/ns/net"):
            with contextlib.suppress(OSError):
                if os.readlink(link) == network:
                    found.append(int(link.parts[2]))
        return [pid for pid in found if pid != self.holder.pid]

    def stop(self) -> None:
        # Kills processes that a failed test has left behind.
        for pid in self.processes() if self.is_up else ():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.holder.communicate()
        self.folder.cleanup()
