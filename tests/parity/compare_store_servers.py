#!/usr/bin/env python3
"""Our store client against PyTorch's servers."""

import threading
import unittest

import torch
import torch.distributed as dist
from peers import BINARY, TIMEOUT, OurClient


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
