"""Attacks on jobs of two ranks that have a secret, on loopback and at all addresses (0.0.0.0).

While the job starts, before rank 1 has come, at the store's port, and while it runs, at the store's
port and at both ranks' data ports:

- silent: 200 connections that say nothing, and one that says a valid hello, a byte a second;
- junk: random bytes, an HTTP request, a TLS ClientHello, a plain client's words, a hello of another
  version, a hello without and with a wrong secret, one that breaks off; a scanner's connect and
  close, and connect and reset.

And, each in a job of its own:

- more silent connections than rank 0 has descriptors;
- another job on the same port: its rank 0, and its rank 1, with another secret and without one.

The job does not notice. Who said something is dropped, with a line in the log of the rank that it
came to, which has its address and the reason; who said nothing or not enough, when its time is up.
"""

from __future__ import annotations

import contextlib
import random
import socket
import ssl
import struct
import threading
import unittest

import support
import wire
from support import Job
from wire import Stranger

N_SILENT = 200
# A port reports at most 100 strangers in 10 s individually.
N_NAMED = 30
NO_SECRET = "did not authenticate with the job's secret"
NO_TLS = "it uses TLS, which this store does not"
BREAK_OFF = {
    "store": "it ended the connection before it was admitted",
    "data": "it ended the connection during its hello",
}
TOO_LATE = {"store": "did not send its first request in time", "data": "did not finish its hello"}
FOREIGN = {
    "store": "it does not use a store's protocol",
    "data": "does not use this library's protocol",
}


