"""Attacks by somebody on the path between a rank and the store, or with a record of what was said.

- a rank's whole conversation with the store said again, to the store and to both data ports;
- a server's side of it said again, to a client;
- one bit of the hello changed on its way: each field of both greetings, both proofs, the verdict.

(Whoever can change what is said after the hello is not kept out: docs/design/hello.md.)
"""

from __future__ import annotations

import unittest

from relay import Change, Impostor, Relay
from support import SECRET, Job, Server, run_store
from wire import Stranger

# Offsets of the fields in a hello for "store" without a job name.
GREETING = {
    "magic": 0,
    "version": 8,
    "length": 10,
    "nonce": 12,
    "job": 44,
    "purpose": 60,
    "rank": 65,
    "group": 69,
    "proof or verdict": 73,
    "end of the proof": 104,
}


class TestPath(unittest.TestCase):
    def relay(self, target: int, change: Change | None = None) -> Relay:
        relay = Relay(target, change)
        self.addCleanup(relay.close)
        return relay

    def test_a_record_opens_nothing(self):
        job = Job()
        self.addCleanup(job.close)
        first = job.start_first()
        relay = self.relay(job.port)
        second = job.start(1, MASTER_PORT=str(relay.port))
        ports = [(job.port, first, ": ")]
        for rank in (first, second):
            data_port = int(rank.wait_for("data port ").rpartition(" ")[2])
            ports.append((data_port, rank, " at the data port: "))
            rank.wait_for("streaming")
        self.assertIn(b"unisono/0/count", relay.said["client"])
        for port, rank, follows in ports:
            stranger = Stranger(port)
            stranger.send(relay.said["client"])
            stranger.read_until_dropped()
            stranger.close()
            line = rank.wait_for(stranger.name + follows)
            self.assertIn("did not authenticate with the job's secret", line)
        self.assertEqual(run_store(job.port, "get", "unisono/0/count", secret=SECRET).stdout, "2\n")
        first.close_stdin()
        for rank in (first, second):
            self.assertEqual(rank.finish(), 0, rank.err)

    def test_a_servers_words_said_again_are_not_believed(self):
        server = Server(secret=SECRET)
        self.addCleanup(server.kill)
        relay = self.relay(server.port)
        self.assertEqual(run_store(relay.port, "set", "k", "1", secret=SECRET).returncode, 0)
        impostor = Impostor(relay.said["server"])
        self.addCleanup(impostor.close)
        done = run_store(impostor.port, "get", "k", secret=SECRET)
        self.assertEqual(done.returncode, 1)
        self.assertIn("did not authenticate with the job's secret", done.stderr)
        self.assertIn(f"127.0.0.1:{impostor.port}", done.stderr)

    def test_no_bit_of_a_hello_can_be_changed(self):
        server = Server(secret=SECRET)
        self.addCleanup(server.kill)
        self.assertEqual(run_store(server.port, "set", "k", "1", secret=SECRET).returncode, 0)
        for speaker in ("client", "server"):
            for field, offset in GREETING.items():
                with self.subTest(speaker=speaker, field=field):
                    relay = self.relay(server.port, Change(speaker, offset))
                    done = run_store(relay.port, "set", "k", "2", secret=SECRET)
                    self.assertEqual(done.returncode, 1, done.stderr)
                    self.assertIn(str(relay.port), done.stderr)
        done = run_store(server.port, "get", "k", secret=SECRET)
        self.assertEqual(done.stdout, "1\n")

    def test_a_rank_whose_hello_is_changed_ends_and_may_come_again(self):
        job = Job()
        self.addCleanup(job.close)
        first = job.start_first()
        relay = self.relay(job.port, Change("client", GREETING["rank"]))
        changed = job.start(1, MASTER_PORT=str(relay.port))
        self.assertEqual(changed.finish(), 1)
        self.assertIn(f"127.0.0.1:{relay.port}", changed.err)
        self.assertIn("secret", changed.err)
        first.wait_for("did not authenticate with the job's secret")
        second = job.start(1)
        second.wait_for("streaming")
        first.close_stdin()
        for rank in (first, second):
            self.assertEqual(rank.finish(), 0, rank.err)


if __name__ == "__main__":
    unittest.main()
