"""A network of its own, in which jobs may have the ports that they have in a cluster, and in which
the processes of one machine pass for nodes.
"""

from __future__ import annotations

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
        if self.holder.stdout.readline() != "up\n":
            self.stop()
            raise AssertionError("there is no network namespace")

    def set_names(self, *names: str) -> None:
        """The names that are known from now on, also to what runs."""
        # Written in place: the file is bound to where processes look for it.
        self.hosts.write_text(" ".join(["127.0.0.1 localhost", *names]) + "\n")

    def command(self, host: str, words: list[str]) -> list[str]:
        """What starts the words on a node of that name."""
        network = f"--net=/proc/{self.holder.pid}/ns/net"
        apart = ["unshare", "--uts", "--mount", "sh", "-c", ENTER, "sh", host, str(self.hosts)]
        return ["nsenter", network, *apart, *words]

    def stop(self) -> None:
        self.holder.communicate()
        self.folder.cleanup()
