#!/usr/bin/env python3
"""Jobs that meet one after the other in a store that stays."""

import unittest

from rendezvous import OURS, TORCHS, RendezvousTest
from stores import server

import unisono


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
            said = self.run_ranks(*(self.place | rank for rank in ranks))
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
                self.fails("for rank 0 (1 of 2 joined)", **alone)
                self.expect_runs(method)

    def test_a_rank_too_many(self) -> None:
        """One that comes before all others have: they come to a meeting that has failed."""
        place = self.place | {"WORLD_SIZE": "3"}
        self.expect_doubled(["1", "1"], **place)
        for rank in ("0", "2"):
            complaint = "RANK=1 was given to 2 processes"
            self.fails(complaint, RANK=rank, TIMEOUT="60", **place)

    def test_one_that_is_killed(self) -> None:
        """All ranks say so, whatever they do; the job goes on."""
        with server() as (process, port):
            over = self.folder / "over"
            place = self.place | {"MASTER_PORT": str(port), "UNISONO_SECRET": "one"}
            ranks = [self.start(RANK=rank, UNTIL=str(over), **place) for rank in ("0", "1")]
            for rank in ranks:
                rank.wait_for_words(") 2 unisono")
            process.kill()
            for rank in ranks:
                rank.wait_for_words(f"the job's store at 127.0.0.1:{port} is gone")
            over.touch()
            self.finish(*ranks)

    def test_a_rank_that_comes_when_all_have_met(self) -> None:
        self.run_ranks(*(self.place | {"RANK": rank} for rank in ("0", "1")))
        complaints = ["for rank 0 (1 of 2 joined)", "rank 1 was given twice"]
        self.fails(*complaints, RANK="1", TIMEOUT="1", **self.place)


if __name__ == "__main__":
    unittest.main()
