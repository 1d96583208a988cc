#!/usr/bin/env python3
"""How ranks meet: unisono://, torch's own schemes, and launchers."""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

from rendezvous import MEET, OURS, PYTHON, TORCHS, RendezvousTest, free_port

UNISONO_RUN = [sys.executable, "-m", "unisono", "run"]


class Launchers(RendezvousTest):
    """Nothing is given."""

    def test_unisono_run(self) -> None:
        said, _ = self.launch(*UNISONO_RUN, "-n", "3", TIMES="3")
        self.expect_world(3, said, times=3)

    def test_rank_0_of_0_leaves_both_to_the_launcher(self) -> None:
        torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        env = {"init_method": "env://", "rank": 0, "world_size": 0}
        for method, ours in (("env://", TORCHS), ("unisono://", OURS)):
            with self.subTest(method=method):
                options = str(env | {"init_method": method})
                said, _ = self.launch(*UNISONO_RUN, "-n", "2", OPTIONS=options)
                self.expect_world(2, said, store=ours)
                command = [*torchrun, "--nproc-per-node", "2", MEET]
                done = self.run_command(command, OPTIONS=options)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_world(2, done.stdout, store=TORCHS)
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        complaint = "WORLD_SIZE=0 (given by the program) leaves no rank"
        self.fails("ValueError", complaint, OPTIONS=str(env), **place)

    def test_torchrun(self) -> None:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        for secret in ({}, {"UNISONO_SECRET": "one"}):
            with self.subTest(secret=secret):
                command = [sys.executable, *torchrun, MEET]
                done = self.run_command(command, TIMES="2", **secret)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_world(2, done.stdout, store=TORCHS, times=2)

    def test_mpirun(self) -> None:
        mpiruns = {
            "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
            "MPICH or Intel MPI": ["mpirun.mpich"],
        }
        found = {name: start for name, start in mpiruns.items() if shutil.which(start[0])}
        if not found:
            self.skipTest("not installed: mpirun.openmpi, mpirun.mpich")
        own_folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(own_folder.cleanup)
        for name, mpirun in found.items():
            with self.subTest(mpirun=name):
                # Open MPI fails where jobs of several tests make their common folder at once.
                command = ["env", f"TMPDIR={own_folder.name}", *mpirun, "-n", "2"]
                said, problems = self.launch(*command, TIMES="2")
                self.expect_world(2, said, times=2)
                self.assertRegex(problems, rf"rank 0\] started by {name} \(.*: 2 ranks meet at 127")
                done = self.run_command([*command, *PYTHON], WORLD_SIZE="3")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("WORLD_SIZE=3 differs from", done.stderr)
                # torch's own env:// lacks its variables here. The fallback works with any backend.
                options = "{'backend': 'gloo', 'init_method': 'env://'}"
                said, _ = self.launch(*command, OPTIONS=options)
                self.expect_world(2, said, "gloo")

    def test_variables_of_slurm(self) -> None:
        job = {
            "SLURM_JOB_ID": "4540",
            "SLURM_STEP_ID": str(os.getpid() % 1000),
            "SLURM_NTASKS": "2",
            "SLURM_STEP_NODELIST": "localhost",
        }
        for options in ("{}", "{'init_method': 'env://'}"):
            with self.subTest(options=options):
                tasks = [
                    job | {"SLURM_PROCID": task, "SLURM_LOCALID": task, "OPTIONS": options}
                    for task in ("0", "1")
                ]
                ranks = [self.start(**task) for task in tasks]
                self.expect_world(2, self.finish(*ranks))
                problems = "".join(rank.said()[1] for rank in ranks)
                self.assertIn("rank 0] started by Slurm (SLURM_STEP_NODELIST", problems)

    def test_variables_of_torchruns(self) -> None:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        variables = [place | {"RANK": rank, "TIMES": "3"} for rank in ("0", "1")]
        said = self.run_ranks(*variables)
        self.expect_world(2, said, times=3)

    def test_nothing(self) -> None:
        looked_for = "No launcher that sets others was found; looked for Open MPI"
        env = {"OPTIONS": "{'init_method': 'env://'}"}
        self.fails("ValueError: ", "RANK is not set", looked_for)
        self.fails("ValueError: ", "RANK is not set", looked_for, **env)
        rank = {"RANK": "0", "WORLD_SIZE": "2"}
        self.fails("ValueError: ", "MASTER_ADDR is not set", '"unisono run', **rank, **env)
        torchs = "environment variable RANK expected, but not set"
        self.fails("ValueError: ", torchs, OPTIONS="{'backend': 'gloo', 'init_method': 'env://'}")


