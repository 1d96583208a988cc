"""What tests of unisono.Store share: servers, clients, and Python programs that use them."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

import unisono

HOST = "127.0.0.1"
SHORT = timedelta(milliseconds=100)
LONG = timedelta(seconds=60)


def serve(**options) -> unisono.Store:
    return unisono.Store(HOST, 0, is_master=True, **{"secret": "one", "timeout": LONG} | options)


def join(store: unisono.Store, **options) -> unisono.Store:
    return unisono.Store(HOST, store.port, **{"secret": "one", "timeout": LONG} | options)


@contextmanager
def script(text: str) -> Iterator[subprocess.Popen]:
    """A Python that runs the text in a folder of its own; what it prints comes by its stdout."""
    with tempfile.TemporaryDirectory(prefix="unisono-python-") as folder:
        process = subprocess.Popen(
            [sys.executable, "-c", text],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate(timeout=30)


SERVER = """
import sys, unisono
store = unisono.Store("127.0.0.1", 0, is_master=True, secret="one")
print(store.port, flush=True)
sys.stdin.read()
"""


@contextmanager
def server() -> Iterator[tuple[subprocess.Popen, int]]:
    """A process that serves a store, and the store's port."""
    with script(SERVER) as process:
        yield process, int(process.stdout.readline())


class Refusals(unittest.TestCase):
    def refuses(self, expected: type[BaseException], text: str, function: Callable) -> float:
        """Expects the exception, of exactly this type; returns how long it took to come."""
        begin = time.monotonic()
        with self.assertRaisesRegex(expected, text) as caught:
            function()
        self.assertIs(type(caught.exception), expected)
        return time.monotonic() - begin
