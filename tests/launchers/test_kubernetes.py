"""Expects the jobs of deploy/kubernetes to be what the operators read, and the commands of their
pods, with the operators' environment, to find each other.

python test_kubernetes.py PROGRAM UNISONO
"""

from __future__ import annotations

import re
import subprocess
import time
import unittest

from own_network import OwnNetwork
from support import DEPLOY, PROGRAM, RUN_TIMEOUT_S, UNISONO, LauncherTest, clean_environment, main

try:
    import yaml
except ImportError:
    yaml = None

IMAGE = "/opt/unisono/bin/"
IN_IMAGE = {IMAGE + "unisono": UNISONO, IMAGE + "hello_all_reduce": PROGRAM}


def load_all(name: str) -> list[dict]:
    if yaml is None:
        raise unittest.SkipTest("not installed: Python's yaml (PyYAML)")
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


def load(name: str) -> dict:
    (document,) = load_all(name)
    return document


def command_of(container: dict, variables: dict[str, str]) -> list[str]:
    """The container's command as a node starts it, with the programs of this machine."""
    expanded = [
        re.sub(r"\$\((\w+)\)", lambda found: variables[found[1]], word)
        for word in container["command"]
    ]
    return [IN_IMAGE.get(word, word) for word in expanded]


def secret_variables(container: dict) -> dict[str, str]:
    return {
        entry["name"]: "of " + entry["valueFrom"]["secretKeyRef"]["name"]
        for entry in container["env"]
    }


class KubernetesTest(LauncherTest):
    def setUp(self):
        self.network = OwnNetwork()
        self.addCleanup(self.network.stop)

    def start_pod(self, name: str, pod: dict[str, str], command: list[str]) -> subprocess.Popen:
        process = subprocess.Popen(
            self.network.command(name, command),
            env=clean_environment(**pod),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def run_pods(
        self, pods: list[dict[str, str]], service: str, command: list[str]
    ) -> list[tuple[str, str]]:
        """What the command writes that is started for each pod's environment, in this machine."""
        self.network.set_names(service)
        started = [self.start_pod(f"pod-{number}", pod, command) for number, pod in enumerate(pods)]
        return [pod.communicate(timeout=RUN_TIMEOUT_S) for pod in started]

    def expect_pods_to_meet(
        self, pods: list[dict[str, str]], service: str, command: list[str]
    ) -> None:
        self.assertEqual(command, [PROGRAM])
        for rank, (out, err) in enumerate(self.run_pods(pods, service, command)):
            self.assertEqual(out, f"({rank},{len(pods)}) all_reduce(ones)={len(pods)}\n", err)

    def expect_one_world(self, size: int, said: list[tuple[str, str]]) -> None:
        lines = sorted(line for out, _ in said for line in out.splitlines())
        wanted = [f"({rank},{size}) all_reduce(ones)={size}" for rank in range(size)]
        self.assertEqual(lines, wanted, said)

    def test_pods_of_a_pytorch_job_meet(self):
        job = load("pytorchjob.yaml")
        self.assertEqual((job["apiVersion"], job["kind"]), ("kubeflow.org/v1", "PyTorchJob"))
        replicas = job["spec"]["pytorchReplicaSpecs"]
        self.assertEqual(list(replicas), ["Master", "Worker"])
        self.assertEqual(replicas["Master"]["replicas"], 1)
        for replica in replicas.values():
            policies = {"Always", "OnFailure", "Never", "ExitCode"}
            self.assertIn(replica["restartPolicy"], policies)
        size = sum(spec["replicas"] for spec in replicas.values())
        containers = [spec["template"]["spec"]["containers"] for spec in replicas.values()]
        for listed in containers:
            self.assertEqual([container["name"] for container in listed], ["pytorch"])
        container = containers[0][0]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        service = job["metadata"]["name"] + "-master-0"
        # The operator's envvar.go and master.go set these variables.
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
        self.expect_pods_to_meet(pods, service, command_of(container, common))

    def train_job(self) -> tuple[list[dict[str, str]], str, list[str]]:
        """The pods' environments, the service, and the pods' command."""
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
        return pods, service, command_of(trainer, common)

    def test_pods_of_a_train_job_meet(self):
        self.expect_pods_to_meet(*self.train_job())

    def test_launchers_of_ours_in_pods_of_a_train_job_meet(self):
        pods, service, command = self.train_job()
        said = self.run_pods(pods, service, [UNISONO, "run", "-n", "2", *command])
        self.expect_one_world(2 * len(pods), said)

    def start_indexed_job(self, numbers: list[int]) -> list[subprocess.Popen]:
        """The pods of these numbers, before anybody knows a name of theirs."""
        _, job = load_all("job.yaml")
        container = job["spec"]["template"]["spec"]["containers"][0]
        name = job["metadata"]["name"]
        started = []
        for number in numbers:
            variables = secret_variables(container) | {"JOB_COMPLETION_INDEX": str(number)}
            command = command_of(container, variables)
            started.append(self.start_pod(f"{name}-{number}", variables, command))
        return started

    def test_launchers_in_pods_of_an_indexed_job_meet(self):
        self.network.set_names("hello-0.hello")
        pods = self.start_indexed_job([0, 1, 2, 3])
        self.expect_one_world(8, [pod.communicate(timeout=RUN_TIMEOUT_S) for pod in pods])

    def test_pods_wait_for_the_name_of_the_first(self):
        others = self.start_indexed_job([3, 2, 1])
        # The time that a cluster may take to publish the name.
        time.sleep(2)
        self.assertEqual([pod.poll() for pod in others], [None] * 3)
        self.network.set_names("hello-0.hello")
        pods = self.start_indexed_job([0]) + others
        self.expect_one_world(8, [pod.communicate(timeout=RUN_TIMEOUT_S) for pod in pods])

    def test_an_indexed_job_names_its_first_pod_as_the_service_does(self):
        service, job = load_all("job.yaml")
        self.assertEqual((service["apiVersion"], service["kind"]), ("v1", "Service"))
        self.assertEqual((job["apiVersion"], job["kind"]), ("batch/v1", "Job"))
        self.assertEqual(service["spec"]["clusterIP"], "None")
        spec = job["spec"]
        self.assertEqual(spec["completionMode"], "Indexed")
        pod = spec["template"]["spec"]
        # Pods of a Job may not have the default policy "Always".
        self.assertIn(pod["restartPolicy"], {"Never", "OnFailure"})
        self.assertEqual(pod["subdomain"], service["metadata"]["name"])
        # The label that the controller puts on a job's pods.
        labels = {"batch.kubernetes.io/job-name": job["metadata"]["name"]}
        self.assertEqual(service["spec"]["selector"], labels)
        command = pod["containers"][0]["command"]
        self.assertIn(
            f"--master_addr={job['metadata']['name']}-0.{service['metadata']['name']}", command
        )
        for count in (spec["completions"], spec["parallelism"]):
            self.assertIn(f"--nnodes={count}", command)


if __name__ == "__main__":
    main()
