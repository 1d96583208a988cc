#!/usr/bin/env python3
"""unisono.Store: each call, what is refused, and what becomes of calls when things go wrong."""

import os
import signal
import subprocess
import sys
import threading
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import torch.distributed as dist
from stores import HOST, LONG, SHORT, Refusals, join, script, serve, server

import unisono


class Calls(Refusals):
    def check_all(self, store: dist.Store) -> None:
        store.set("a", "1")
        store.set("bytes", b"\0\xff")
        self.assertEqual([store.get("a"), store.get("bytes")], [b"1", b"\0\xff"])
        self.assertEqual([store.add("n", 5), store.add("n", -7)], [5, -2])
        self.assertEqual(store.get("n"), b"-2")
        self.assertTrue(store.check(["a", "n"]))
        self.assertFalse(store.check(["a", "none"]))
        self.assertEqual(store.compare_set("c", "", "x"), b"x")
        self.assertEqual(store.compare_set("c", "y", "z"), b"x")
        self.assertEqual(store.compare_set("c", "x", "z"), b"z")
        self.assertEqual(store.compare_set("none", "x", "z"), b"x")
        self.assertFalse(store.check(["none"]))
        self.assertTrue(store.has_extended_api())
        store.append("a", "23")
        store.append("new", "4")
        store.multi_set(["m1", "m2"], ["5", "6"])
        self.assertEqual(store.multi_get(["a", "new", "m2", "m1"]), [b"123", b"4", b"6", b"5"])
        store.wait(["a", "m1"])
        store.wait(["a", "m1"], SHORT)
        store.wait([], SHORT)
        self.assertEqual(store.queue_len("q"), 0)
        store.queue_push("q", "first")
        store.queue_push("q", b"second")
        self.assertEqual(store.queue_len("q"), 2)
        self.assertEqual([store.queue_pop("q"), store.queue_pop("q", False)], [b"first", b"second"])
        keys = {"a", "bytes", "n", "c", "new", "m1", "m2"}
        self.assertEqual(set(store.list_keys()), keys)
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(set(store.list_keys()), keys - {"a"})
        store.barrier("alone", 1, SHORT)

    def test_of_every_kind_of_store(self) -> None:
        other = serve()
        kinds = {
            "plain": serve(secret=""),
            "with a secret": serve(),
            "TLS": serve(tls=True),
            "clone": serve().clone(),
            "client": join(other),
            "part": dist.PrefixStore("x", serve()),
        }
        for name, store in kinds.items():
            with self.subTest(store=name):
                self.check_all(store)

    def test_by_clients_of_torch(self) -> None:
        store = serve(secret="")
        theirs = dist.TCPStore(HOST, store.port, timeout=LONG)
        theirs.set("a", "1")
        self.assertEqual([store.get("a"), theirs.add("n", 2), store.add("n", 3)], [b"1", 2, 5])

    def test_at_a_server_of_torch(self) -> None:
        theirs = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        ours = unisono.Store(HOST, theirs.port, secret="", timeout=LONG)
        self.check_all(ours)
        ours.set("from", "us")
        self.assertEqual(theirs.get("from"), b"us")

    def test_number_of_keys(self) -> None:
        store = serve()
        self.assertEqual(store.num_keys(), 0)
        store.multi_set(["a", "b"], ["", ""])
        store.queue_push("q", "")
        self.assertEqual(store.num_keys(), 2)

    def test_properties(self) -> None:
        store = serve(timeout=timedelta(seconds=7))
        self.assertEqual((store.host, store.timeout), (HOST, timedelta(seconds=7)))
        store.set_timeout(timedelta(seconds=8))
        clone = store.clone()
        self.assertIsInstance(clone, unisono.Store)
        self.assertEqual((clone.port, clone.timeout), (store.port, timedelta(seconds=8)))

    def test_a_wait_ends_when_the_key_comes(self) -> None:
        store = serve()
        waits = {
            "get": store.get,
            "wait": lambda key: store.wait([key]),
            "multi_get": lambda key: store.multi_get([key]),
            "queue_pop": store.queue_pop,
        }
        for name, wait in waits.items():
            other = store.clone()
            give = other.queue_push if name == "queue_pop" else other.set
            timer = threading.Timer(0.2, give, (name, "now"))
            timer.start()
            begin = time.monotonic()
            self.assertIn(wait(name), (None, b"now", [b"now"]))
            self.assertGreater(time.monotonic() - begin, 0.1, name)  # Others ran meanwhile.

    def test_barrier_of_several(self) -> None:
        store = serve()
        ended = []

        def come(part: dist.Store) -> None:
            part.barrier("b", 3)
            ended.append(part)

        threads = [threading.Thread(target=come, args=(store.clone(),)) for _ in range(2)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)  # They wait by then.
        self.assertEqual(ended, [])
        store.barrier("b", 3, LONG)
        for thread in threads:
            thread.join()

    def test_from_many_threads(self) -> None:
        store = serve()

        def count(one: dist.Store) -> None:
            for _ in range(200):
                one.add("n", 1)

        stores = [store] * 4 + [store.clone() for _ in range(4)]
        threads = [threading.Thread(target=count, args=(one,)) for one in stores]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(store.get("n"), b"1600")

    def test_workers_are_waited_for(self) -> None:
        with socket_port() as port:
            workers = [
                threading.Thread(
                    target=lambda: unisono.Store(HOST, port, 3, secret="one", timeout=LONG)
                )
                for _ in range(2)
            ]
            for worker in workers:
                worker.start()
            store = unisono.Store(HOST, port, 3, True, LONG, secret="one")
            for worker in workers:
                worker.join()
        self.assertEqual(store.num_keys(), 0)
        text = "1 of 2 workers, this one included, came to 127.0.0.1 within 100 ms"
        self.refuses(dist.DistStoreError, text, lambda: serve(world_size=2, timeout=SHORT))
        serve(world_size=2, timeout=SHORT, wait_for_workers=False)


