"""What goes over the wire, written down once more from docs/design: an attacker has no library."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import socket
import struct

TIMEOUT_S = 60
MAGIC = b"\xf5unisono"
VERSION = 1
PROOF_BYTES = 32
VALIDATE = struct.pack("<BI", 0, 0x3C85F7CE)


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def greeting(purpose: bytes = b"store", job: bytes = b"", rank: int = 1) -> bytes:
    body = os.urandom(32) + text(job) + text(purpose) + struct.pack("<iI", rank, 0)
    return MAGIC + struct.pack("<HH", VERSION, len(body)) + body


def proof(secret: bytes, side: bytes, client: bytes, server: bytes) -> bytes:
    return hmac.new(secret, text(side) + client + server, hashlib.sha256).digest()


def requests() -> dict[str, bytes]:
    """A valid request of each opcode."""
    key, value = text(b"/k"), text(b"v" * 100)
    number, count = struct.pack("<q", 1), struct.pack("<Q", 2)
    return {
        "validate": VALIDATE,
        "set": b"\x01" + key + value,
        "compare_set": b"\x02" + key + value + value,
        "get": b"\x03" + key,
        "add": b"\x04" + text(b"/n") + number,
        "check": b"\x05" + count + key + key,
        "wait": b"\x06" + count + text(b"/never") + key,
        "num_keys": b"\x07",
        "delete_key": b"\x08" + text(b"/gone"),
        "append": b"\x09" + text(b"/a") + value,
        "multi_get": b"\x0a" + count + key + key,
        "multi_set": b"\x0b" + count + (key + value) * 2,
        "cancel_wait": b"\x0c",
        "ping": b"\x0d" + struct.pack("<I", 7),
        "queue_push": b"\x0e" + text(b"/q") + value,
        "queue_pop": b"\x0f" + text(b"/q"),
        "queue_len": b"\x10" + text(b"/q"),
        "list_keys": b"\x11",
        "barrier": b"\x12" + text(b"/b") + struct.pack("<q", 1000),
        "version": b"\xe0",
        "watch": b"\xe1" + key,
        "unwatch": b"\xe2" + key,
    }


class Stranger:
    """A connection of somebody's own making."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)
        self.name = "{}:{}".format(*self.socket.getsockname())

    def send(self, data: bytes) -> None:
        """As much as the other side takes before it hangs up."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def read(self, n_bytes: int) -> bytes:
        data = b""
        while len(data) < n_bytes:
            more = self.socket.recv(n_bytes - len(data))
            if not more:
                raise EOFError(f"{len(data)} of {n_bytes} bytes came")
            data += more
        return data

    def read_greeting(self) -> bytes:
        prefix = self.read(12)
        return prefix + self.read(struct.unpack_from("<H", prefix, 10)[0])

    def say_hello(self, secret: bytes, **info) -> bytes:
        """Returns the verdict and the server's proof."""
        mine = greeting(**info)
        self.send(mine)
        theirs = self.read_greeting()
        self.send(proof(secret, b"client", mine, theirs))
        return self.read(1 + PROOF_BYTES)

    def read_until_dropped(self) -> bytes:
        """What comes until the other side hangs up. Raises TimeoutError when it does not."""
        data = b""
        with contextlib.suppress(ConnectionResetError):
            while more := self.socket.recv(65536):
                data += more
        return data

    def close(self) -> None:
        self.socket.close()
