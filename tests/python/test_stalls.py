#!/usr/bin/env python3
"""A rank that the others wait for, and that does not come: the launcher ends it."""

from __future__ import annotations

import subprocess
import sys
import unittest

import jobs


def train(*options: str) -> subprocess.CompletedProcess:
    program = str(jobs.PROGRAMS / "stalling.py")
    limit = ("--stall-timeout", "2")
    return jobs.run([jobs.UNISONO, "run", "-n", "2", *limit, *options, sys.executable, program])


class StallTimeout(unittest.TestCase):
    def test_a_rank_that_hangs_ends_the_job(self) -> None:
        job = train()
        self.assertEqual(job.returncode, 124, job.stderr)
        self.assertRegex(job.stderr, r"rank 1 \(pid \d+\) was aborted after .* is sleeping\n")
        self.assertRegex(job.stderr, r"waiting ranks: rank 0 in all_reduce.* for [2-9]\.\d s\n")

    def test_all_start_again(self) -> None:
        job = train("--max-restarts", "1")
        self.assertEqual(job.returncode, 0, job.stderr)
        lines = sorted(job.stdout.splitlines())
        self.assertEqual(lines, ["hangs", "rank 0 is done", "rank 1 is done"])
        self.assertRegex(job.stderr, r"before restart 1, rank 1 \(pid \d+\) was aborted")


if __name__ == "__main__":
    unittest.main()
