"""Expects the sample jobs of examples/kubernetes to be what the operators read, and ranks with the
operators' environment to find each other.

python test_kubernetes.py PROGRAM UNISONO
"""

from __future__ import annotations

import subprocess
import tempfile
import unittest
from pathlib import Path

from support import PROGRAM, UNISONO, LauncherTest, clean_environment, main, need_namespaces

try:
    import yaml
except ImportError:
    yaml = None

EXAMPLES = Path(__file__).resolve().parents[2] / "examples/kubernetes"
# A name of a service leads to an address in the cluster; here a hosts file does.
WITH_HOSTS = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


def load(name: str) -> dict:
    if yaml is None:
        raise unittest.SkipTest("not installed: Python's yaml (PyYAML)")
    return yaml.safe_load((EXAMPLES / name).read_text())


def secret_variables(container: dict) -> dict[str, str]:
    return {
        entry["name"]: "of " + entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in container["env"]
    }


class KubernetesTest(LauncherTest):
    def run_pods(
        self, pods: list[dict[str, str]], service: str, program: list[str]
    ) -> list[tuple[str, str]]:
        """What the program writes that is started for each pod's environment, in this machine."""
        with tempfile.TemporaryDirectory() as folder:
            hosts = Path(folder) / "hosts"
            hosts.write_text(f"127.0.0.1 localhost {service}\n")
            command = ["unshare", "--mount", "sh", "-c", WITH_HOSTS, "sh", str(hosts), *program]
            ranks = [
                subprocess.Popen(
                    command,
                    env=clean_environment(**pod),
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for pod in pods
            ]
            return [rank.communicate(timeout=60) for rank in ranks]

    def expect_pods_to_meet(self, pods: list[dict[str, str]], service: str) -> None:
        for rank, (out, err) in enumerate(self.run_pods(pods, service, [PROGRAM])):
            self.assertEqual(out, f"({rank},{len(pods)}) all_reduce(ones)={len(pods)}\n", err)

    def setUp(self):
        need_namespaces()

    def test_pods_of_a_pytorch_job_meet(self):
        job = load("pytorchjob.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v1", "PyTorchJob"))
        replicas = job["spec"]["pytorchReplicaSpecs"]
        self.assertEqual(list(replicas), ["Master", "Worker"])
        self.assertEqual(replicas["Master"]["replicas"], 1)
        size = sum(spec["replicas"] for spec in replicas.values())
        containers = [spec["template"]["spec"]["containers"] for spec in replicas.values()]
        for listed in containers:
            self.assertEqual([container["name"] for container in listed], ["pytorch"])
        container = containers[0][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        service = job["metadata"]["name"] + "-master-0"
        # As the operator's envvar.go and master.go set them.
        common = secret_variables(container) | {
            "MASTER_ADDR": service,
            "MASTER_PORT": str(ports["pytorchjob-port"]),
            "WORLD_SIZE": str(size),
            "PET_MASTER_ADDR": service,
            "PET_NNODES": str(size),
            "PET_NPROC_PER_NODE": "auto",
            "PYTHONUNBUFFERED": "1",
        }
        pods = [common | {"RANK": str(r), "PET_NODE_RANK": str(r)} for r in range(size)]
        self.expect_pods_to_meet(pods, service)

    def train_job(self) -> tuple[list[dict[str, str]], str]:
        """The pods' environments and the service."""
        job = load("trainjob.yaml")
        self.assertEqual(job["kind"], "TrainJob")
        trainer = job["spec"]["trainer"]
        name = job["metadata"]["name"]
        service = f"{name}-node-0-0.{name}"
        common = secret_variables(trainer) | {
            "PET_MASTER_ADDR": service,
            "PET_MASTER_PORT": "29400",
            "PET_NNODES": str(trainer["numNodes"]),
            "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
        }
        pods = [common | {"PET_NODE_RANK": str(r)} for r in range(trainer["numNodes"])]
        return pods, service

    def test_pods_of_a_train_job_meet(self):
        self.expect_pods_to_meet(*self.train_job())

    def test_launchers_of_ours_in_pods_of_a_train_job_meet(self):
        pods, service = self.train_job()
        size = 2 * len(pods)
        said = self.run_pods(pods, service, [UNISONO, "run", "-n", "2", PROGRAM])
        lines = sorted(line for out, _ in said for line in out.splitlines())
        wanted = [f"({rank},{size}) all_reduce(ones)={size}" for rank in range(size)]
        self.assertEqual(lines, wanted, said)


if __name__ == "__main__":
    main()
