"""Expects the commands of deploy/pdsh to make one world, with the real pdsh and clush, and with a
stand-in for ssh.

python test_pdsh.py PROGRAM UNISONO
"""

from __future__ import annotations

import os
import re
import shlex
import tempfile
from pathlib import Path

from own_network import OwnNetwork
from support import DEPLOY, PROGRAM, UNISONO, LauncherTest, main, need

NODES = ["node1", "node2", "node3"]
# ssh [options] HOST command...
SSH = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do case $1 in -l|-p|-o) shift 2;; *) shift;; esac; done
host=$1; shift
cd / && exec %s "$*"
"""
TRAIN = """#!/bin/sh
echo "$(hostname) is node $GROUP_RANK"
exec %s
"""


def commands(tool: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", (DEPLOY / "pdsh/README.md").read_text(), re.M | re.S)
    return [block for block in blocks if block.startswith(tool + " ")]


class PdshTest(LauncherTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        self.network = OwnNetwork()
        self.addCleanup(self.network.stop)
        self.network.set_names(*NODES)
        on_node = shlex.join(self.network.command("HOST", ["sh", "-c"]))
        self.write_program("ssh", SSH % on_node.replace("HOST", '"$host"'))
        self.write_program("train", TRAIN % shlex.quote(PROGRAM))
        secret = self.folder / ".unisono/secret"
        secret.parent.mkdir(mode=0o700)
        secret.touch(0o600)
        secret.write_text("0123456789abcdef\n")

    def write_program(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)

    def call(self, command: str):
        path = f"{self.folder}:{Path(UNISONO).parent}:{os.environ['PATH']}"
        return self.run_command(
            ["sh", "-c", f"cd {self.folder} && {command}"], PATH=path, HOME=str(self.folder)
        )

    def expect_nodes(self, command: str, nodes: list[str]) -> None:
        done = self.call(command)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        size = 2 * len(nodes)
        lines = [line.split(": ", 1) for line in done.stdout.splitlines()]
        said = [text for _, text in lines if text.startswith("(")]
        expected = [f"({rank},{size}) all_reduce(ones)={size}" for rank in range(size)]
        self.assertEqual(sorted(said), sorted(expected), done.stderr)
        told = {(label, text) for label, text in lines if " is node " in text}
        if "%n" in command:
            numbered = {(node, f"{node} is node {k}") for k, node in enumerate(nodes)}
            self.assertEqual(told, numbered)
        self.assertEqual({text.split()[0] for _, text in told}, set(nodes))

    def expect_all(self, tool: str) -> None:
        need(tool)
        listed = commands(tool)
        self.assertEqual(len(listed), 3)
        for command in listed:
            for nodes in [NODES, ["node3", "node1"]] if "hosts" in command else [NODES]:
                (self.folder / "hosts").write_text("".join(f"{node}\n" for node in nodes))
                with self.subTest(command, nodes=nodes):
                    self.expect_nodes(command, nodes)

    def test_pdsh(self):
        self.expect_all("pdsh")

    def test_clush(self):
        self.expect_all("clush")

    def test_the_exit_code_of_a_rank_is_that_of_the_command(self):
        self.write_program("train", "#!/bin/sh\n[ $RANK = 3 ] && exit 9\nexec sleep 100\n")
        for tool in ("pdsh", "clush"):
            need(tool)
            for command in commands(tool)[:2]:
                done = self.call(command)
                self.assertEqual(done.returncode, 9, done.stdout + done.stderr)


if __name__ == "__main__":
    main()