@contextmanager
def socket_port() -> Iterator[int]:
    """A port that a server may take."""
    store = serve()
    port = store.port
    del store
    yield port


class WhatIsRefused(Refusals):
    def test_waits_name_the_keys_that_did_not_come(self) -> None:
        store = serve(timeout=SHORT)
        store.set("here", "")
        place = rf"store {HOST}:{store.port}: "
        waits = {
            r'get: no "a b" within 0\.1 s': lambda: store.get("a b"),
            r'wait: no "x", "y" within 0\.1 s': lambda: store.wait(["x", "here", "y"]),
            r'wait: no "x" within 0\.2 s': lambda: store.wait(["x"], 2 * SHORT),
            r'multi_get: no "x" within 0\.1 s': lambda: store.multi_get(["here", "x"]),
            r'queue_pop: no "q" within 0\.1 s': lambda: store.queue_pop("q"),
            r'barrier "b": 1 of 2 came within 0\.1 s': lambda: store.barrier("b", 2, SHORT),
        }
        for text, wait in waits.items():
            with self.subTest(text=text):
                spent = self.refuses(dist.DistStoreError, place + text, wait)
                self.assertLess(spent, 2)
        self.assertEqual(store.get("here"), b"")

    def test_wrong_arguments(self) -> None:
        store = serve()
        wrong = {
            "a key of 9000 bytes": lambda: store.set("k" * 9000, ""),
            "a key of 9001 bytes": lambda: store.check(["a", "k" * 9001]),
            "value for .k. has 8388609 bytes": lambda: store.set("k", "v" * ((8 << 20) + 1)),
            "multi_set of 2 keys and 1 values": lambda: store.multi_set(["a", "b"], ["1"]),
            "a timeout of -1000 ms": lambda: store.set_timeout(timedelta(seconds=-1)),
            "a timeout of -2000 ms": lambda: store.wait(["a"], timedelta(seconds=-2)),
            'barrier "b" of 0': lambda: store.barrier("b", 0, SHORT),
            "port 0 is not from 1": lambda: unisono.Store(HOST, 0, secret=""),
            "port 65536 is not from 0": lambda: unisono.Store(HOST, 65536, is_master=True),
            "a world size of 0": lambda: serve(world_size=0),
            "a timeout of 0 ms": lambda: serve(timeout=timedelta(0)),
            "TLS needs a secret": lambda: serve(secret="", tls=True),
            "has no secret": lambda: unisono.Store("10.9.9.9", 0, is_master=True, secret=""),
        }
        for text, call in wrong.items():
            with self.subTest(text=text):
                self.refuses(ValueError, text, call)
        for call in (
            lambda: store.set(1, 2),
            lambda: store.get(None),
            lambda: store.add("a", "1"),
            lambda: store.multi_get([1]),
            lambda: store.watch("a", None),
            lambda: unisono.Store(HOST),
            lambda: unisono.Store(HOST, "29500"),
            lambda: unisono.Store(HOST, 29500, secret=1),
        ):
            self.refuses(TypeError, "incompatible", call)
        self.assertEqual(store.num_keys(), 0)
        text = 'the queue "q" is empty'
        self.refuses(dist.QueueEmptyError, text, lambda: store.queue_pop("q", False))

    def test_who_has_another_secret(self) -> None:
        store = serve()
        lost = dist.DistNetworkError
        self.refuses(lost, "another secret", lambda: join(store, secret="two"))
        self.refuses(lost, "requires a secret", lambda: join(store, secret=""))
        within_tls = serve(tls=True)
        self.refuses(lost, "requires TLS", lambda: join(within_tls))
        store.set("still", "here")
        self.assertEqual(join(store).get("still"), b"here")

    def test_the_secret_of_the_environment(self) -> None:
        text = """
import unisono
store = unisono.Store("127.0.0.1", 0, is_master=True)
print(unisono.Store("127.0.0.1", store.port, secret="from outside").num_keys())
unisono.Store("127.0.0.1", store.port, secret="other")
"""
        done = subprocess.run(
            [sys.executable, "-c", text],
            env=os.environ | {"UNISONO_SECRET": "from outside"},
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.stdout, "0\n")
        self.assertIn("DistNetworkError: hello with store 127.0.0.1:", done.stderr)

    def test_a_port_that_is_taken(self) -> None:
        store = serve()
        text = f"port {store.port} is in use"
        self.refuses(
            dist.DistNetworkError,
            text,
            lambda: unisono.Store(HOST, store.port, is_master=True, secret="one"),
        )

    def test_nobody_there(self) -> None:
        with socket_port() as port:
            text = rf"could not connect to {HOST} port {port} within 0\.1 s .*refused"
            self.refuses(
                dist.DistNetworkError, text, lambda: unisono.Store(HOST, port, timeout=SHORT)
            )


