#!/usr/bin/env python3
"""Programs of torch.distributed that know nothing of Unisono, with the names of backends that they
were written for."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jobs
import references
import torch
from images import normalize
from jobs import by_hand, program, unisono_run

BACKENDS = ("tcp", "gloo", "unisono")


def of_rank(rank: int, lines: list[str]) -> list[str]:
    """The lines of one rank, in its order."""
    return [line for line in lines if re.match(rf"Rank +{rank}\b", line)]


class Tutorial(unittest.TestCase):
    """Programs that start their processes themselves, once for each backend."""

    def check_messages(self, lines: list[str]) -> None:
        for rank, word in ((0, "sending"), (1, "receiving")):
            data = f"Rank  {rank}  has data  tensor(1.)"
            self.assertEqual(of_rank(rank, lines), [data, f"Rank {rank} started {word}", data])

    def test_messages(self) -> None:
        lines = program(by_hand, "messages", "--backend", *BACKENDS)
        self.assertEqual(len(lines), 6 * len(BACKENDS), lines)
        for i in range(len(BACKENDS)):
            self.check_messages(lines[6 * i : 6 * i + 6])
        with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
            place = f"file://{folder}/meeting"
            self.check_messages(program(unisono_run, "messages", "--init-method", place))

    def test_collective_operations(self) -> None:
        n_ranks = 4
        place = f"tcp://127.0.0.1:{jobs.free_port()}"
        options = ("--init-method", place, "--size", str(n_ranks), "--backend", *BACKENDS)
        lines = program(by_hand, "collectives", *options)
        for rank in range(n_ranks):
            results = "[10, 14] [24, 120] [4, 5] [1, 2]"
            results += " reduce 10" if rank == 1 else ""
            results += f" broadcast 2 scatter {10 + rank}"
            results += " gather [0, 1, 4, 9]" if rank == 3 else ""
            expected = [f"Rank {rank}: {results} all_gather [0, 1, 2, 3]"]
            if rank < 2:
                expected.insert(0, f"Rank  {rank}  has data  tensor(2.)")
            self.assertEqual(of_rank(rank, lines), expected * len(BACKENDS))

    def test_ring_all_reduce(self) -> None:
        sizes = (2, 3, 4)
        options = ("--size", *map(str, sizes), "--backend", *BACKENDS)
        lines = program(by_hand, "ring_all_reduce", *options)
        for size in sizes:
            total = float(sum(range(1, size + 1)))
            expected = [
                # A known error of this program with every backend: the size times the rank's own
                # value.
                f"Rank {rank} of {size}: {[{total}, {total}, {size * (rank + 1.0)}]}"
                for rank in range(size)
            ]
            mine = sorted(line for line in lines if f"of {size}:" in line)
            self.assertEqual(mine, sorted(expected * len(BACKENDS)))

    @references.needs_images
    def test_partitioned_mnist(self) -> None:
        shuffled = references.mnist_partition.DataPartitioner(range(10), [1.0])
        self.assertEqual(shuffled.partitions[0], [2, 8, 3, 5, 6, 4, 9, 0, 1, 7])
        black_and_white = normalize(torch.tensor([0, 255], dtype=torch.uint8))
        self.assertEqual(
            [f"{x:.7f}" for x in black_and_white.tolist()], ["-0.4242130", "2.8214867"]
        )
        expected = [
            f"Rank  {rank} , epoch  {epoch} :  {loss}"
            for epoch, losses in enumerate(references.partitioned_mnist())
            for rank, loss in enumerate(losses)
        ]
        lines = program(by_hand, "mnist_partition", "--backend", *BACKENDS)
        self.assertEqual(sorted(lines), sorted(expected * len(BACKENDS)))


class OwnPlace(unittest.TestCase):
    """A program that sets MASTER_PORT itself, whatever its launcher has set."""

    def check(self, size: int, *launcher: str, words: tuple[str, ...] = ()) -> None:
        script = str(jobs.PROGRAMS / "tutorial.py")
        lines = jobs.lines_of([*launcher, sys.executable, script, str(jobs.free_port()), *words])
        expected = [f"Rank {rank} of {size} has tensor({size}.)" for rank in range(size)]
        self.assertEqual(sorted(lines), expected)

    def test_its_own_processes(self) -> None:
        one_rank = [jobs.UNISONO, "run", "--backend-alias", jobs.ALIAS, "-n", "1"]
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python"]
        launchers = {
            "none": jobs.with_alias(jobs.ALIAS),
            "unisono run": one_rank,
            "torchrun": [*jobs.with_alias(jobs.ALIAS), *torchrun],
        }
        for name, launcher in launchers.items():
            with self.subTest(launcher=name):
                self.check(2, *launcher)

    def test_those_of_mpirun(self) -> None:
        """The program gives rank 0 of 0."""
        mpiruns = [
            ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
            ["mpirun.mpich"],
        ]
        found = [mpirun for mpirun in mpiruns if shutil.which(mpirun[0])]
        if not found:
            self.skipTest("not installed: mpirun.openmpi, mpirun.mpich")
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        for mpirun in found:
            with self.subTest(mpirun=mpirun[0]):
                # Open MPI fails where jobs of several tests make their common folder at once.
                own_folder = ["env", f"TMPDIR={folder.name}"]
                start = [*jobs.with_alias("mpi=unisono"), *own_folder, *mpirun, "-n", "4"]
                self.check(4, *start, words=("mpi",))


class DataParallel(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_spawned_by_the_program(self) -> None:
        expected = [f"Rank {rank}: {[0.0] * 4} {[1.5] * 4}" for rank in range(2)]
        self.assertEqual(sorted(program(by_hand, "ddp_spawn")), expected)

    @references.needs_images
    def test_pods_of_kubeflow(self) -> None:
        epochs, state = references.kubeflow()
        place = {"MASTER_ADDR": "localhost", "MASTER_PORT": str(jobs.free_port())}
        script = str(jobs.PROGRAMS / "kubeflow_mnist.py")
        command = [*by_hand(), script, "--modelpath", str(self.folder)]
        with ThreadPoolExecutor() as pods:
            started = [
                pods.submit(jobs.lines_of, command, **place, RANK=str(rank), WORLD_SIZE="2")
                for rank in range(2)
            ]
            outputs = [pod.result() for pod in started]
        for rank, lines in enumerate(outputs):
            expected = [
                f"Epoch {epoch} Loss {losses[rank]:.6f} Global batch size 128 on 2 ranks"
                for epoch, losses in enumerate(epochs)
            ]
            self.assertEqual(lines, expected)
        references.check_saved(self.folder / "model_cpu.dat", state)
        self.assertEqual(os.listdir(self.folder), ["model_cpu.dat"])


SOUNDS = Path(
    os.environ.get("UNISONO_TEST_DATA_DIR", Path(__file__).parents[2] / "../shared/data"),
    "fsdd_recordings.tar.gz",
)


@unittest.skipUnless(
    SOUNDS.exists(), f"{SOUNDS} is not there; UNISONO_TEST_DATA_DIR can name its folder"
)
class Speakers(unittest.TestCase):
    """A trainer that spawns its workers, which meet at a port of their own."""

    LOADED = "Loaded the model on GPU"

    def job(self, *options: str) -> subprocess.CompletedProcess:
        script = str(jobs.PROGRAMS / "speakers.py")
        place = ["--distributed", "--port", str(jobs.free_port()), "--train_path", str(SOUNDS)]
        return jobs.run([*by_hand(), script, *place, *options])

    def test_workers_learn_alike(self) -> None:
        job = self.job()
        self.assertEqual(job.returncode, 0, job.stderr)
        lines = job.stdout.splitlines()
        for gpu in range(2):
            self.assertEqual(lines.count(f"{self.LOADED} {gpu}"), 1, lines)
            losses = [float(x) for x in re.findall(rf"worker {gpu}, .*: loss (.*)", job.stdout)]
            self.assertEqual(len(losses), 4, lines)
            self.assertLess(losses[-1], 0.7 * losses[0], lines)
        weights = re.findall(r"worker .: weights (.*)", job.stdout)
        self.assertEqual(len(weights), 2, lines)
        self.assertEqual(weights[0], weights[1])

    @unittest.skipIf(torch.cuda.is_available(), "there are GPUs")
    def test_batch_statistics_of_all_workers_take_gpus(self) -> None:
        """torch's own do, whatever carries them: the wrapper says so."""
        job = self.job("--syncBN")
        self.assertEqual(job.stdout.splitlines(), ["----syncBN----"] * 2, job.stderr)
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("SyncBatchNorm layers only work with GPU modules", job.stderr)


class Names(unittest.TestCase):
    def test_all_mean_unisono(self) -> None:
        first = ("None", "gloo", "GLOO", "gloo", "nccl", "tcp", "unisono", "cpu:gloo,cuda:nccl")
        groups = ("gloo", "NCCL", "unisono", "None", "cpu:gloo,cuda:nccl")
        expected = [
            *(f"{name}: unisono" for name in (*first, "gloo")),
            *(f"new_group {name}: unisono" for name in groups),
            f"available: {['gloo', 'nccl', 'tcp', 'unisono', 'cpu:gloo,cuda:nccl']}",
            f"functions: {[True, True, False]}",
            "default for cpu: unisono",
        ]
        self.assertEqual(program(unisono_run, "names"), expected)

    def test_gloo_itself_fails_here(self) -> None:
        """Or the other tests would prove nothing."""
        script = str(jobs.PROGRAMS / "messages.py")
        job = jobs.run(
            [sys.executable, script, "--backend", "gloo"], MASTER_PORT=str(jobs.free_port())
        )
        self.assertNotEqual(job.returncode, 0)
        self.assertIn("no-such-interface", job.stderr)


if __name__ == "__main__":
    unittest.main()
