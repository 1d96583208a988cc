"""What the tests of stores and PyTorch share: servers, clients, and who is on the way between them,
as processes."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import torch.distributed as dist

PEER = sys.argv.pop(1)
UNISONO = sys.argv.pop(1)
TIMEOUT = timedelta(seconds=60)
BINARY = bytes(range(256)) * 1000


def start(*command):
    """A process that hears by lines, and answers by lines."""
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


class OurServer:
    """store_peer serve, for the length of a with block; plain clients are served as well."""

    def __init__(self, secret=""):
        self.secret = secret

    def __enter__(self):
        self.process = start(PEER, "serve", *self.secret.split())
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait(timeout=60) == 0

    def client(self, **options):
        """PyTorch's."""
        return torch_client(self.port, **options)


def torch_client(port, **options):
    options = {"is_master": False, "timeout": TIMEOUT, "wait_for_workers": False, **options}
    return dist.TCPStore("127.0.0.1", port, **options)


class OurClient:
    """store_peer client; a call per method, bytes and str as text, int as number."""

    def __init__(self, port, secret=""):
        self.process = start(PEER, "client", "127.0.0.1", str(port), *secret.split())

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


class CuttingRelay:
    """cutting_relay.py, for the length of a with block: a process, since PyTorch's client holds
    Python's lock."""

    def __init__(self, target):
        self.target = target

    def __enter__(self):
        relay = Path(__file__).with_name("cutting_relay.py")
        self.process = start(sys.executable, relay, str(self.target))
        self.port = int(self.process.stdout.readline())
        return self

    def __exit__(self, *_):
        pieces, _ = self.process.communicate(timeout=60)
        self.n_pieces = int(pieces)
