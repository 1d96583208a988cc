"""Somebody on the path: hands on what two sides say, records it, and may change it."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass

from wire import TIMEOUT_S


@dataclass
class Change:
    """One bit of one byte, counted from the connection's begin."""

    speaker: str
    offset: int

    def apply(self, speaker: str, begin: int, data: bytes) -> bytes:
        at = self.offset - begin
        if speaker != self.speaker or not 0 <= at < len(data):
            return data
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


class Relay:
    """Listens, and connects to `target` for each client. What the first one and its server said is
    in `said`."""

    def __init__(self, target: int, change: Change | None = None) -> None:
        self.target = target
        self.change = change
        self.said = {"client": b"", "server": b""}
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.is_first = True
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.target), timeout=TIMEOUT_S)
            server.settimeout(None)
            for speaker, source, sink in [("client", client, server), ("server", server, client)]:
                threading.Thread(
                    target=self.hand_on, args=(speaker, source, sink, self.is_first), daemon=True
                ).start()
            self.is_first = False

    def hand_on(self, speaker: str, source, sink, is_recorded: bool) -> None:
        n_handed_on = 0
        try:
            while data := source.recv(65536):
                if is_recorded:
                    self.said[speaker] += data
                if self.change:
                    data = self.change.apply(speaker, n_handed_on, data)
                n_handed_on += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            sink.close()

    def close(self) -> None:
        self.listener.close()


class Impostor:
    """Listens, and says `words` to whoever comes, whatever it hears."""

    def __init__(self, words: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.words = words
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
                client.sendall(self.words)
                threading.Thread(target=client.recv, args=(1 << 20,), daemon=True).start()
            except OSError:
                return

    def close(self) -> None:
        self.listener.close()