def client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="a")
    with contextlib.suppress(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()


def of_version(version: int) -> bytes:
    hello = wire.greeting()
    return hello[:8] + struct.pack("<H", version) + hello[10:]


def junk(port_kind: str) -> dict[str, tuple[bytes, str]]:
    """What is said, and the reason for which who says it is dropped."""
    plain = wire.VALIDATE + wire.requests()["ping"] + wire.requests()["set"]
    foreign = FOREIGN[port_kind]
    return {
        "random": (b"\x9d" + random.Random(1).randbytes(4095), foreign),
        "http": (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", foreign),
        "tls": (client_hello(), NO_TLS if port_kind == "store" else foreign),
        "plain": (plain, "it is a plain client" if port_kind == "store" else foreign),
        "version": (of_version(9), "uses protocol version 9"),
        "length": (wire.MAGIC + struct.pack("<HH", 1, 65535), "claims 65535 bytes"),
    }


class Port:
    """A port of a rank, and how its rank says that it drops somebody there."""

    def __init__(self, kind: str, number: int, rank: support.Process) -> None:
        self.kind = kind
        self.number = number
        self.rank = rank

    def expect_drop(self, stranger: Stranger, reason: str) -> None:
        says = "dropped {}: " if self.kind == "store" else "rejected {} at the data port: "
        stranger.read_until_dropped()
        line = self.rank.wait_for(says.format(stranger.name))
        assert reason in line, f'not "{reason}": {line}'

    def visit_with_junk(self) -> None:
        for words, reason in junk(self.kind).values():
            stranger = Stranger(self.number)
            stranger.send(words)
            self.expect_drop(stranger, reason)
            stranger.close()

    def visit_without_the_secret(self) -> None:
        for secret in (b"", b"guessed", support.SECRET.encode()[:-1]):
            stranger = Stranger(self.number)
            verdict = stranger.say_hello(secret, purpose=self.kind.encode())
            assert verdict == b"\x01" + bytes(32), verdict
            self.expect_drop(stranger, NO_SECRET)
            stranger.close()

    def scan(self) -> None:
        Stranger(self.number).close()
        reset = Stranger(self.number)
        reset.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reset.close()

    def break_off(self) -> None:
        stranger = Stranger(self.number)
        stranger.send(wire.greeting()[:20])
        stranger.socket.shutdown(socket.SHUT_WR)
        self.expect_drop(stranger, BREAK_OFF[self.kind])
        stranger.close()

    def attack(self) -> None:
        self.visit_with_junk()
        self.visit_without_the_secret()
        self.scan()
        self.break_off()


class SlowStrangers:
    """Connections that occupy a port: silent ones, and one that says a byte of a hello a second."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.silent = [Stranger(port.number) for _ in range(N_NAMED)]
        self.slow = Stranger(port.number)
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.speak)
        self.thread.start()

    def speak(self) -> None:
        for byte in wire.greeting():
            self.slow.send(bytes([byte]))
            if self.is_over.wait(1):
                return

    def expect_drops(self) -> None:
        for stranger in [self.slow, *self.silent]:
            self.port.expect_drop(stranger, TOO_LATE[self.port.kind])
        self.close()

    def close(self) -> None:
        self.is_over.set()
        self.thread.join()
        for stranger in [self.slow, *self.silent]:
            stranger.close()


class AttackedJob:
    def __init__(self, test: unittest.TestCase, address: str) -> None:
        self.job = Job(address)
        test.addCleanup(self.job.close)
        self.first = self.job.start_first()
        store = Port("store", self.job.port, self.first)
        self.slow = [self.occupy(test, store)]
        store.attack()
        self.second = self.job.start(1)
        ports = [store]
        for rank in (self.first, self.second):
            number = rank.wait_for("data port ").rpartition(" ")[2]
            ports.append(Port("data", int(number), rank))
        for rank in (self.first, self.second):
            rank.wait_for("streaming")
        self.slow += [self.occupy(test, port) for port in ports]
        for port in ports:
            port.attack()

    @staticmethod
    def occupy(test: unittest.TestCase, port: Port) -> SlowStrangers:
        strangers = SlowStrangers(port)
        test.addCleanup(strangers.close)
        return strangers

    def expect_a_good_end(self, test: unittest.TestCase) -> None:
        for strangers in self.slow:
            strangers.expect_drops()
        expect_a_good_end(test, self.first, self.second)


def expect_a_good_end(test: unittest.TestCase, *ranks: support.Process) -> None:
    """Of a job that noticed nothing: its ranks write of strangers only."""
    ranks[0].close_stdin()
    for rank in ranks:
        test.assertEqual(rank.finish(), 0, rank.err)
        test.assertIn("done\n", rank.out)
        for line in rank.err.splitlines():
            test.assertRegex(line, "dropped 127|rejected 127", rank.err)


class TestJob(unittest.TestCase):
    def test_strangers_at_its_ports_change_nothing(self):
        # 127.1 is another spelling of 127.0.0.1: rank 0 then listens at all addresses.
        jobs = [AttackedJob(self, address) for address in ("127.0.0.1", "127.1")]
        for job in jobs:
            job.expect_a_good_end(self)

    def test_silent_strangers_leave_descriptors_to_others(self):
        job = Job()
        self.addCleanup(job.close)
        first = job.start_first(n_descriptors=128)
        silent = [Stranger(job.port) for _ in range(N_SILENT)]
        first.wait_for("32 clients have not sent their first request")
        self.assertLess(first.n_descriptors(), 64)
        first.wait_for("it did not send its first request, and other clients wait")
        second = job.start(1)
        for rank in (first, second):
            rank.wait_for("streaming")
        self.assertLess(first.n_descriptors(), 64)
        for stranger in silent:
            stranger.close()
        first.close_stdin()
        for rank in (first, second):
            self.assertEqual(rank.finish(), 0, rank.err)

    def test_another_job_on_its_port_is_told_so(self):
        job = Job()
        other = Job(secret="another job's")
        other.port = job.port
        self.addCleanup(job.close)
        self.addCleanup(other.close)
        first = job.start_first()
        others = [
            (other.start(0), f"in use by process {first.pid}"),
            (other.start(1), "has another secret"),
            (other.start(1, UNISONO_SECRET=""), "UNISONO_SECRET"),
        ]
        for rank, complaint in others:
            self.assertEqual(rank.finish(), 1, rank.err)
            self.assertIn(complaint, rank.err)
            self.assertIn(str(job.port), rank.err)
        first.wait_for(NO_SECRET)
        second = job.start(1)
        second.wait_for("streaming")
        expect_a_good_end(self, first, second)


if __name__ == "__main__":
    unittest.main()
