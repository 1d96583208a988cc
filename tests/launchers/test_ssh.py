"""Expects `unisono run --hosts` to run jobs over the real OpenSSH. The hosts are network namespaces
of this machine, each with a server, a name and an address of its own.

python test_ssh.py PROGRAM UNISONO
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

from support import PROGRAM, UNISONO, LauncherTest, clean_environment, main, need

ADDRESSES = ["10.77.3.1", "10.77.3.2"]
HOSTS = ",".join(f"{address}:1" for address in ADDRESSES)
# Time from a cable failure to the end of the last process: 15 s of silence, the ranks' grace and a
# reserve.
LOSS_TIMEOUT_S = 45
# The hosts are one machine. The node ids make ranks treat the hosts as two machines.
APART = 'UNISONO_NODE_ID=$(hostname) exec "$@"'
SERVER = """
Port 22
ListenAddress {address}
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
AcceptEnv NOTHING
"""
CLIENT = """
IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
StrictHostKeyChecking accept-new
BatchMode yes
LogLevel ERROR
"""


def sh(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")


class Cluster:
    """Two namespaces, a cable between them, and an sshd in each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = [f"unisono-{os.getpid()}-{i}" for i in (1, 2)]
        self.servers: list[subprocess.Popen] = []
        self.config = folder / "config"

    def start(self) -> None:
        for name in self.names:
            sh("ip", "netns", "add", name)
        first, second = self.names
        sh("ip", "-n", first, "link", "add", "eth0", "type", "veth", "peer", "name", "eth0",
           "netns", second)  # fmt: skip
        for name, address in zip(self.names, ADDRESSES, strict=True):
            sh("ip", "-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            sh("ip", "-n", name, "link", "set", "eth0", "up")
            sh("ip", "-n", name, "link", "set", "lo", "up")
        for key in ("key", "host_key"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / key))
        self.config.write_text(CLIENT.format(folder=self.folder))
        Path("/run/sshd").mkdir(exist_ok=True)
        for i, address in enumerate(ADDRESSES):
            self.serve(i, address)

    def serve(self, i: int, address: str) -> None:
        config = self.folder / f"sshd_{i}"
        config.write_text(SERVER.format(folder=self.folder, address=address))
        start = f'hostname host{i}; exec /usr/sbin/sshd -D -e -f "{config}"'
        with (self.folder / f"sshd_{i}.log").open("w") as log:
            command = ["ip", "netns", "exec", self.names[i], "unshare", "--uts", "sh", "-c", start]
            self.servers.append(subprocess.Popen(command, stderr=log, stdin=subprocess.DEVNULL))
        deadline = time.monotonic() + 20
        while "Server listening" not in (self.folder / f"sshd_{i}.log").read_text():
            if time.monotonic() > deadline or self.servers[-1].poll() is not None:
                raise RuntimeError((self.folder / f"sshd_{i}.log").read_text())
            time.sleep(0.02)

    def stop(self) -> None:
        for server in self.servers:
            server.terminate()
            server.wait()
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False)


def need_servers() -> None:
    need("ssh", "ssh-keygen", "ip", "unshare")
    if not Path("/usr/sbin/sshd").exists():
        raise unittest.SkipTest("not installed: openssh-server")
    if os.geteuid() != 0:
        raise unittest.SkipTest("takes root, for network namespaces")


