#!/usr/bin/env python3
"""How ranks meet: unisono://, torch's own schemes, and launchers; each process is a program."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

import unisono

LAUNCHERS = re.compile(r"(OMPI|PMI|PMIX|PRTE|HYDRA|HYDI|MPI|SLURM|PET|UNISONO|TORCHELASTIC)_")
EXPLICIT = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"}

# Meets, as OPTIONS has it, says where, and leaves again, TIMES times.
JOB = """
import os
from datetime import timedelta

import torch
import torch.distributed as dist

import unisono

options = eval(os.environ.get("OPTIONS", "{}"))
begin = dist.init_process_group if "backend" in options else unisono.init_process_group
for time in range(int(os.environ.get("TIMES", 1))):
    begin(timeout=timedelta(seconds=float(os.environ.get("TIMEOUT", 30))), **options)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    place = f"({dist.get_rank()},{dist.get_world_size()}) {tensor.item():g}"
    # In one write, which others do not divide.
    os.write(1, f"{place} {dist.get_backend()} {type(store).__module__}\\n".encode())
    del store
    dist.destroy_process_group()
"""
OURS, TORCHS = "unisono._C", "torch._C._distributed_c10d"


def environment(**variables: str) -> dict[str, str]:
    """This process's, without what tells a process that it is a rank."""
    kept = {k: v for k, v in os.environ.items() if not LAUNCHERS.match(k) and k not in EXPLICIT}
    return kept | variables


def free_port() -> str:
    return str(unisono.Store("127.0.0.1", 0, is_master=True, secret="").port)


class RendezvousTest(unittest.TestCase):
    def setUp(self) -> None:
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory(prefix="unisono-python-")))
        self.script = self.folder / "job.py"
        self.script.write_text(JOB)
        self.python = [sys.executable, str(self.script)]

    def start(self, command: list[str], **variables: str) -> subprocess.Popen:
        process = subprocess.Popen(
            command,
            env=environment(**variables),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.addCleanup(process.communicate, timeout=30)
        self.addCleanup(process.kill)
        return process

    def run_all(self, *commands: tuple[list[str], dict[str, str]]) -> tuple[str, str]:
        """What the programs, run beside each other, have written to stdout and stderr."""
        processes = [self.start(command, **variables) for command, variables in commands]
        said = [process.communicate(timeout=90) for process in processes]
        for process, (output, problems) in zip(processes, said, strict=True):
            self.assertEqual(process.returncode, 0, output + problems)
        return "".join(out for out, _ in said), "".join(err for _, err in said)

    def expect_world(
        self, size: int, said: str, backend: str = "unisono", store: str = OURS, times: int = 1
    ) -> None:
        wanted = [f"({rank},{size}) {size} {backend} {store}" for rank in range(size)] * times
        self.assertEqual(sorted(said.splitlines()), sorted(wanted))

    def ranks(self, size: int, options: str, **variables: str) -> str:
        """What `size` programs with the same options have written; {rank} is their number."""
        said, _ = self.run_all(
            *(
                (self.python, {"OPTIONS": options.replace("{rank}", str(rank)), **variables})
                for rank in range(size)
            )
        )
        return said

    def fails(self, command: list[str], *complaints: str, **variables: str) -> None:
        process = self.start(command, **variables)
        _, said = process.communicate(timeout=90)
        self.assertNotEqual(process.returncode, 0)
        for complaint in complaints:
            self.assertIn(complaint, said)

    def expect_doubled(self, ranks: list[str], **variables: str) -> None:
        """Programs of these ranks, two of them 1, all name both at once."""
        place = variables | {"TIMEOUT": "60"}
        processes = [self.start(self.python, RANK=rank, **place) for rank in ranks]
        pids = {process.pid for process, rank in zip(processes, ranks, strict=True) if rank == "1"}
        for process in processes:
            _, said = process.communicate(timeout=30)
            self.assertNotEqual(process.returncode, 0)
            problem = re.search(r"RANK=1 was given to 2 processes: (.*)", said)
            self.assertIsNotNone(problem, said)
            self.assertEqual({int(pid) for pid in re.findall(r"pid (\d+)", problem[1])}, pids)


class Launchers(RendezvousTest):
    """Nothing is given."""

    def test_unisono_run(self) -> None:
        command = [sys.executable, "-m", "unisono", "run", "-n", "3", *self.python]
        said, _ = self.run_all((command, {"TIMES": "3"}))
        self.expect_world(3, said, times=3)

    def test_torchrun(self) -> None:
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        for secret in ({}, {"UNISONO_SECRET": "one"}):
            with self.subTest(secret=secret):
                command = [sys.executable, *torchrun, str(self.script)]
                said, _ = self.run_all((command, {"TIMES": "2", **secret}))
                self.expect_world(2, said, store=TORCHS, times=2)

    def test_mpirun(self) -> None:
        mpiruns = {
            "Open MPI": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe"],
            "MPICH or Intel MPI": ["mpirun.mpich"],
        }
        found = {name: start for name, start in mpiruns.items() if shutil.which(start[0])}
        if not found:
            self.skipTest("not installed: mpirun.openmpi, mpirun.mpich")
        for name, mpirun in found.items():
            with self.subTest(mpirun=name):
                command = [*mpirun, "-n", "2", *self.python]
                said, problems = self.run_all((command, {"TIMES": "2"}))
                self.expect_world(2, said, times=2)
                self.assertRegex(problems, rf"rank 0\] started by {name} \(.*: 2 ranks meet at 127")
                self.fails(command, "WORLD_SIZE=3 differs from", WORLD_SIZE="3")
                # Where torch's own way lacks its variables; any backend.
                options = "{'backend': 'gloo', 'init_method': 'env://'}"
                said, _ = self.run_all((command, {"OPTIONS": options}))
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
                said, problems = self.run_all(*((self.python, task) for task in tasks))
                self.expect_world(2, said)
                self.assertIn("rank 0] started by Slurm (SLURM_STEP_NODELIST", problems)

    def test_variables_of_torchruns(self) -> None:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        variables = [place | {"RANK": rank, "TIMES": "3"} for rank in ("0", "1")]
        said, _ = self.run_all(*((self.python, rank) for rank in variables))
        self.expect_world(2, said, times=3)

    def test_nothing(self) -> None:
        looked_for = "No launcher that sets others was found; looked for Open MPI"
        self.fails(self.python, "ValueError: ", "RANK is not set", looked_for)
        torchs = "environment variable RANK expected, but not set"
        self.fails(self.python, "ValueError: ", torchs, OPTIONS="{'init_method': 'env://'}")


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
        said, _ = self.run_all(*((self.python, rank) for rank in variables))
        self.expect_world(2, said, "gloo", TORCHS)

    def test_torchs_clients_under_unisono_run(self) -> None:
        command = [sys.executable, "-m", "unisono", "run", "-n", "2", *self.python]
        said, _ = self.run_all((command, {"OPTIONS": "{'backend': 'gloo'}"}))
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
            (self.python, {"OPTIONS": f"{{'init_method': '{method}{name}', 'world_size': 2}}"})
            for name in ("one", "two") * 2
        ]
        said, _ = self.run_all(*jobs)
        self.expect_world(2, said, times=2)
        self.assertFalse((self.folder / "file").exists())

    def test_file_of_a_killed_job(self) -> None:
        options = f"{{'init_method': 'file://{self.folder}/file', 'world_size': 2}}"
        killed = self.start(self.python, OPTIONS=options)
        end = time.monotonic() + 60
        while not (self.folder / "file").exists():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.01)
        time.sleep(0.3)  # It has written its entry by then, or dies before that.
        killed.kill()
        killed.wait(timeout=30)
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
        ranks = f"{sys.executable} {self.script} & {sys.executable} {self.script} & wait"
        options = f"{{'init_method': '{method}', 'world_size': 2}}"
        command = ["unshare", "--net", "sh", "-c", f"{route} && {ranks}"]
        said, _ = self.run_all((command, {"OPTIONS": options}))
        self.expect_world(2, said)

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
        said, _ = self.run_all(*((self.python, rank) for rank in ranks))
        self.expect_world(2, said)


