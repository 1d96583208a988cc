"""`unisono doctor`, as people run it: alone, as ranks of a job, and on two nodes."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

UNISONO = sys.argv.pop(1)
TIMEOUT = 60
LAUNCHERS = ("UNISONO_", "OMPI_", "PMI", "MPI_", "SLURM_", "PET_", "TORCHELASTIC_", "MASTER_")
OTHERS = {"HOME", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "CUDA_VISIBLE_DEVICES"}


def environment(**variables):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS) and k not in OTHERS}
    return {**clean, **variables}


def run(*arguments, launcher=(), **variables):
    return subprocess.run(
        [*launcher, UNISONO, "doctor", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        env=environment(**variables),
    )


def start(*arguments, launcher=(), **variables):
    return subprocess.Popen(
        [*launcher, UNISONO, "doctor", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(**variables),
    )


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def texts(report, state):
    return [row["text"] for row in report["findings"] if row["state"] == state]


class Doctor(unittest.TestCase):
    def problems_of(self, result):
        """Of a report in JSON."""
        report = json.loads(result.stdout)
        problems = texts(report, "problem")
        self.assertEqual(report["problems"], len(problems))
        self.assertEqual(result.returncode, 1 if problems else 0, result.stdout)
        return problems

    def test_a_machine_in_order_has_no_problem(self):
        result = run(MASTER_PORT=str(free_port()))
        self.assertEqual((result.returncode, result.stderr), (0, ""), result.stdout)
        self.assertRegex(result.stdout, r"^unisono doctor on \S+: no problem, ")
        for row in ("info     launcher", "ok       port", "ok       shared memory", "kernel"):
            self.assertIn(row, result.stdout)

    def test_json_has_the_same_as_one_document(self):
        result = run("--json", MASTER_PORT=str(free_port()))
        self.assertEqual(self.problems_of(result), [])
        report = json.loads(result.stdout)
        self.assertEqual(report["nodes"], [{"name": socket.gethostname(), "ranks": [0]}])
        self.assertEqual(report["pairs"], [])
        for row in report["findings"]:
            self.assertEqual(set(row), {"state", "topic", "text", "advice", "ranks"})
            self.assertTrue(row["advice"] or row["state"] not in ("problem", "warning"), row)

    def test_wrong_variables_are_problems(self):
        result = run(
            "--json",
            RANK="5",
            WORLD_SIZE="2",
            MASTER_ADDR="10.9.9.9",
            UNISONO_LOG="loud",
            UNISONO_TIMOUT_SECONDS="3",
        )
        problems = self.problems_of(result)
        self.assertEqual(len(problems), 3, problems)
        self.assertIn("RANK=5 is not below WORLD_SIZE=2", problems[0])
        self.assertIn("the job has no secret", problems[1])
        self.assertIn('UNISONO_LOG="loud"', problems[2])
        warnings = " ".join(texts(json.loads(result.stdout), "warning"))
        self.assertIn("UNISONO_TIMOUT_SECONDS is not a setting", warnings)

    def test_an_address_where_no_machine_can_be_is_the_only_problem(self):
        for address, form in (
            ("alpha:29500", "give 29500 as MASTER_PORT"),
            ("::1:29574", "give 29574 as MASTER_PORT"),
            ("fe80::1", "write fe80::1%eth0"),
            ("256.1.1.1", "from 0 to 255"),
        ):
            with self.subTest(address):
                result = run("--json", RANK="0", WORLD_SIZE="2", MASTER_ADDR=address)
                problems = self.problems_of(result)
                self.assertEqual(len(problems), 1, problems)
                self.assertIn(f'MASTER_ADDR="{address}" is not a valid host', problems[0])
                self.assertIn(form, problems[0])
                self.assertNotIn("secret", problems[0])

    def test_the_rank_of_a_wrong_start_is_told_where_it_can_be_read(self):
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
        for variables, ranks in (
            ({"RANK": "7"}, []),
            ({"RANK": "x"}, []),
            ({"RANK": "1", "MASTER_PORT": "x"}, [1]),
        ):
            with self.subTest(**variables):
                report = json.loads(run("--json", **place, **variables).stdout)
                self.assertEqual(report["nodes"][0]["ranks"], ranks)
                for row in report["findings"]:
                    self.assertEqual(row["ranks"], ranks, row)

    def test_a_port_in_use_names_its_holder(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = str(server.getsockname()[1])
            alone = run("--json", MASTER_PORT=port)
            first = run(
                "--json",
                "--timeout",
                "1",
                MASTER_PORT=port,
                MASTER_ADDR="127.0.0.1",
                RANK="0",
                WORLD_SIZE="2",
            )
        holder = f"MASTER_PORT {port} is held by process {os.getpid()} "
        self.assertEqual([p.startswith(holder) for p in self.problems_of(alone)], [True])
        self.assertIn(True, [p.startswith(holder) for p in self.problems_of(first)])

    def test_a_secret_is_never_shown(self):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "secret"
            path.write_text("never to be shown")
            path.chmod(0o644)
            result = run("--json", UNISONO_SECRET_FILE=str(path))
            self.assertTrue(any("has mode 0644" in p for p in self.problems_of(result)))
            self.assertNotIn("never to be shown", result.stdout)
        result = run(UNISONO_SECRET="never to be shown")
        self.assertIn("from UNISONO_SECRET", result.stdout)
        self.assertNotIn("never to be shown", result.stdout + result.stderr)

    def test_any_bytes_in_a_variable_make_good_json(self):
        environment_of_bytes = {k.encode(): v.encode() for k, v in environment().items()}
        environment_of_bytes[b"MASTER_PORT"] = b'\xff"\n\x1b[2J'
        result = subprocess.run(
            [UNISONO, "doctor", "--json"],
            capture_output=True,
            timeout=TIMEOUT,
            env=environment_of_bytes,
        )
        self.assertEqual(result.returncode, 1)
        self.assertEqual(json.loads(result.stdout.decode("utf-8"))["problems"], 1)

    def test_ranks_of_a_job_are_one_table(self):
        launcher = [UNISONO, "run", "-n", "2"]
        result = run("--all", launcher=launcher)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        name = socket.gethostname()
        self.assertEqual(result.stdout.count("unisono doctor on"), 1)
        self.assertTrue(result.stdout.startswith(f"unisono doctor on {name} (ranks 0-1): "))
        self.assertIn("rank 1: started by unisono run: rank 1 of 2", result.stdout)
        self.assertIn(f"within {name}", result.stdout)

        result = run("--json", launcher=launcher)
        self.assertEqual(self.problems_of(result), [])
        report = json.loads(result.stdout)
        self.assertEqual(report["nodes"], [{"name": name, "ranks": [0, 1]}])
        (pair,) = report["pairs"]
        self.assertEqual(pair["ranks"], [0, 1])
        self.assertGreater(pair["latency_us"], 0)
        self.assertGreater(pair["bandwidth_gb_per_s"], 0)
        self.assertGreater(pair["bandwidth_back_gb_per_s"], 0)
        # One machine has one clock. The allowance of one millisecond covers a clock adjustment
        # during the test.
        self.assertLess(
            abs(pair["clock_difference_us"]), pair["clock_uncertainty_us"] + 1000, result.stdout
        )

    def test_equal_problems_of_ranks_are_one_row(self):
        result = run("--json", launcher=[UNISONO, "run", "-n", "2"], UNISONO_PIZZA="1")
        report = json.loads(result.stdout)
        rows = [row for row in report["findings"] if "UNISONO_PIZZA" in row["text"]]
        self.assertEqual([row["ranks"] for row in rows], [[0, 1]])

    def test_a_meeting_that_fails_is_the_first_problem(self):
        result = run(
            "--timeout",
            "3",
            RANK="0",
            WORLD_SIZE="2",
            LOCAL_RANK="2",
            LOCAL_WORLD_SIZE="3",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(free_port()),
        )
        self.assertEqual(result.returncode, 1)
        lines = result.stdout.splitlines()
        self.assertIn(", rank 0: 2 problems", lines[0])
        self.assertTrue(lines[2].startswith("problem  job"), result.stdout)
        self.assertIn("rank 1", " ".join(lines[2:5]))

    def test_wrong_usage(self):
        for arguments in (["--loud"], ["--timeout", "0"], ["patient"]):
            result = run(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("error", result.stderr)


class Nodes:
    """Network namespaces with cables from the first to each other one: nodes that the kernel keeps
    apart. The others reach the first one's address 10.213.78.1, but not each other."""

    def __init__(self, test, n_nodes, n_local_ranks):
        if os.geteuid() != 0:
            test.skipTest("network namespaces take root")
        self.n_ranks = n_nodes * n_local_ranks
        self.n_local_ranks = n_local_ranks
        self.names = [f"unisono-doctor-{os.getpid()}-{i}" for i in range(n_nodes)]
        for name in self.names:
            try:
                self.ip("netns", "add", name)
            except subprocess.CalledProcessError as error:
                test.skipTest(f"no network namespaces here: {error.stderr}")
            test.addCleanup(self.ip, "netns", "del", name)
            self.ip("-n", name, "link", "set", "lo", "up")
        for i in range(1, n_nodes):
            self.connect(i)

    def connect(self, i):
        first, other = self.names[0], self.names[i]
        near, far = f"10.213.{77 + i}.1", f"10.213.{77 + i}.2"
        self.ip(*f"link add d{i} netns {first} type veth peer name d0 netns {other}".split())
        for name, device, address in ((first, f"d{i}", near), (other, "d0", far)):
            self.ip("-n", name, "address", "add", address + "/24", "dev", device)
            self.ip("-n", name, "link", "set", device, "up")
        if i > 1:
            self.ip("-n", other, "route", "add", "10.213.78.1", "via", near)

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

    def run(self, *arguments, variables=lambda rank: {}):
        """Output, complaints and exit code of each rank."""
        processes = [
            start(
                *arguments,
                launcher=["ip", "netns", "exec", self.names[rank // self.n_local_ranks]],
                RANK=str(rank),
                WORLD_SIZE=str(self.n_ranks),
                LOCAL_RANK=str(rank % self.n_local_ranks),
                LOCAL_WORLD_SIZE=str(self.n_local_ranks),
                OMP_NUM_THREADS="1",
                MASTER_ADDR="10.213.78.1",
                MASTER_PORT="29500",
                UNISONO_SECRET="known to all of them",
                **variables(rank),
            )
            for rank in range(self.n_ranks)
        ]
        return [(*p.communicate(timeout=TIMEOUT), p.returncode) for p in processes]


class SeveralNodes(unittest.TestCase):
    def test_nodes_and_their_links_are_in_one_report(self):
        results = Nodes(self, 2, 2).run("--json")
        for out, err, code in results:
            self.assertEqual(code, 0, out + err)
        self.assertEqual([out for out, _, _ in results[1:]], [""] * 3)
        report = json.loads(results[0][0])
        name = socket.gethostname()
        self.assertEqual(
            report["nodes"],
            [
                {"name": f"{name}/10.213.78.1", "ranks": [0, 1]},
                {"name": f"{name}/10.213.78.2", "ranks": [2, 3]},
            ],
        )
        self.assertEqual([pair["ranks"] for pair in report["pairs"]], [[0, 1], [0, 2], [2, 3]])
        data = [row for row in report["findings"] if row["topic"] == "data"]
        self.assertEqual([row["ranks"] for row in data], [[0, 1], [2, 3]])
        self.assertIn("10.213.78.2", data[1]["text"])

    def test_a_finding_of_one_node_is_that_nodes(self):
        results = Nodes(self, 2, 2).run(
            variables=lambda rank: {"UNISONO_PIZZA": "1"} if rank > 1 else {}
        )
        out, err, code = results[0]
        self.assertEqual(code, 0, out + err)
        name = socket.gethostname()
        self.assertIn(f"node {name}/10.213.78.2: UNISONO_PIZZA is no", out)
        self.assertIn(f"{name}/10.213.78.1 - {name}/10.213.78.2 ", out)

    def test_nodes_that_do_not_reach_each_other_are_named(self):
        results = Nodes(self, 3, 1).run("--json")
        self.assertEqual([code for _, _, code in results], [1, 0, 0], results)
        report = json.loads(results[0][0])
        problems = [row for row in report["findings"] if row["state"] == "problem"]
        self.assertEqual([row["ranks"] for row in problems], [[1], [2]])
        self.assertIn("can't connect to rank 2 ", problems[0]["text"])
        self.assertIn("10.213.79.2", problems[0]["text"])
        self.assertIn("unreachable", problems[0]["text"])
        self.assertEqual([pair["ranks"] for pair in report["pairs"]], [[0, 1], [0, 2]])


if __name__ == "__main__":
    unittest.main()
