"""A Slurm cluster of three nodes in this machine, of its own configuration, ports and folder."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from support import clean_environment, need, need_namespaces

NODES = ("node1", "node2", "node3")
CPUS = 4
START_TIMEOUT_S = 30
END_TIMEOUT_S = 10
# Slurm replaces %n by the node's name.
CONFIGURATION = """
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge/socket
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SlurmdParameters=config_overrides
SwitchType=switch/none
MailProg=/bin/true
ReturnToService=2
TmpFS={folder}/tmp/%n
KillWait=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool/%n
SlurmctldPidFile={folder}/pid/slurmctld
SlurmdPidFile={folder}/pid/%n
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/%n
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
NODE = (
    "NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} Boards=1 "
    "SocketsPerBoard=1 CoresPerSocket={cpus} ThreadsPerCore=1 RealMemory=100 State=UNKNOWN\n"
)
# Separate host names make programs treat the nodes as different machines. The hosts file resolves
# these names.
START_NODE = """
hostname "$1" && mount --bind "$2/hosts" /etc/hosts && exec slurmd -f "$2/slurm.conf" -N "$1" -c
"""


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        listeners = [stack.enter_context(socket.socket()) for _ in range(count)]
        for listener in listeners:
            listener.bind(("127.0.0.1", 0))
        return [listener.getsockname()[1] for listener in listeners]


def has_ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def wait_until(condition, timeout_s: float) -> bool:
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


class SlurmCluster:
    """Started when it is made; stop() ends it and removes its folder, also after a failure."""

    def __init__(self) -> None:
        need("slurmctld", "slurmd", "srun", "munged")
        need_namespaces()
        # All users reach munged's socket through the folder.
        self.folder = Path(tempfile.mkdtemp(prefix="unisono-slurm-"))
        self.folder.chmod(0o755)
        self.environment = clean_environment(SLURM_CONF=str(self.folder / "slurm.conf"))
        try:
            self.start()
        except BaseException:
            self.stop()
            raise

    def start(self) -> None:
        for name in ("munge", "state", "log", "pid", *(f"spool/{n}" for n in NODES)):
            (self.folder / name).mkdir(parents=True)
        for node in NODES:
            (self.folder / "tmp" / node).mkdir(parents=True)
        self.write_configuration()
        hosts = Path("/etc/hosts").read_text() + "".join(f"127.0.0.1 {n}\n" for n in NODES)
        (self.folder / "hosts").write_text(hosts)
        munge = self.folder / "munge"
        (munge / "key").touch(0o600)
        (munge / "key").write_bytes(os.urandom(1024))
        self.command(
            "munged",
            *(f"--{name}-file={munge / name}" for name in ("key", "seed")),
            f"--socket={munge / 'socket'}",
            f"--pid-file={self.folder / 'pid' / 'munged'}",
            f"--log-file={self.folder / 'log' / 'munged'}",
        )
        self.command("slurmctld", "-f", str(self.folder / "slurm.conf"), "-c")
        for node in NODES:
            self.command(
                *("unshare", "--uts", "--mount", "sh", "-c", START_NODE),
                *("sh", node, str(self.folder)),
            )
        if not wait_until(self.is_idle, START_TIMEOUT_S):
            raise AssertionError(f"Slurm did not start: {self.logs()}")

    def write_configuration(self) -> None:
        host = socket.gethostname().partition(".")[0]
        ports = free_ports(1 + len(NODES))
        text = CONFIGURATION.format(host=host, folder=self.folder, ports=ports)
        for node, port in zip(NODES, ports[1:], strict=True):
            text += NODE.format(name=node, host=host, port=port, cpus=CPUS)
        (self.folder / "slurm.conf").write_text(text)

    def command(self, *words: str) -> str:
        done = subprocess.run(
            words,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=START_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{words}: {done.stderr}{self.logs()}")
        return done.stdout

    def is_idle(self) -> bool:
        states = self.command("sinfo", "-h", "-N", "-o", "%T").split()
        return states == ["idle"] * len(NODES)

    def logs(self) -> str:
        return "".join(
            f"\n{path.name}: {path.read_text()[-1000:]}" for path in self.folder.glob("log/*")
        )

    def stop(self) -> None:
        try:
            if (self.folder / "pid" / "slurmctld").exists():
                self.command("scancel", "--user=root")
                wait_until(lambda: self.command("squeue", "-h") == "", END_TIMEOUT_S)
        finally:
            for name in ("slurmctld", *NODES, "munged"):
                self.end_daemon(self.folder / "pid" / name)
            shutil.rmtree(self.folder, ignore_errors=True)

    def end_daemon(self, pid_file: Path) -> None:
        if not pid_file.exists():
            return
        pid = int(pid_file.read_text())
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                return
            if wait_until(lambda: has_ended(pid), END_TIMEOUT_S):
                return