class SshTest(LauncherTest):
    cluster: Cluster

    @classmethod
    def setUpClass(cls):
        need_servers()
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.cluster = Cluster(Path(folder))
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.start()

    def command(self, *words: str, hosts: str = HOSTS, options: tuple[str, ...] = ()) -> list[str]:
        """`unisono run` on the first host."""
        ssh = f"ssh -F {self.cluster.config}"
        run = [UNISONO, "run", "--hosts", hosts, "--rsh", ssh, *options, *words]
        return ["ip", "netns", "exec", self.cluster.names[0], *run]

    def start(self, script: str) -> subprocess.Popen[str]:
        run = subprocess.Popen(
            self.command("sh", "-c", script),
            env=clean_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(run.kill)
        return run

    def start_two_that_hang(self) -> tuple[subprocess.Popen[str], list[int]]:
        """With the ranks' process ids."""
        run = self.start("echo $$; exec sleep 300")
        lines = [run.stdout.readline() for _ in ADDRESSES]
        pids = [int(re.sub(r".*\] ", "", line)) for line in sorted(lines)]
        return run, pids

    def expect_gone(self, pids: list[int], timeout_s: float = 20) -> None:
        deadline = time.monotonic() + timeout_s
        while left := [pid for pid in pids if Path(f"/proc/{pid}").exists()]:
            if time.monotonic() > deadline:
                for pid in left:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self.fail(f"these ranks are left: {left}")
            time.sleep(0.05)

    def test_ranks_meet(self):
        done = self.run_command(self.command("sh", "-c", APART, "sh", PROGRAM))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        expected = [f"[{ADDRESSES[i]}:{i}] ({i},2) all_reduce(ones)=2" for i in (0, 1)]
        lines = [line for line in done.stdout.splitlines() if "all_reduce" in line]
        self.assertEqual(sorted(lines), expected, done.stdout + done.stderr)

    def test_ranks_have_the_folder_and_the_variables_named(self):
        script = "echo $(hostname) $PWD $SHAPE ${COLOUR-none} $UNISONO_TIMEOUT_SECONDS"
        command = self.command("sh", "-c", script, options=("-x", "SHAPE"))
        variables = {"SHAPE": "round", "COLOUR": "red", "UNISONO_TIMEOUT_SECONDS": "77"}
        done = self.run_command(command, **variables)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        # Uses /bin/pwd, because the shell's path may contain links.
        here = os.path.realpath(Path.cwd())
        lines = sorted(done.stdout.splitlines())
        for i, line in enumerate(lines):
            self.assertEqual(line, f"[{ADDRESSES[i]}:{i}] host{i} {here} round none 77")

    def test_no_command_line_has_the_secret(self):
        # printf is a shell builtin, and grep reads the secret from a file.
        script = (
            'file="$1.$RANK"; printf %s "$UNISONO_SECRET" >$file; '
            "grep -lFf $file /proc/[0-9]*/cmdline; wc -c <$file"
        )
        name = str(self.cluster.folder / "secret")
        done = self.run_command(self.command("sh", "-c", script, "sh", name))
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        expected = [f"[{ADDRESSES[i]}:{i}] 64" for i in (0, 1)]
        self.assertEqual(sorted(done.stdout.splitlines()), expected)

    def test_the_failed_ranks_exit_code_and_report_come_back(self):
        script = "test $RANK = 0 && exec sleep 300; echo it is broken >&2; exit 7"
        done = self.run_command(self.command("sh", "-c", script))
        self.assertEqual(done.returncode, 7, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"rank 1 \(10.77.3.2, pid \d+\) failed after .*: exit code 7")
        self.assertIn("it is broken", done.stderr)

    def test_a_login_that_is_refused_is_the_cause(self):
        config = self.cluster.folder / "stranger"
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", f"{config}_key"], check=True
        )
        config.write_text(self.cluster.config.read_text().replace("/key\n", "/stranger_key\n"))
        command = self.command("true")
        command[command.index("--rsh") + 1] = f"ssh -F {config}"
        done = self.run_command(command)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("unisono could not be started there", done.stderr)
        self.assertIn("Permission denied", done.stderr)

    def test_a_host_that_is_not_there_is_the_cause(self):
        command = self.command("sleep", "300", hosts=f"{ADDRESSES[0]},10.77.3.9")
        done = self.run_command(command)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("10.77.3.9: unisono could not be started there", done.stderr)

    def test_ctrl_c_ends_all(self):
        run, pids = self.start_two_that_hang()
        run.send_signal(signal.SIGINT)
        _, said = run.communicate(timeout=30)
        self.assertEqual(run.returncode, 128 + signal.SIGINT, said)
        self.expect_gone(pids)

    def test_nothing_is_left_when_the_launcher_is_killed(self):
        run, pids = self.start_two_that_hang()
        run.kill()
        run.communicate(timeout=30)
        self.expect_gone(pids)

    def test_a_session_that_is_lost_ends_all(self):
        run, pids = self.start_two_that_hang()
        self.kill_session_above(pids[1])
        _, said = run.communicate(timeout=30)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("10.77.3.2: its launcher is lost", said)
        self.expect_gone(pids)

    def kill_session_above(self, pid: int) -> None:
        while True:
            status = Path(f"/proc/{pid}/status").read_text()
            pid = int(re.search(r"PPid:\s+(\d+)", status)[1])
            self.assertGreater(pid, 1, "no sshd above the rank")
            if Path(f"/proc/{pid}/comm").read_text().strip().startswith("sshd"):
                os.kill(pid, signal.SIGKILL)
                return

    def test_a_cable_that_fails_ends_all(self):
        run, pids = self.start_two_that_hang()
        cable = ["ip", "-n", self.cluster.names[1], "link", "set", "eth0"]
        sh(*cable, "down")
        self.addCleanup(sh, *cable, "up")
        _, said = run.communicate(timeout=LOSS_TIMEOUT_S)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("10.77.3.2", said)
        self.expect_gone(pids, LOSS_TIMEOUT_S)


if __name__ == "__main__":
    main()
