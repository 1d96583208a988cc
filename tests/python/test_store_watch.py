#!/usr/bin/env python3
"""Store.watch(): changes, and what its function may do."""

import sys
import threading
import unittest

import torch.distributed as dist
from stores import HOST, LONG, script, serve

import unisono

WATCH_TO_THE_END = """
import sys, threading, unisono
store = unisono.Store("127.0.0.1", int(sys.stdin.readline()), secret="one")
seen = threading.Event()
watch = store.watch("n", lambda before, after: seen.set())
assert seen.wait(30)
print("ends")
"""


class Watches(unittest.TestCase):
    def test_changes(self) -> None:
        store = serve()
        seen: list = []
        changed = threading.Semaphore(0)

        def note(before: bytes | None, after: bytes | None) -> None:
            seen.append((before, after))
            changed.release()

        with store.watch("a", note):
            store.set("a", "1")
            store.set("other", "2")
            store.append("a", "3")
            store.delete_key("a")
            for _ in range(3):
                self.assertTrue(changed.acquire(timeout=30))
        store.set("a", "4")
        self.assertEqual(seen, [(None, b"1"), (b"1", b"13"), (b"13", None)])

    def test_at_a_server_of_torch(self) -> None:
        theirs = dist.TCPStore(HOST, 0, is_master=True, wait_for_workers=False)
        store = unisono.Store(HOST, theirs.port, secret="", timeout=LONG)
        changed = threading.Event()
        with store.watch("a", lambda before, after: after == b"1" and changed.set()):
            theirs.set("a", "1")
            self.assertTrue(changed.wait(30))

    def test_a_function_that_raises_is_reported(self) -> None:
        store = serve()
        reports: list = []
        reported = threading.Event()
        before = sys.unraisablehook

        def note(report) -> None:
            reports.append(report.exc_value)
            reported.set()

        sys.unraisablehook = note
        try:
            watch = store.watch("a", lambda before, after: watch.close())
            store.set("a", "1")
            self.assertTrue(reported.wait(30))
        finally:
            sys.unraisablehook = before
        self.assertIn("close() is called by a watch's function", str(reports[0]))
        watch.close()
        watch.close()

    def test_a_watch_dropped_by_its_own_function(self) -> None:
        store = serve()
        watches: list = []
        dropped = threading.Event()

        def drop(before: bytes | None, after: bytes | None) -> None:
            watches.clear()
            dropped.set()

        watches.append(store.watch("a", drop))
        store.set("a", "1")
        self.assertTrue(dropped.wait(30))
        store.set("a", "2")
        self.assertEqual(store.get("a"), b"2")

    def test_at_the_end_of_python(self) -> None:
        store = serve()
        is_over = threading.Event()

        def write() -> None:
            while not is_over.is_set():
                store.add("n", 1)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(3):
                with script(WATCH_TO_THE_END) as process:
                    said, problems = process.communicate(f"{store.port}\n", timeout=60)
                    self.assertEqual((process.returncode, said), (0, "ends\n"), problems)
        finally:
            is_over.set()
            writer.join()


if __name__ == "__main__":
    unittest.main()
