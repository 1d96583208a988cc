"""Attacks by clients that the store has let in.

- killed (SIGKILL) in the middle of each kind of request, after each number of its bytes, and while
  they wait: nothing changes, nothing is left of them, memory does not grow;
- half a request that is never continued: others are served;
- lengths and counts beyond all limits, opcodes that do not exist, wrong first words, sums that are
  none, more requests behind a wait than are kept: dropped alone, with the reason in the log.

Where the store has no secret, anybody on the machine is such a client.
"""

from __future__ import annotations

import os
import struct
import sys
import unittest
from pathlib import Path

import support
import wire
from support import Process, Server, run_store
from wire import Stranger

SECRET = "secret"
HUGE = struct.pack("<Q", 1 << 62)
N_ROUNDS = 3
# Sanitizers retain freed memory.
MAX_GROWTH_BYTES = 64 << 20 if "SANITIZED" in os.environ else 1 << 20
PING = wire.requests()["ping"]

WRONG = {
    "a huge key": (b"\x03" + HUGE, "a key of 4611686018427387904 bytes"),
    "a key beyond its limit": (b"\x03" + struct.pack("<Q", 8193), "a key of 8193 bytes"),
    "a huge value": (b"\x01" + wire.text(b"/k") + HUGE, "a value of 4611686018427387904 bytes"),
    "a negative length": (b"\x01" + wire.text(b"/k") + b"\xff" * 8, "8388608 are allowed"),
    "many keys to wait for": (b"\x06" + HUGE, "a request with 4611686018427387904 keys"),
    "many keys to get": (b"\x0a" + struct.pack("<Q", 131073), "131072 are allowed"),
    "many pairs to set": (b"\x0b" + b"\xff" * 8, "131072 are allowed"),
    "many to check": (b"\x05" + HUGE, "131072 are allowed"),
    "many empty values": (
        b"\x0b"
        + struct.pack("<Q", 131072)
        + (wire.text(b"/k") + struct.pack("<Q", 8 << 20) + b"v" * (8 << 20)) * 9,
        "a request of more than 67108864 bytes",
    ),
    "an unknown request": (b"\x13", "request 19 does not exist"),
    "the hello once more": (wire.greeting(), "request 245 does not exist"),
    "a sum of text": (
        wire.requests()["set"] + b"\x04" + wire.text(b"/k") + struct.pack("<q", 1),
        "is not a decimal number",
    ),
    "a sum too large": (
        b"\x04"
        + wire.text(b"/s")
        + struct.pack("<q", (1 << 63) - 1)
        + b"\x04"
        + wire.text(b"/s")
        + struct.pack("<q", 1),
        "make a sum beyond 64 bits",
    ),
    "too much behind a wait": (
        b"\x06" + struct.pack("<Q", 1) + wire.text(b"/never") + PING * 65,
        "too many requests while it waits",
    ),
}

FIRST_WORDS = [
    (bytes(5), "its first request is not that of a store's client"),
    (wire.VALIDATE[:4] + bytes(1), "its first request is not that of a store's client"),
    (PING, "it does not use a store's protocol"),
    (wire.MAGIC + bytes(4), "protocol version 0"),
]


def validated(port: int) -> Stranger:
    client = Stranger(port)
    client.send(wire.VALIDATE + PING)
    assert client.read(4) == PING[1:]
    return client


class TestRequests(unittest.TestCase):
    def serve(self, *options: str, secret: str = "") -> Server:
        server = Server(*options, secret=secret)
        self.addCleanup(server.kill)
        return server

    def expect_it_serves(self, client: Stranger) -> None:
        client.send(PING)
        self.assertEqual(client.read(4), PING[1:])

    def kill_clients(self, server: Server) -> None:
        program = str(Path(__file__).with_name("dying_client.py"))
        for name in wire.requests():
            client = Process(sys.executable, program, str(server.port), SECRET, name)
            self.addCleanup(client.kill)
            client.wait_for("sent")
            client.process.kill()
            client.finish()

    def test_killed_clients_leave_nothing(self):
        server = self.serve(secret=SECRET)
        witness = Stranger(server.port)
        self.assertEqual(witness.say_hello(SECRET.encode())[0], 0)
        n_descriptors = server.n_descriptors()
        sizes = []
        for _ in range(N_ROUNDS):
            self.kill_clients(server)
            support.wait_until(
                lambda: server.n_descriptors() == n_descriptors, "connections stay open"
            )
            self.expect_it_serves(witness)
            sizes.append(server.memory_bytes())
        self.assertLess(sizes[-1] - sizes[0], MAX_GROWTH_BYTES, sizes)
        # Clients in a barrier have completed their request, so its key exists.
        listed = run_store(server.port, "list", secret=SECRET)
        self.assertEqual(listed.stdout, "b\n")
        # The clients that would receive this value have ended.
        self.assertEqual(run_store(server.port, "set", "never", "1", secret=SECRET).returncode, 0)
        witness.send(b"\x0e" + wire.text(b"/q") + wire.text(b"v") + b"\x10" + wire.text(b"/q"))
        self.assertEqual(witness.read(8), struct.pack("<q", 1))
        witness.close()

    def test_half_requests_hold_nobody_up(self):
        server = self.serve()
        halves = []
        for request in wire.requests().values():
            if len(request) > 1:
                halves.append(validated(server.port))
                halves[-1].send(request[: len(request) // 2])
        self.assertEqual(run_store(server.port, "set", "k", "1").returncode, 0)
        self.assertEqual(run_store(server.port, "get", "k").stdout, "1\n")
        for half in halves:
            half.close()

    def expect_drop(self, server: Server, client: Stranger, words: bytes, reason: str) -> None:
        client.send(words)
        client.read_until_dropped()
        self.assertIn(reason, server.wait_for(f"dropped {client.name}: "))
        client.close()

    def test_what_is_beyond_limits_is_dropped_alone(self):
        server = self.serve()
        witness = validated(server.port)
        sizes = []
        for _ in range(N_ROUNDS):
            for name, (request, reason) in WRONG.items():
                with self.subTest(name):
                    self.expect_drop(server, validated(server.port), request, reason)
                    self.expect_it_serves(witness)
            sizes.append(server.memory_bytes())
        self.assertLess(sizes[-1] - sizes[0], MAX_GROWTH_BYTES, sizes)
        witness.close()

    def test_wrong_first_words_are_no_clients(self):
        server = self.serve()
        for words, reason in FIRST_WORDS:
            self.expect_drop(server, Stranger(server.port), words, reason)
        self.expect_it_serves(client := validated(server.port))
        client.close()


if __name__ == "__main__":
    unittest.main()