class LastingStore(RendezvousTest):
    """Programs that run one after the other beside a store that stays."""

    def setUp(self) -> None:
        super().setUp()
        self.store = unisono.Store("127.0.0.1", 0, is_master=True, secret="")
        self.place = {
            "WORLD_SIZE": "2",
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.store.port),
            "TORCHELASTIC_USE_AGENT_STORE": "True",
        }

    def expect_runs(self, method: str) -> None:
        options = str({"backend": "unisono", "init_method": method})
        for _ in range(2):
            ranks = [{"RANK": rank, "OPTIONS": options, "TIMES": "2"} for rank in ("0", "1")]
            said, _ = self.run_all(*((self.python, self.place | rank) for rank in ranks))
            self.expect_world(2, said, store=TORCHS if method == "env://" else OURS, times=2)

    def test_again(self) -> None:
        for method in ("env://", "unisono://"):
            with self.subTest(method=method):
                self.expect_runs(method)

    def test_again_after_ranks_did_not_come(self) -> None:
        for method in ("env://", "unisono://"):
            with self.subTest(method=method):
                options = str({"backend": "unisono", "init_method": method})
                alone = self.place | {"RANK": "1", "OPTIONS": options, "TIMEOUT": "1"}
                self.fails(self.python, "for rank 0 (1 of 2 joined)", **alone)
                self.expect_runs(method)

    def test_a_rank_too_many(self) -> None:
        """One that comes before all others have: they come to a meeting that has failed."""
        place = self.place | {"WORLD_SIZE": "3"}
        self.expect_doubled(["1", "1"], **place)
        for rank in ("0", "2"):
            complaint = "RANK=1 was given to 2 processes"
            self.fails(self.python, complaint, RANK=rank, TIMEOUT="60", **place)

    def test_a_rank_that_comes_when_all_have_met(self) -> None:
        self.run_all(*((self.python, self.place | {"RANK": rank}) for rank in ("0", "1")))
        complaints = ["for rank 0 (1 of 2 joined)", "RANK=1 was given twice"]
        self.fails(self.python, *complaints, RANK="1", TIMEOUT="1", **self.place)


