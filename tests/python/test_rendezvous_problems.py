#!/usr/bin/env python3
"""What ranks say that can't meet."""

import time
import unittest
from datetime import timedelta

import torch.distributed as dist
from rendezvous import RendezvousTest, free_port

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
        self.fails(*complaints, OPTIONS=options, UNISONO_SECRET="two")

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
