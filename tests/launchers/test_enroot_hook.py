"""Expects the hook of deploy/enroot to write what PyTorch's containers have under Slurm, and ranks
that get it to find each other.

python test_enroot_hook.py PROGRAM UNISONO
"""

from __future__ import annotations

import contextlib
import random
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

from support import DEPLOY, PROGRAM, RUN_TIMEOUT_S, LauncherTest, clean_environment, main

HOOK = DEPLOY / "enroot/50-slurm-torch.sh"
IMAGE = "PYTORCH_VERSION=2.1.0\nPATH=/usr/bin\n"
TASK = {
    "SLURM_JOB_ID": "4540",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NODELIST": "node[003-004]",
    "SLURM_NTASKS": "8",
    "SLURM_NNODES": "2",
    "SLURM_PROCID": "5",
    "SLURM_LOCALID": "1",
}
WRITTEN = {
    "MASTER_ADDR": "node003",
    "MASTER_PORT": "61004",
    "WORLD_SIZE": "8",
    "RANK": "5",
    "LOCAL_RANK": "1",
    "OMP_NUM_THREADS": "1",
}
FIRST_HOSTS = {
    "node[1-3,7],gpu05": "node1",
    "node7": "node7",
    "gpu05,node[1-3]": "gpu05",
    "n[09-11]": "n09",
    "n[7,1-3]": "n7",
    "rack[2-3]node[05-06]": "rack2node05",
    "rack-2-node[4],other-ib": "rack-2-node4",
    "10.1.0.7,10.1.0.8": "10.1.0.7",
}


def free_port() -> int:
    """One of those that are made of a job's number."""
    while True:
        port = random.randint(61000, 65535)
        with socket.socket() as listener, contextlib.suppress(OSError):
            listener.bind(("127.0.0.1", port))
            return port


def shells() -> list[str]:
    """Those that may be the system's sh."""
    return [shell for shell in ("dash", "bash", "busybox") if shutil.which(shell)]


class EnrootHookTest(LauncherTest):
    def call_hook(
        self, image: str, variables: dict[str, str], *shell: str
    ) -> tuple[dict[str, str], str]:
        """The container's variables after the hook, but for the image's own, and its complaints."""
        with tempfile.TemporaryDirectory() as folder:
            environ = Path(folder) / "environ"
            environ.write_text(image)
            done = subprocess.run(
                [*shell, str(HOOK)],
                env=clean_environment(ENROOT_ENVIRON=str(environ), **variables),
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            text = environ.read_text()
        self.assertEqual(done.returncode != 0, done.stderr != "", done.stderr)
        self.assertTrue(text.startswith(image), text)
        lines = text.removeprefix(image).splitlines()
        self.assertEqual(len({line.partition("=")[0] for line in lines}), len(lines), text)
        return dict(line.split("=", 1) for line in lines), done.stderr

    def expect(self, wanted: dict[str, str], image: str, variables: dict[str, str]) -> None:
        for shell in shells():
            words = [shell, "sh"] if shell == "busybox" else [shell]
            self.assertEqual(self.call_hook(image, variables, *words), (wanted, ""), shell)

    def test_variables_of_a_task(self):
        self.assertEqual(self.call_hook(IMAGE, TASK), (WRITTEN, ""))
        self.expect(WRITTEN, IMAGE, TASK)
        # The user's environment has the variable in place of the image.
        self.expect(WRITTEN, "", TASK | {"PYTORCH_VERSION": "2.1.0"})

    def test_the_first_host_of_a_list(self):
        for nodes, host in FIRST_HOSTS.items():
            with self.subTest(nodes):
                wanted = WRITTEN | {"MASTER_ADDR": host}
                self.expect(wanted, IMAGE, TASK | {"SLURM_STEP_NODELIST": nodes})

    def test_slurm_itself_has_the_same_first_host(self):
        if shutil.which("scontrol") is None:
            self.skipTest("not installed: scontrol")
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
            conf.write("ClusterName=one\nSlurmctldHost=localhost\n")
            conf.flush()
            for nodes, host in FIRST_HOSTS.items():
                done = self.run_command(
                    ["scontrol", "show", "hostnames", nodes], SLURM_CONF=conf.name
                )
                self.assertEqual(done.stdout.splitlines()[:1], [host], done.stderr)

    def test_a_list_that_is_none_is_an_error(self):
        for nodes in ("node[1-3", "node]1"):
            written, said = self.call_hook(IMAGE, TASK | {"SLURM_STEP_NODELIST": nodes})
            self.assertEqual(written, {})
            self.assertIn(f"not understood: SLURM_STEP_NODELIST={nodes}\n", said)

    def test_the_port_is_in_the_range_whatever_the_job(self):
        for job, port in {"1": 61001, "4535": 65535, "4536": 61000, "123456789": 61477}.items():
            self.expect(WRITTEN | {"MASTER_PORT": str(port)}, IMAGE, TASK | {"SLURM_JOB_ID": job})

    def test_threads_are_left_alone_unless_tasks_share_a_node(self):
        without = {name: value for name, value in WRITTEN.items() if name != "OMP_NUM_THREADS"}
        self.expect(without | {"WORLD_SIZE": "2"}, IMAGE, TASK | {"SLURM_NTASKS": "2"})
        # The size of the step counts, not the size of the job.
        step = {"SLURM_STEP_NUM_TASKS": "8", "SLURM_STEP_NUM_NODES": "8"}
        self.expect(without, IMAGE, TASK | step)

    def test_what_is_set_stays(self):
        for name in WRITTEN:
            others = {key: value for key, value in WRITTEN.items() if key != name}
            self.expect(others, IMAGE + f"{name}=mine\n", TASK)
            self.expect(others, IMAGE + f"{name}=\n", TASK | {name: "the user's"})
            self.expect(WRITTEN | {name: "of $x \\"}, IMAGE, TASK | {name: "of $x \\"})
        # A variable with a longer name is another variable.
        self.expect(WRITTEN, IMAGE + "MY_RANK=1\n", TASK)

    def test_other_containers_and_processes_are_left_alone(self):
        self.expect({}, "PATH=/usr/bin\n", TASK)
        self.expect({}, IMAGE, {})
        script = {name: value for name, value in TASK.items() if "STEP" not in name}
        self.expect({}, IMAGE, script)

    def test_ranks_that_get_what_is_written_meet(self):
        size = 3
        job = str(free_port() - 61000)
        ranks = []
        for rank in range(size):
            task = {"SLURM_STEP_NODELIST": "localhost", "SLURM_NTASKS": str(size)}
            task |= {"SLURM_PROCID": str(rank), "SLURM_LOCALID": str(rank), "SLURM_JOB_ID": job}
            written, _ = self.call_hook(IMAGE, TASK | task)
            ranks.append(
                subprocess.Popen(
                    [PROGRAM],
                    env=clean_environment(**written),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
        for rank, process in enumerate(ranks):
            out, err = process.communicate(timeout=RUN_TIMEOUT_S)
            self.assertEqual(out, f"({rank},{size}) all_reduce(ones)={size}\n", err)


if __name__ == "__main__":
    main()
