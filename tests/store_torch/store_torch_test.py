"""PyTorch's store client against our server, and our client against PyTorch's servers."""

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

PEER = sys.argv.pop(1)
UNISONO = sys.argv.pop(1)
TIMEOUT = timedelta(seconds=60)
SHORT = timedelta(milliseconds=50)
BINARY = bytes(range(256)) * 1000


class OurServer:
    """store_peer serve, for the length of a with block."""

    def __enter__(self):
        self.process = subprocess.Popen(
            [PEER, "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0

    def client(self, **options):
        options = {"is_master": False, "timeout": TIMEOUT, "wait_for_workers": False, **options}
        return dist.TCPStore("127.0.0.1", self.port, **options)


class OurClient:
    """store_peer client; a call per method, bytes and str as text, int as number."""

    def __init__(self, port):
        self.process = subprocess.Popen(
            [PEER, "client", "127.0.0.1", str(port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0

    def call(self, name, *args):
        words = [name]
        for arg in args:
            text = arg.encode() if isinstance(arg, str) else arg
            words.append(str(arg) if isinstance(arg, int) else "x" + text.hex())
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def text(self, name, *args):
        return self.texts(name, *args)[0]

    def texts(self, name, *args):
        return [bytes.fromhex(word[1:]) for word in self.call(name, *args).split(" ")]


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


class OurClientTorchServer:
    """The same for both of PyTorch's servers."""

    use_libuv = True

    def setUp(self):
        self.server = dist.TCPStore(
            "127.0.0.1",
            0,
            is_master=True,
            timeout=TIMEOUT,
            wait_for_workers=False,
            use_libuv=self.use_libuv,
        )
        self.client = self.enterContext(OurClient(self.server.port))

    def test_values(self):
        call, text = self.client.call, self.client.text
        self.assertEqual(call("set", "k", "value"), "ok")
        self.assertEqual(text("get", 60000, "k"), b"value")
        self.assertEqual(self.server.get("k"), b"value")
        self.server.set("binary", BINARY)
        self.assertEqual(text("get", 60000, "binary"), BINARY)
        self.assertEqual(call("append", "k", " and more"), "ok")
        self.assertEqual(call("multi_set", "m1", "1", "m2", ""), "ok")
        self.assertEqual(
            self.client.texts("multi_get", 60000, "k", "m1", "m2"), [b"value and more", b"1", b""]
        )
        self.assertEqual(call("check", "k", "m1"), "true")
        self.assertEqual(call("check", "k", "missing"), "false")
        self.assertEqual(call("try_get", "missing"), "none")
        self.assertEqual(text("try_get", "m1"), b"1")
        self.assertEqual(call("add", "n", 5), "5")
        self.assertEqual(call("add", "n", -7), "-2")
        self.assertEqual(text("compare_set", "new", "", "1"), b"1")
        self.assertEqual(text("compare_set", "new", "0", "2"), b"1")
        self.assertEqual(call("num_keys"), str(self.server.num_keys()))
        self.assertEqual(call("delete_key", "new"), "true")
        self.assertEqual(call("delete_key", "new"), "false")

    def test_waits(self):
        setter = threading.Thread(target=lambda: self.server.set("late", "here"))
        setter.start()
        self.assertEqual(self.client.text("get", 60000, "late"), b"here")
        setter.join()
        for _ in range(3):
            answer = self.client.call("wait", 20, "late", "never")
            self.assertRegex(answer, '^error Timeout .*no "never" within')
            answer = self.client.call("get", 20, "never")
            self.assertRegex(answer, '^error Timeout .*get: no "never" within')
        self.assertEqual(self.client.text("get", 60000, "late"), b"here")


class OurClientTorchLibuvServer(OurClientTorchServer, unittest.TestCase):
    def test_queues_lists_and_barriers(self):
        call, text = self.client.call, self.client.text
        self.assertEqual(call("try_queue_pop", "q"), "none")
        # A push has no answer; a length on the same connection comes after it.
        self.assertEqual(call("queue_push", "q", "1"), "ok")
        self.assertEqual(call("queue_len", "q"), "1")
        self.server.queue_push("q", "2")
        self.assertEqual(self.server.queue_len("q"), 2)
        self.assertEqual(call("queue_len", "q"), "2")
        self.assertEqual(text("queue_pop", 60000, "q"), b"1")
        self.assertEqual(self.server.queue_pop("q"), b"2")
        self.assertRegex(call("queue_pop", 20, "q"), '^error Timeout .*queue_pop: no "q"')
        call("set", "k", "")
        self.assertEqual(self.client.texts("list_keys"), [b"k"])
        self.assertRegex(call("barrier", 20, "b", 2), "^error Timeout .*1 of 2 came")
        self.assertEqual(call("barrier", 60000, "b", 2), "ok")


class OurClientTorchLegacyServer(OurClientTorchServer, unittest.TestCase):
    use_libuv = False


if __name__ == "__main__":
    print("torch", torch.__version__)
    unittest.main(verbosity=2)