class Failures(Refusals):
    def test_a_server_that_is_killed(self) -> None:
        with server() as (process, port):
            store = unisono.Store(HOST, port, secret="one", timeout=LONG)
            threading.Timer(0.2, process.kill).start()
            spent = self.refuses(
                dist.DistNetworkError, f"store {HOST}:{port}: ", lambda: store.get("never")
            )
            self.assertLess(spent, 2)
            text = f"closed after: store {HOST}:{port}"
            self.refuses(dist.DistNetworkError, text, lambda: store.set("a", "1"))

    def test_a_store_outlives_its_clients_and_its_own_name(self) -> None:
        store = serve()
        client = store.clone()
        del store
        client.set("a", "1")
        self.assertEqual(client.get("a"), b"1")

    def test_exit_of_a_forked_child(self) -> None:
        store = serve()
        watch = store.watch("a", lambda before, after: None)
        child = os.fork()
        if child == 0:
            unisono._C._close_watches()
            del watch, store
            os._exit(3)
        end = time.monotonic() + 30
        status = 0
        while time.monotonic() < end:
            (pid, status) = os.waitpid(child, os.WNOHANG)
            if pid == child:
                break
            time.sleep(0.01)  # waitpid() has no limit of its own.
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            self.fail("the child has not ended")
        self.assertEqual(os.waitstatus_to_exitcode(status), 3)
        store.set("a", "1")
        self.assertEqual(store.get("a"), b"1")


WAITING = """
import sys, time, unisono
from datetime import timedelta

port = int(sys.stdin.readline())
store = unisono.Store("127.0.0.1", port, secret="one", timeout=timedelta(seconds=60))
for call in {calls}:
    try:
        print("waits", flush=True)
        call(store)
        print("the wait has ended by itself", flush=True)
    except KeyboardInterrupt:
        print(time.time(), flush=True)
store.set("done", "1") if {is_usable} else None
"""


class CtrlC(unittest.TestCase):
    def interrupt(self, port: int, calls: list[str], before: Callable, is_usable: bool) -> None:
        names = "[" + ", ".join(f"lambda store: {call}" for call in calls) + "]"
        with script(WAITING.format(calls=names, is_usable=is_usable)) as process:
            print(port, file=process.stdin, flush=True)
            for call in calls:
                self.assertEqual(process.stdout.readline(), "waits\n", process.stderr)
                time.sleep(0.3)  # It waits asleep by then.
                before()
                begin = time.time()
                process.send_signal(signal.SIGINT)
                self.assertLess(float(process.stdout.readline()) - begin, 0.2, call)
            if is_usable:
                self.assertEqual(process.wait(timeout=30), 0)

    def test_ends_waits(self) -> None:
        store = serve()
        calls = [
            'store.get("never")',
            'store.wait(["never"])',
            'store.multi_get(["never"])',
            'store.queue_pop("never")',
            'store.barrier("never", 2)',
        ]
        self.interrupt(store.port, calls, lambda: None, is_usable=True)
        self.assertEqual(store.get("done"), b"1")

    def test_ends_connecting(self) -> None:
        with socket_port() as nobody:
            store = serve()
            call = f'unisono.Store("127.0.0.1", {nobody}, secret="one")'
            self.interrupt(store.port, [call], lambda: None, is_usable=True)

    def test_ends_a_request_to_a_server_that_hangs(self) -> None:
        with server() as (process, port):
            call = (
                '[store.set("a", "1") or store.get("a") or time.sleep(0.01) for _ in range(10**6)]'
            )
            try:
                self.interrupt(
                    port, [call], lambda: process.send_signal(signal.SIGSTOP), is_usable=False
                )
            finally:
                process.send_signal(signal.SIGCONT)


if __name__ == "__main__":
    unittest.main()
