"""Expects `unisono bench` to measure, check and report, and to say what is wrong with a command.

python test_bench.py UNISONO
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

FIELDS = {
    "op": str,
    "ranks": int,
    "nodes": int,
    "bytes": int,
    "dtype": str,
    "memory": str,
    "algorithm": str,
    "median_us": (int, float),
    "min_us": (int, float),
    "p99_us": (int, float),
    "algbw_gbps": (int, float),
    "busbw_gbps": (int, float),
    "busiest_bytes": (int, type(None)),
    "wrong": int,
}
RUN_TIMEOUT_S = 100
UNISONO = sys.argv.pop(1)


def run(*arguments):
    environment = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    return subprocess.run(
        [UNISONO, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


class BenchTest(unittest.TestCase):
    def measure(self, *arguments):
        """The lines of JSON and the table's rows, without its header, of a run that succeeds."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            command = [*arguments, "--seconds", "0.01", "--check", "--json", str(path)]
            done = run(*command)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(done.stderr, "")
            lines = [json.loads(line) for line in path.read_text().splitlines()]
        rows = [line.split() for line in done.stdout.splitlines() if not line.startswith("#")]
        self.assertEqual(len(lines), len(rows), done.stdout)
        for line, row in zip(lines, rows, strict=True):
            self.check_line(line)
            self.assertEqual([line["op"], str(line["bytes"])], row[:2])
            self.assertGreaterEqual(int(row[2]), 20)
            self.assertAlmostEqual(
                line["median_us"], float(row[3]), delta=0.0005 + 0.001 * float(row[3])
            )
            self.assertEqual(row[-1], "0")
        return lines

    def check_line(self, line):
        self.assertEqual(list(line), list(FIELDS))
        for field, kind in FIELDS.items():
            self.assertIsInstance(line[field], kind, field)
        self.assertEqual(line["wrong"], 0)
        self.assertEqual(line["busiest_bytes"] is None, line["nodes"] == 1)
        self.assertLess(0, line["min_us"])
        self.assertLessEqual(line["min_us"], line["median_us"])
        self.assertLessEqual(line["median_us"], line["p99_us"])
        bandwidth = line["bytes"] / line["median_us"] / 1e3
        self.assertAlmostEqual(line["algbw_gbps"], bandwidth, delta=1e-4 * bandwidth)

    def test_starts_its_own_ranks(self):
        lines = self.measure("bench", "all_reduce", "-n", "2", "--sizes", "8,1K")
        self.assertEqual([line["bytes"] for line in lines], [8, 1024])
        for line in lines:
            shown = [line[name] for name in ("op", "ranks", "nodes", "dtype", "memory")]
            self.assertEqual(shown, ["all_reduce", 2, 1, "f32", "private"])
            self.assertIn(line["algorithm"], ("one_shot", "two_shot"))
            self.assertAlmostEqual(line["busbw_gbps"], line["algbw_gbps"])

    def test_measures_in_a_job_that_was_started_already(self):
        lines = self.measure(
            "run", "-n", "3", UNISONO, "bench", "all_reduce", "--sizes", "10", "--dtype", "f64"
        )
        self.assertEqual([(line["ranks"], line["bytes"]) for line in lines], [(3, 16)])
        ratio = lines[0]["busbw_gbps"] / lines[0]["algbw_gbps"]
        self.assertAlmostEqual(ratio, 4 / 3, places=3)

    def test_blocks_of_ranks_act_as_nodes(self):
        for memory in ("private", "symmetric"):
            lines = self.measure(
                *("bench", "all", "-n", "4", "--nodes", "2", "--sizes", "40,70000"),
                *("--memory", memory, "--dtype", "bf16", "--algorithm", "two_shot"),
            )
            self.assertEqual({line["nodes"] for line in lines}, {2})
            self.assertEqual({line["memory"] for line in lines}, {memory})
            self.assertEqual(
                {line["op"] for line in lines if line["algorithm"] == "two_shot"},
                {"all_reduce", "reduce", "reduce_scatter"},
            )
            self.assertEqual([line["op"] for line in lines].count("barrier"), 1)

    def test_a_rings_busiest_rank_moves_half_of_a_servers(self):
        lines = {}
        for name in ("chunked_ring", "parameter_server"):
            (lines[name],) = self.measure(
                *("bench", "all_reduce", "-n", "4", "--nodes", "4"),
                *("--sizes", "64K", "--algorithm", name),
            )
        # Sent and received bytes: 3/4 of the buffer twice for the ring, and the whole buffer of
        # three other ranks for the server.
        self.assertEqual(lines["chunked_ring"]["busiest_bytes"], 2 * 2 * 3 * (64 << 10) // 4)
        self.assertEqual(lines["parameter_server"]["busiest_bytes"], 2 * 3 * (64 << 10))

    def test_says_which_algorithm_was_chosen_and_why(self):
        sizes = ("--sizes", "8,1M", "--seconds", "0.01")
        done = run("bench", "all_reduce", "-n", "3", "--nodes", "3", "--verbose", *sizes)
        self.assertEqual(done.returncode, 0, done.stderr)
        for size in ("8", "1048576"):
            self.assertRegex(done.stdout, rf"\nall_reduce +{size} .* auto: [a-z_]+ ")
            self.assertRegex(
                done.stderr,
                rf"all_reduce #\d+ .*, {size} bytes: estimated [a-z_]+ [0-9.]+ us, .* is taken; "
                r"links: measured, between nodes [0-9.]+ us",
            )
        quiet = run("bench", "broadcast", "-n", "2", *sizes)
        self.assertEqual(quiet.stderr, "")
        self.assertNotIn("auto: ", quiet.stdout)

    def test_unchecked_results_are_not_called_right(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            command = ["bench", "barrier", "-n", "2", "--seconds", "0.01", "--json", str(path)]
            done = run(*command)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIsNone(json.loads(path.read_text())["wrong"])
            self.assertEqual(done.stdout.split()[-1], "-")

    def test_a_run_that_fails_leaves_the_file_of_an_earlier_one(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "results.jsonl"
            path.write_text("earlier\n")
            # The ranks reject the second size after the first size has been measured.
            sizes = ["--sizes", "8,1M", "--algorithm", "one_shot", "--seconds", "0.01"]
            done = run("bench", "all_reduce", "-n", "2", *sizes, "--json", str(path))
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("all_reduce", done.stdout)
            self.assertEqual(path.read_text(), "earlier\n")
            self.assertEqual(os.listdir(folder), ["results.jsonl"])

    def test_a_wrong_command_is_one_line(self):
        for arguments, what in (
            ([], "OP is required"),
            (["allreduce"], "there are all_reduce, "),
            (["all_reduce", "--sizes", "8,9X"], '"9X"'),
            (["all_reduce", "--dtype", "float"], "f32"),
            (["all_reduce", "--memory", "shm"], "private, symmetric"),
            (["all_reduce", "--algorithm", "ring2"], "one_shot"),
            (["barrier", "--algorithm", "two_shot"], "barrier"),
            (["reduce", "--algorithm", "tree"], "reduce has no algorithm tree"),
            (["sendrecv", "-n", "1"], "needs 2 ranks"),
            (["all_reduce", "-n", "0"], "number of ranks"),
            (["all_reduce", "-n", "2", "--nodes", "3"], "--nodes 3"),
            (["all_reduce", "-n", "2", "--seconds", "-1"], "seconds"),
            (["all_reduce", "-n", "2", "--seconds", "nan"], "seconds"),
        ):
            done = run("bench", *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertEqual(done.stdout, "")
            self.assertIn(what, done.stderr)
            self.assertTrue(re.fullmatch(r"\[unisono\] error: [^\n]+\n", done.stderr), done.stderr)

    def test_what_the_ranks_refuse_is_said_by_one_of_them(self):
        for arguments, what in (
            (["all_reduce", "-n", "2", "--sizes", "1M"], "one_shot takes at most 16384 bytes"),
            (["reduce_scatter", "-n", "2", "--nodes", "2"], "for reduce_scatter on one node"),
        ):
            done = run("bench", *arguments, "--algorithm", "one_shot")
            self.assertEqual(done.returncode, 2)
            said = [line for line in done.stderr.splitlines() if line.startswith("[unisono] error")]
            self.assertEqual(len(said), 1, done.stderr)
            self.assertIn(what, said[0])
            self.assertNotIn("exit code 0", done.stderr)

    def test_all_names_who_does_not_have_the_algorithm(self):
        done = run(
            "bench", "all", "-n", "2", "--sizes", "8", "--seconds", "0", "--algorithm", "ring"
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(
            "# algorithm auto, as they don't have ring: broadcast, reduce, all_gather, gather, "
            "scatter, reduce_scatter, all_to_all, barrier, sendrecv\n",
            done.stdout,
        )

    def test_a_file_that_cannot_be_written_is_named(self):
        done = run("bench", "all_reduce", "-n", "2", "--json", "/no/such/folder/x")
        self.assertEqual(done.returncode, 1)
        line = "[unisono] error: bench: cannot write /no/such/folder/x: No such file or directory"
        self.assertEqual(done.stderr.partition(" (errno")[0].rstrip(), line)
        self.assertEqual(len(done.stderr.splitlines()), 1)


if __name__ == "__main__":
    unittest.main()