class Methods(RendezvousTest):
    def test_of_torch_are_torchs_where_they_suffice(self) -> None:
        port = free_port()
        methods = [
            f"tcp://127.0.0.1:{port}",
            f"file://{self.folder}/file",
        ]
        for method in methods:
            for backend in ("gloo", "unisono"):
                with self.subTest(method=method, backend=backend):
                    options = {"backend": backend, "init_method": method, "world_size": 2}
                    said = self.ranks(
                        2, f"{options | {'rank': '{rank}'}}".replace("'{rank}'", "{rank}")
                    )
                    self.expect_world(2, said, backend, TORCHS)
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        variables = [place | {"RANK": r, "OPTIONS": "{'backend': 'gloo'}"} for r in ("0", "1")]
        said = self.run_ranks(*variables)
        self.expect_world(2, said, "gloo", TORCHS)

    def test_torchs_clients_under_unisono_run(self) -> None:
        said, _ = self.launch(*UNISONO_RUN, "-n", "2", OPTIONS="{'backend': 'gloo'}")
        self.expect_world(2, said, "gloo", TORCHS)

    def test_file_gives_out_ranks(self) -> None:
        for scheme in ("file", "unisono"):
            with self.subTest(scheme=scheme):
                method = f"{scheme}://{self.folder}/file"
                said = self.ranks(3, f"{{'init_method': '{method}', 'world_size': 3}}", TIMES="3")
                self.expect_world(3, said, times=3)
                self.assertFalse((self.folder / "file").exists())

    def test_jobs_of_different_names_share_a_file(self) -> None:
        method = f"file://{self.folder}/file?group_name="
        jobs = [
            {"OPTIONS": f"{{'init_method': '{method}{name}', 'world_size': 2}}"}
            for name in ("one", "two") * 2
        ]
        said = self.run_ranks(*jobs)
        self.expect_world(2, said, times=2)
        self.assertFalse((self.folder / "file").exists())

    def test_file_of_a_killed_job(self) -> None:
        options = f"{{'init_method': 'file://{self.folder}/file', 'world_size': 2}}"
        killed = self.start(OPTIONS=options)
        end = time.monotonic() + 60
        while not (self.folder / "file").exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        time.sleep(0.3)  # It has written its entry by then, or dies before that.
        killed.kill()
        self.expect_world(2, self.ranks(2, options))

    def test_multicast(self) -> None:
        for scheme in ("tcp", "unisono"):
            with self.subTest(scheme=scheme):
                method = f"{scheme}://239.77.{os.getpid() % 250}.9:{free_port()}"
                said = self.ranks(3, f"{{'init_method': '{method}', 'world_size': 3}}", TIMES="2")
                self.expect_world(3, said, times=2)

    def test_multicast_of_ipv6(self) -> None:
        route = "ip link set lo up && ip -6 route add local ff00::/8 dev lo table local"
        has_namespaces = subprocess.run(
            ["unshare", "--net", "sh", "-c", route], capture_output=True, check=False
        )
        if has_namespaces.returncode != 0:
            self.skipTest("takes root, unshare and ip, for a network of its own")
        method = f"tcp://[ff15:1e18:5d4c:4cf0:d02d:b659:53ba:b0a7]:{free_port()}"
        ranks = f"{shlex.join(PYTHON)} & {shlex.join(PYTHON)} & wait"
        options = f"{{'init_method': '{method}', 'world_size': 2}}"
        command = ["unshare", "--net", "sh", "-c", f"{route} && {ranks}"]
        done = self.run_command(command, OPTIONS=options)
        self.expect_world(2, done.stdout)

    def test_at_an_address_with_our_store(self) -> None:
        for backend in ("unisono", "gloo"):
            with self.subTest(backend=backend):
                method = f"unisono://127.0.0.1:{free_port()}"
                options = f"'init_method': '{method}', 'world_size': 2, 'backend': '{backend}'"
                said = self.ranks(2, f"{{{options}, 'rank': {{rank}}}}", TIMES="4")
                self.expect_world(2, said, backend, times=4)

    def test_across_nodes_by_the_secret_of_the_store(self) -> None:
        method = f"unisono://127.0.0.1:{free_port()}"
        options = f"'init_method': '{method}', 'world_size': 2"
        ranks = [
            {
                "OPTIONS": f"{{{options}, 'rank': {rank}}}",
                "UNISONO_NODE_ID": f"node{rank}",
                "UNISONO_SECRET": "one",
            }
            for rank in range(2)
        ]
        said = self.run_ranks(*ranks)
        self.expect_world(2, said)


if __name__ == "__main__":
    unittest.main()