class Problems(RendezvousTest):
    def options(self, method: str, **others: int) -> str:
        return str({"init_method": method} | others)

    def test_ranks_that_do_not_come(self) -> None:
        address = f"unisono://127.0.0.1:{free_port()}"
        alone = {
            self.options(address, rank=0, world_size=2): ["DistStoreError", "for rank 1 (1 of 2"],
            self.options(address, rank=1, world_size=2): ["DistStoreError", "127.0.0.1", "refused"],
            self.options(f"file://{self.folder}/file", world_size=2): ["1 of 2 processes are here"],
        }
        for options, complaints in alone.items():
            with self.subTest(options=options):
                self.fails(self.python, *complaints, OPTIONS=options, TIMEOUT="1.5")

    def test_rank_0_leaves_without_having_come(self) -> None:
        """Who reaches a store that is there, and waits for rank 0 in vain, says so."""
        store = unisono.Store("127.0.0.1", 0, is_master=True, secret="one")
        options = self.options(f"unisono://127.0.0.1:{store.port}", rank=1, world_size=2)
        complaints = ["DistStoreError", "rank 1 has waited", "for rank 0 (1 of 2 joined)"]
        secret = {"UNISONO_SECRET": "one"}
        self.fails(self.python, *complaints, OPTIONS=options, TIMEOUT="1", **secret)

    def test_a_doubled_rank(self) -> None:
        # With Gloo all of env:// is torch's.
        for method, backend in (
            ("env://", "unisono"),
            ("unisono://", "unisono"),
            ("unisono://", "gloo"),
        ):
            with self.subTest(method=method, backend=backend):
                options = str({"backend": backend, "init_method": method})
                place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
                self.expect_doubled(["0", "1", "1"], OPTIONS=options, **place)

    def test_another_secret(self) -> None:
        store = unisono.Store("127.0.0.1", 0, is_master=True, secret="one")
        options = self.options(f"unisono://127.0.0.1:{store.port}", rank=1, world_size=2)
        complaints = ["DistNetworkError", "another secret"]
        self.fails(self.python, *complaints, OPTIONS=options, UNISONO_SECRET="two")

    def test_wrong_methods(self) -> None:
        wrong = {
            "unisono://127.0.0.1:29500": "give each process its rank",
            "unisono://127.0.0.1:0?rank=0&world_size=1": "no port from 1 to 65535",
            "unisono://127.0.0.1:29500?rank=x&world_size=1": "rank=x is no whole number",
            "unisono:///a/file?word=1&world_size=1": "word",
            f"file://{self.folder}/file": "world_size",
            "tcp://239.1.2.3:29500": "world_size",
            "tcp://239.1.2.3:29500?rank=1&world_size=2": "ranks are given out",
            "tcp://127.0.0.1:29500": "rank parameter missing",
        }
        for method, complaint in wrong.items():
            with self.subTest(method=method), self.assertRaisesRegex(ValueError, complaint):
                next(dist.rendezvous(method, timeout=timedelta(seconds=5)))

    def test_wrong_settings(self) -> None:
        method = self.options("unisono://", rank=0, world_size=1)
        self.fails(self.python, "ValueError", "UNISONO_PORTS", OPTIONS=method, UNISONO_PORTS="x")

    def test_ctrl_c(self) -> None:
        methods = [
            self.options(f"unisono://127.0.0.1:{free_port()}", rank=1, world_size=2),
            self.options(f"unisono://127.0.0.1:{free_port()}", rank=0, world_size=2),
            self.options(f"file://{self.folder}/file", world_size=2),
            self.options(f"tcp://239.77.1.2:{free_port()}", world_size=2),
        ]
        for options in methods:
            with self.subTest(options=options):
                process = self.start(self.python, OPTIONS=options, UNISONO_STALL_SECONDS="0.5")
                self.wait_for_words(process)
                begin = time.monotonic()
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=30)
                self.assertIn("KeyboardInterrupt", said)
                self.assertLess(time.monotonic() - begin, 5)  # Python's end takes its time, too.

    def wait_for_words(self, process: subprocess.Popen) -> None:
        """Until it says that it still waits."""
        for line in process.stderr:
            if "[unisono" in line:
                return
        self.fail("it has ended")

    def test_meeting_again_by_the_same_iterator(self) -> None:
        method = f"unisono://127.0.0.1:{free_port()}?rank=0&world_size=1"
        places = dist.rendezvous(method)
        store, rank, world_size = next(places)
        self.assertIsInstance(store, unisono.Store)
        self.assertEqual((rank, world_size), (0, 1))
        with self.assertRaisesRegex(RuntimeError, "can't meet again"):
            next(places)


if __name__ == "__main__":
    unittest.main()
