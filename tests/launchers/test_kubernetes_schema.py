"""Holds the jobs of deploy/kubernetes to the schemas of Kubernetes and Kubeflow, unknown fields
included. For a PyTorchJob there is no schema: its pods are held to Kubernetes', the rest to what
test_kubernetes.py expects.

python test_kubernetes_schema.py PROGRAM UNISONO
"""

from __future__ import annotations

import copy
import unittest

from support import DEPLOY, main

try:
    import kubernetes_validate
    import yaml
    from kubeflow_trainer_api import models
except ImportError as error:
    kubernetes_validate = None
    missing = error.name

# The first of these versions introduced the label that the Service selects.
VERSIONS = ("1.27", "1.37")


def load(name: str) -> list[dict]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes" / name).read_text()))


@unittest.skipIf(kubernetes_validate is None, f"not installed: {globals().get('missing')}")
class SchemaTest(unittest.TestCase):
    def expect_valid(self, document: dict) -> None:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)

    def test_every_file_is_looked_at(self):
        names = sorted(path.name for path in (DEPLOY / "kubernetes").glob("*.yaml"))
        self.assertEqual(names, ["job.yaml", "pytorchjob.yaml", "trainjob.yaml"])

    def test_an_indexed_job_and_its_service(self):
        documents = load("job.yaml")
        self.assertEqual([document["kind"] for document in documents], ["Service", "Job"])
        for document in documents:
            self.expect_valid(document)

    def test_a_field_that_is_wrong_is_found(self):
        _, job = load("job.yaml")
        for spoil in (
            lambda spec: spec.update(completionModes="Indexed"),
            lambda spec: spec.update(completions="4"),
            lambda spec: spec["template"]["spec"].pop("containers"),
        ):
            spoiled = copy.deepcopy(job)
            spoil(spoiled["spec"])
            with self.assertRaises(kubernetes_validate.ValidationError):
                self.expect_valid(spoiled)

    def test_the_pods_of_a_pytorch_job(self):
        (job,) = load("pytorchjob.yaml")
        for replica in job["spec"]["pytorchReplicaSpecs"].values():
            self.assertEqual(set(replica), {"replicas", "restartPolicy", "template"})
            template = {"apiVersion": "v1", "kind": "PodTemplate", "template": replica["template"]}
            self.expect_valid(template)

    def test_a_train_job(self):
        (job,) = load("trainjob.yaml")
        # The model drops unknown fields.
        self.assertEqual(models.TrainerV1alpha1TrainJob.from_dict(job).to_dict(), job)


if __name__ == "__main__":
    main()
