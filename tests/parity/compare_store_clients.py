"""PyTorch's store client against our servers."""

import os
import subprocess
import sys
import tempfile
import threading
import unittest
import unittest.mock
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from peers import BINARY, TIMEOUT, UNISONO, CuttingRelay, OurClient, OurServer, torch_client

SHORT = timedelta(milliseconds=50)


class TorchClientOurServer(unittest.TestCase):
    def setUp(self):
        self.server = self.enterContext(OurServer())
        self.store = self.server.client()

    def test_values(self):
        store = self.store
        store.set("k", "value")
        self.assertEqual(store.get("k"), b"value")
        store.set("binary", BINARY)
        self.assertEqual(store.get("binary"), BINARY)
        store.set("empty", "")
        self.assertEqual(store.get("empty"), b"")
        store.append("k", " and more")
        store.append("new", "x")
        self.assertEqual(store.multi_get(["k", "new"]), [b"value and more", b"x"])
        store.multi_set(["m1", "m2"], ["1", BINARY])
        self.assertEqual(store.multi_get(["m2", "m1"]), [BINARY, b"1"])
        self.assertTrue(store.check(["k", "m1"]))
        self.assertFalse(store.check(["k", "missing"]))
        self.assertEqual(store.num_keys(), 6)
        self.assertEqual(sorted(store.list_keys()), ["binary", "empty", "k", "m1", "m2", "new"])
        self.assertTrue(store.delete_key("k"))
        self.assertFalse(store.delete_key("k"))
        self.assertEqual(store.num_keys(), 5)

    def test_numbers(self):
        self.assertEqual(self.store.add("n", 3), 3)
        self.store.set("n", "5")
        self.assertEqual(self.store.add("n", -7), -2)
        self.assertEqual(self.store.get("n"), b"-2")

    def test_compare_set(self):
        store = self.store
        self.assertEqual(store.compare_set("k", "expected", "new"), b"expected")
        self.assertEqual(store.compare_set("k", "", "new"), b"new")
        self.assertEqual(store.compare_set("k", "old", "newer"), b"new")
        self.assertEqual(store.compare_set("k", "new", "newer"), b"newer")

    def test_waits(self):
        other = self.server.client()
        setter = threading.Thread(target=lambda: other.set("late", "here"))
        setter.start()
        self.assertEqual(self.store.get("late"), b"here")
        setter.join()
        for _ in range(3):
            with self.assertRaisesRegex(dist.DistStoreError, "never"):
                self.store.wait(["late", "never"], SHORT)
        self.assertEqual(self.store.get("late"), b"here")

    def test_queues(self):
        store = self.store
        with self.assertRaises(dist.DistStoreError):
            store.queue_pop("q", False)
        store.queue_push("q", "1")
        store.queue_push("q", BINARY)
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual(store.queue_pop("q"), b"1")
        self.assertEqual(store.queue_pop("q", False), BINARY)
        other = self.server.client()
        pusher = threading.Thread(target=lambda: other.queue_push("q", "late"))
        pusher.start()
        self.assertEqual(store.queue_pop("q"), b"late")
        pusher.join()

    def test_large_values(self):
        limit = 8 << 20  # As PyTorch's server has it.
        value = os.urandom(limit)
        other = self.server.client()
        keys = [f"large/{n}" for n in range(8)]
        for n, key in enumerate(keys):
            other.set(key, value[n:] + value[:n])
        self.assertEqual(other.num_keys(), 8)
        values = self.store.multi_get(keys)
        self.assertEqual(sum(len(each) for each in values), 64 << 20)
        for n, each in enumerate(values):
            self.assertTrue(each == value[n:] + value[:n], n)
        self.store.append("appended", value[: limit // 2])
        self.store.append("appended", value[limit // 2 :])
        self.assertTrue(self.store.get("appended") == value)
        self.store.queue_push("q", value)
        self.assertTrue(other.queue_pop("q") == value)

    def test_a_value_beyond_the_limit_loses_only_that_client(self):
        for call in ("set", "append", "queue_push"):
            with self.subTest(call=call):
                bad = self.server.client()
                with self.assertRaises(dist.DistNetworkError):
                    getattr(bad, call)("k", b"x" * ((8 << 20) + 1))
                    bad.num_keys()
                self.assertFalse(self.store.check(["k"]))

    def test_requests_and_replies_in_many_pieces(self):
        with CuttingRelay(self.server.port) as relay:
            store = torch_client(relay.port)
            store.set("k", BINARY[:10_000])
            self.assertEqual(store.get("k"), BINARY[:10_000])
            store.multi_set([f"m{n}" for n in range(50)], [str(n) * n for n in range(50)])
            names = [f"m{n}" for n in reversed(range(50))]
            self.assertEqual(
                store.multi_get(names), [(str(n) * n).encode() for n in range(49, -1, -1)]
            )
            self.assertEqual(store.add("n", -(2**40)), -(2**40))
            self.assertEqual(store.compare_set("c", b"", BINARY[:300]), BINARY[:300])
            self.assertEqual(len(store.list_keys()), 53)
            with self.assertRaisesRegex(dist.DistStoreError, "never"):
                store.wait(["k", "never"], SHORT)
            store.queue_push("q", BINARY[:3000])
            self.assertEqual(store.queue_pop("q"), BINARY[:3000])
            self.assertTrue(store.delete_key("k"))
        self.assertGreater(relay.n_pieces, 4000)

    def test_keys_of_any_bytes(self):
        store = self.store
        keys = [b"", b"/", b"\x00", b"\xff\x00\x80", b"\n/ \x1b[2J", b"k" * 8000]
        for n, key in enumerate(keys):
            store.set(key, str(n))
        self.assertEqual(store.num_keys(), len(keys))
        self.assertEqual(store.multi_get(keys), [str(n).encode() for n in range(len(keys))])
        self.assertTrue(store.check(keys))
        self.assertFalse(store.check([b"\xff"]))
        self.assertEqual(store.add(b"\xff\x00\x80", 5), 8)
        store.queue_push(b"\x00q\xff", "1")
        self.assertEqual(self.server.client().queue_pop(b"\x00q\xff"), b"1")
        with OurClient(self.server.port) as ours:
            self.assertEqual(sorted(ours.texts("list_keys")), sorted(keys))
        for key in keys:
            self.assertTrue(store.delete_key(key))
        self.assertEqual(store.num_keys(), 0)

    def test_a_wait_that_ends_as_its_key_comes(self):
        """The answer may cross the cancellation: either way the connection goes on."""
        other = self.server.client()
        n_late = 0
        for n in range(200):
            # The timing is the subject of this test: the key is set at times from before the end of
            # the wait to after the end.
            setter = threading.Timer((n % 40) * 0.0001, other.set, (f"k{n}", "value"))
            setter.start()
            try:
                self.store.wait([f"k{n}"], timedelta(milliseconds=2))
            except dist.DistStoreError:
                n_late += 1
            setter.join()
            self.assertEqual(self.store.get(f"k{n}"), b"value")
        print(f"{n_late} of 200 waits ended before their key came")

    def test_a_pop_that_was_given_up_takes_nothing(self):
        self.store.set_timeout(SHORT)
        for _ in range(3):
            with self.assertRaisesRegex(dist.DistStoreError, "/q"):
                self.store.queue_pop("q")
            self.assertEqual(self.store.queue_len("q"), 0)
        other = self.server.client()
        other.queue_push("q", "1")
        self.assertEqual(other.queue_len("q"), 1)
        self.assertEqual(other.queue_pop("q"), b"1")
        # A client that still waits gets the value, although an earlier client has timed out.
        self.store.set_timeout(TIMEOUT)
        pusher = threading.Thread(target=lambda: other.queue_push("q", "2"))
        pusher.start()
        self.assertEqual(self.store.queue_pop("q"), b"2")
        pusher.join()

    def test_a_wait_for_a_queue_ends_with_the_first_value(self):
        other = self.server.client()
        pusher = threading.Thread(target=lambda: other.queue_push("q", "1"))
        pusher.start()
        self.store.wait(["q"])
        pusher.join()
        self.assertTrue(self.store.check(["q"]))
        self.assertEqual(self.store.queue_pop("q", False), b"1")
        self.assertFalse(self.store.check(["q"]))

    def test_barrier(self):
        for name in ("first", "second"):
            clients = [self.server.client() for _ in range(3)]
            threads = [threading.Thread(target=c.barrier, args=(name, 3)) for c in clients[1:]]
            for thread in threads:
                thread.start()
            clients[0].barrier(name, 3)
            for thread in threads:
                thread.join()
        self.assertEqual(self.store.get("first"), b"3")

    def test_a_barrier_that_not_all_come_to(self):
        with self.assertRaises(dist.DistStoreError):
            self.store.barrier("b", 2, SHORT)
        # The first call has been counted.
        self.store.barrier("b", 2)
        self.assertEqual(self.store.get("b"), b"2")

    def test_a_clone_is_a_connection_of_its_own(self):
        clone = self.store.clone()
        waiter = threading.Thread(target=self.store.wait, args=(["k"],))
        waiter.start()
        clone.set("k", "1")
        waiter.join()
        self.assertEqual(clone.get("k"), b"1")

    def test_worker_count_of_the_constructor(self):
        clients = []
        threads = [
            threading.Thread(target=lambda: clients.append(self.server.client(world_size=3)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(len(clients), 3)

    def test_prefix_store(self):
        dist.PrefixStore("job", self.store).set("k", "1")
        self.assertEqual(self.store.get("job/k"), b"1")

    def test_adding_to_text_loses_only_that_client(self):
        bad = self.server.client()
        bad.set("k", "text")
        with self.assertRaises(dist.DistNetworkError):
            bad.add("k", 1)
        self.assertEqual(self.store.get("k"), b"text")

    def test_sees_what_our_client_wrote(self):
        with OurClient(self.server.port) as ours:
            self.assertEqual(ours.call("set", "k", BINARY[:1000]), "ok")
            self.assertEqual(ours.call("num_keys"), "1")
            self.assertEqual(self.store.get("k"), BINARY[:1000])
            self.store.set("back", "1")
            self.assertEqual(ours.text("get", 60000, "back"), b"1")

    def test_gloo_meets_through_it(self):
        program = (
            "import torch, torch.distributed as dist\n"
            "dist.init_process_group('gloo')\n"
            "t = torch.ones(4) * (dist.get_rank() + 1)\n"
            "dist.all_reduce(t)\n"
            "dist.barrier()\n"
            "assert t.tolist() == [3.0] * 4, t\n"
            "dist.destroy_process_group()\n"
        )
        env = dict(
            os.environ,
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(self.server.port),
            WORLD_SIZE="2",
            TORCHELASTIC_USE_AGENT_STORE="True",
            GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
        )
        ranks = [
            subprocess.Popen([sys.executable, "-c", program], env=dict(env, RANK=str(rank)))
            for rank in range(2)
        ]
        self.assertEqual([rank.wait(timeout=120) for rank in ranks], [0, 0])


class LaunchersServer(unittest.TestCase):
    """Scripts that know nothing of Unisono meet through the store of `unisono run`."""

    GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
t = torch.ones(2)
dist.all_reduce(t)
print(dist.get_rank(), t.tolist())
dist.destroy_process_group()
"""
    CLIENT = """
import datetime, os, torch.distributed as dist
address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
store = dist.TCPStore(*address, is_master=False, timeout=datetime.timedelta(seconds=3))
print(store.add("n", 1))
"""

    def run_ranks(self, *command):
        env = {k: v for k, v in os.environ.items() if not k.startswith("UNISONO_SECRET")}
        return subprocess.run(
            [UNISONO, "run", *command],
            capture_output=True,
            text=True,
            timeout=120,
            env={**env, "GLOO_SOCKET_IFNAME": "lo"},
        )

    def script(self, text):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = Path(folder) / "script.py"
        path.write_text(text)
        return str(path)

    def test_a_script_runs_unchanged(self):
        python = str(Path(sys.executable).parent)
        with unittest.mock.patch.dict(os.environ, PATH=f"{python}:{os.environ['PATH']}"):
            done = self.run_ranks("-n", "2", self.script(self.GLOO))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 [2.0, 2.0]", "1 [2.0, 2.0]"])

    def test_a_shell_script_has_to_ask_for_it(self):
        command = ["sh", "-c", f"exec {sys.executable} {self.script(self.CLIENT)}"]
        refused = self.run_ranks("-n", "1", "--", *command)
        self.assertEqual(refused.returncode, 1)
        self.assertIn("plain client", refused.stderr)
        served = self.run_ranks("-n", "1", "--allow-plain-clients", "--", *command)
        self.assertEqual((served.returncode, served.stdout), (0, "1\n"), served.stderr)


if __name__ == "__main__":
    print("torch", torch.__version__)
    unittest.main(verbosity=2)
