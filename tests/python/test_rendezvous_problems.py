#!/usr/bin/env python3
"""What ranks say that can't meet."""

import os
import time
import unittest
from datetime import timedelta

import torch.distributed as dist
from rendezvous import TORCHS, RendezvousTest, free_port

import unisono


class Problems(RendezvousTest):
    def options(self, method: str, **others: int) -> str:
        return str({"init_method": method} | others)

    def test_ranks_that_do_not_come(self) -> None:
        addresses = [f"unisono://127.0.0.1:{free_port()}" for _ in range(2)]
        alone = {
            self.options(addresses[0], rank=0, world_size=2): [
                "DistStoreError",
                "for rank 1 (1 of 2",
            ],
            self.options(addresses[1], rank=1, world_size=2): [
                "DistStoreError",
                "127.0.0.1",
                "refused",
            ],
            self.options(f"file://{self.folder}/file", world_size=2): ["1 of 2 processes are here"],
        }
        ranks = {options: self.start(OPTIONS=options, TIMEOUT="1.5") for options in alone}
        for options, complaints in alone.items():
            with self.subTest(options=options):
                self.expect_failure(ranks[options], *complaints)

    def test_rank_0_leaves_without_having_come(self) -> None:
        """Who reaches a store that is there, and waits for rank 0 in vain, says so."""
        store = unisono.Store("127.0.0.1", 0, is_master=True, secret="one")
        options = self.options(f"unisono://127.0.0.1:{store.port}", rank=1, world_size=2)
        complaints = ["DistStoreError", "rank 1 has waited", "for rank 0 (1 of 2 joined)"]
        secret = {"UNISONO_SECRET": "one"}
        self.fails(*complaints, OPTIONS=options, TIMEOUT="1", **secret)

    def test_a_doubled_rank(self) -> None:
        # With Gloo, torch implements env:// alone.
        for method, backend in (
            ("env://", "unisono"),
            ("unisono://", "unisono"),
            ("unisono://", "gloo"),
        ):
            with self.subTest(method=method, backend=backend):
                options = str({"backend": backend, "init_method": method})
                place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
                self.expect_doubled(["0", "1", "1"], OPTIONS=options, **place)

    def test_a_rank_that_is_not_below_the_world_size(self) -> None:
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        rank = self.start(RANK="2", OPTIONS=self.options("unisono://"), **place)
        self.expect_failure(rank, "RANK=2", "is not below WORLD_SIZE=2")

    def test_an_impossible_rank_by_torchs_schemes(self) -> None:
        """In torch's own store it would wait."""
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "TIMEOUT": "60"}
        tcp = f"tcp://127.0.0.1:{place['MASTER_PORT']}"
        env = {"OPTIONS": self.options("env://"), "WORLD_SIZE": "2"}
        cases = {
            "RANK=2 is not below WORLD_SIZE=2": env | {"RANK": "2"},
            'RANK="-1" is not a whole number of at least 0': env | {"RANK": "-1"},
            'WORLD_SIZE="-1" is not a whole number': env | {"RANK": "0", "WORLD_SIZE": "-1"},
            "RANK=5 (given by the program) is not below": {
                "OPTIONS": self.options("env://", rank=5, world_size=4)
            },
            "RANK=-2 (given by the program) is negative": {
                "OPTIONS": self.options("env://", rank=-2, world_size=4)
            },
            "rank 3 is not below world_size 2": {
                "OPTIONS": self.options(tcp, rank=3, world_size=2)
            },
            "rank -2 is negative": {
                "OPTIONS": self.options(f"{tcp}?use_libuv=0", rank=-2, world_size=2)
            },
        }
        begin = time.monotonic()
        ranks = [self.start(**place, **variables) for variables in cases.values()]
        for complaint, rank in zip(cases, ranks, strict=True):
            with self.subTest(complaint=complaint):
                self.expect_failure(rank, "ValueError: ", complaint)
        self.assertLess(time.monotonic() - begin, 30)

    def test_an_address_where_no_machine_can_be(self) -> None:
        """It is not tried again, by whichever scheme, with a secret or without."""
        addresses = {
            "fe80::1": "write fe80::1%eth0",
            "256.1.1.1": "four numbers from 0 to 255",
            "::1:29574": "29574 as MASTER_PORT",
            "alpha:29500": "29500 as MASTER_PORT",
            "a/b": 'no name has a "/"',
        }
        place = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_PORT": free_port(), "TIMEOUT": "60"}
        cases = [
            (form, {"OPTIONS": self.options(method), "MASTER_ADDR": address})
            for address, form in addresses.items()
            for method in ("env://", "unisono://")
        ]
        cases += [
            (form, {"OPTIONS": self.options(f"{scheme}://{host}", rank=1, world_size=2)})
            for scheme in ("tcp", "unisono")
            for host, form in (
                ("[fe80::1]:29500", "write fe80::1%eth0"),
                ("256.1.1.1:29500", "four numbers from 0 to 255"),
            )
        ]
        for secret in ({}, {"UNISONO_SECRET": "one"}):
            ranks = [self.start(**place, **variables, **secret) for _, variables in cases]
            for (form, variables), rank in zip(cases, ranks, strict=True):
                with self.subTest(**variables, **secret):
                    said = self.expect_failure(rank, "ValueError: ", form)
                    self.assertNotIn("no secret", said)

    def test_an_impossible_rank_of_another_backend_is_torchs_affair(self) -> None:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "TIMEOUT": "1.5"}
        options = str({"backend": "gloo", "init_method": "env://"})
        rank = self.start(RANK="2", WORLD_SIZE="2", OPTIONS=options, **place)
        self.assertNotIn("is not below", self.expect_failure(rank, "Dist", "timed out"))

    def test_a_doubled_rank_0(self) -> None:
        for secret in ({}, {"UNISONO_SECRET": "one"}):
            for backend in ("unisono", "gloo"):
                with self.subTest(backend=backend, secret=secret):
                    options = str({"backend": backend, "init_method": "unisono://"})
                    place = {"WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1"} | secret
                    place["MASTER_PORT"] = free_port()
                    self.expect_doubled(["0", "0", "1"], OPTIONS=options, **place)

    def test_a_later_rank_0(self) -> None:
        """It alone fails, and names the one before."""
        method = f"unisono://127.0.0.1:{free_port()}?rank=0&world_size=1"
        places = dist.rendezvous(method)
        store, _, _ = next(places)
        said = f"rank 0 (pid {os.getpid()} on "
        self.fails("all 1 ranks have joined already", said, OPTIONS=self.options(method))
        self.assertEqual(store.add("n", 1), 1)

    def test_a_doubled_rank_0_in_torchs_store(self) -> None:
        """The second alone fails, and the job of the first goes on."""
        options = {"OPTIONS": self.options("env://")}
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
        doubled = [self.start(RANK="0", **options, **place) for _ in range(2)]
        while all(rank.process.is_alive() for rank in doubled):
            time.sleep(0.01)
        first, second = sorted(doubled, key=lambda rank: rank.process.exitcode is not None)
        self.expect_failure(second, "DistNetworkError", "EADDRINUSE")
        said = self.finish(first, self.start(RANK="1", **options, **place))
        self.expect_world(2, said, store=TORCHS)

    def test_another_job(self) -> None:
        """Two steps of Slurm, whose ranks it has numbered."""
        task = {
            "SLURM_JOB_ID": "4540",
            "SLURM_NTASKS": "2",
            "SLURM_STEP_NODELIST": "localhost",
            "MASTER_PORT": free_port(),
            "UNISONO_LOG": "debug",
        }
        steps = [task | {"SLURM_STEP_ID": step} for step in ("0", "1")]
        first = self.start(SLURM_PROCID="0", **steps[0])
        first.wait_for_words("connected to the store")
        complaints = [
            task["MASTER_PORT"],
            "another job meets there, SLURM_JOB_ID=4540, SLURM_STEP_ID=0",
        ]
        for rank in ("0", "1"):
            self.fails(*complaints, SLURM_PROCID=rank, **steps[1])
        self.expect_world(2, self.finish(first, self.start(SLURM_PROCID="1", **steps[0])))

    def test_another_secret(self) -> None:
        store = unisono.Store("127.0.0.1", 0, is_master=True, secret="one")
        options = self.options(f"unisono://127.0.0.1:{store.port}", rank=1, world_size=2)
        complaints = ["DistNetworkError", "another secret"]
        self.fails(*complaints, OPTIONS=options, UNISONO_SECRET="two")

    def test_wrong_methods(self) -> None:
        wrong = {
            "unisono://127.0.0.1:29500": "give each process its rank",
            "unisono://127.0.0.1:0?rank=0&world_size=1": "not a port from 1 to 65535",
            "unisono://127.0.0.1:29500?rank=x&world_size=1": "rank=x is not a whole number",
            "unisono:///a/file?word=1&world_size=1": "word",
            f"file://{self.folder}/file": "world_size",
            "tcp://239.1.2.3:29500": "world_size",
            "tcp://239.1.2.3:29500?rank=1&world_size=2": "ranks are assigned",
            "tcp://127.0.0.1:29500": "rank parameter missing",
        }
        for method, complaint in wrong.items():
            with self.subTest(method=method), self.assertRaisesRegex(ValueError, complaint):
                next(dist.rendezvous(method, timeout=timedelta(seconds=5)))

    def test_wrong_settings(self) -> None:
        method = self.options("unisono://", rank=0, world_size=1)
        self.fails("ValueError", "UNISONO_PORTS", OPTIONS=method, UNISONO_PORTS="x")

    def test_ctrl_c(self) -> None:
        methods = [
            self.options(f"unisono://127.0.0.1:{free_port()}", rank=1, world_size=2),
            self.options(f"unisono://127.0.0.1:{free_port()}", rank=0, world_size=2),
            self.options(f"file://{self.folder}/file", world_size=2),
            self.options(f"tcp://239.77.1.2:{free_port()}", world_size=2),
        ]
        ranks = [self.start(OPTIONS=options, UNISONO_STALL_SECONDS="0.5") for options in methods]
        for options, rank in zip(methods, ranks, strict=True):
            with self.subTest(options=options):
                rank.wait_for_words("[unisono")  # That it still waits.
                begin = time.monotonic()
                rank.interrupt()
                self.expect_failure(rank, "KeyboardInterrupt")
                self.assertLess(time.monotonic() - begin, 5)

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
