"""Ranks that play scripts: processes of tests/attacks/script, and what they say."""

from __future__ import annotations

import os
import re
import selectors
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from surroundings import ReservedPort, environment


@dataclass
class Event:
    """A rank's line: at time.monotonic() it began a step, or ended it well or otherwise."""

    at: float
    word: str
    step: int
    text: str


class PlayedRank:
    def __init__(self, rank: int, process: subprocess.Popen[bytes]) -> None:
        self.rank = rank
        self.process = process
        self.pid = process.pid
        self.events: list[Event] = []
        self.rest = b""
        self.err = b""
        self.has_ended = False  # Its output has: it may be a zombie.

    def take(self, out: bytes) -> list[Event]:
        *lines, self.rest = (self.rest + out).split(b"\n")
        new = []
        for line in lines:
            at, word, step, text = line.decode(errors="replace").split(" ", 3)
            new.append(Event(float(at), word, int(step), text))
        self.events += new
        return new

    def said(self, word: str) -> list[Event]:
        return [event for event in self.events if event.word == word]

    def last(self) -> Event | None:
        return self.events[-1] if self.events else None

    def last_words(self) -> str:
        lines = self.err.decode(errors="replace").splitlines()
        return lines[-1] if lines else "nothing"

    def is_done(self) -> bool:
        """It has ended, or has played its script and holds what it has."""
        return self.has_ended or bool(self.said("held"))

    def problems(self) -> list[str]:
        """What must never be, whatever happens to other ranks."""
        found = [f"step {event.step}: {event.text}" for event in self.said("wrong")]
        found += [f"threw {event.text}" for event in self.said("thrown")]
        if not self.is_done():
            where = f"step {self.last().step} {self.last().text}" if self.last() else "its start"
            return [*found, f"hangs in {where}; its last words: {self.last_words()}"]
        if self.has_ended:
            if not any(event.step == -1 for event in self.said("ok")):
                found.append(f"is not well in the end; its last words: {self.last_words()}")
            found += [f"keeps {event.step} sockets" for event in self.said("sockets") if event.step]
            if self.process.wait() != 0:
                found.append(f"ended with {self.process.returncode}")
        return found

    def start_of(self, step: int) -> float:
        return next((e.at for e in self.events if e.word == "start" and e.step == step), 0.0)


class PlayedJob:
    """`on_event` is called with each rank and event, as they come."""

    def __init__(
        self,
        program: str,
        scripts: list[str],
        nodes: list[str],
        on_event: Callable[[PlayedRank, Event], None] = lambda rank, event: None,
    ) -> None:
        self.on_event = on_event
        self.port = ReservedPort()
        self.folder = tempfile.TemporaryDirectory(prefix="attack")
        self.home = Path(self.folder.name) / "home"
        self.home.mkdir()
        self.shm = set(os.listdir("/dev/shm"))
        self.selector = selectors.DefaultSelector()
        self.ranks: list[PlayedRank] = []
        for rank, script in enumerate(scripts):
            path = Path(self.folder.name) / f"script{rank}"
            path.write_text(script, encoding="utf-8")
            self.start(program, rank, path, len(scripts), nodes)

    def start(self, program: str, rank: int, path: Path, world_size: int, nodes: list[str]) -> None:
        variables = {
            "RANK": str(rank),
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(self.port.number),
            "UNISONO_SECRET": "known to all",
            "UNISONO_STALL_SECONDS": "0.5",
            "HOME": str(self.home),
            "TMPDIR": str(self.home),
            "XDG_RUNTIME_DIR": str(self.home),
        }
        if nodes:
            variables["UNISONO_NODE_ID"] = nodes[rank]
        process = subprocess.Popen(
            ["prlimit", "--core=0:0", program, str(path)],
            env=environment(**variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        played = PlayedRank(rank, process)
        self.ranks.append(played)
        for name in ("stdout", "stderr"):
            self.selector.register(getattr(process, name), selectors.EVENT_READ, (played, name))

    def pump(self, is_over: Callable[[], bool], seconds: float) -> bool:
        """Takes up what ranks say until it is over; False when the time is."""
        deadline = time.monotonic() + seconds
        while not is_over():
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            for key, _ in self.selector.select(left):
                self.take_up(key.fileobj, *key.data)
        return True

    def take_up(self, pipe, rank: PlayedRank, name: str) -> None:
        more = os.read(pipe.fileno(), 1 << 16)
        if not more:
            self.selector.unregister(pipe)
            rank.has_ended = rank.has_ended or name == "stdout"
        elif name == "stderr":
            rank.err += more
        else:
            for event in rank.take(more):
                self.on_event(rank, event)

    def let_go(self) -> None:
        """Ranks that hold what they have go on."""
        for rank in self.ranks:
            rank.process.stdin.close()

    def latest_event(self) -> float:
        return max((rank.last().at for rank in self.ranks if rank.last()), default=0.0)

    def close(self) -> list[str]:
        """Ends what still runs; says what the job has left behind."""
        for rank in self.ranks:
            if not rank.has_ended:
                rank.process.kill()
            rank.process.wait()
        self.pump(lambda: not self.selector.get_map(), 1)
        for rank in self.ranks:
            for pipe in (rank.process.stdin, rank.process.stdout, rank.process.stderr):
                pipe.close()
        self.selector.close()
        self.port.close()
        left = [f"left in its home: {name}" for name in os.listdir(self.home)]
        left += [f"left in /dev/shm: {name}" for name in self.new_in_shm()]
        self.folder.cleanup()
        return left

    def new_in_shm(self) -> list[str]:
        """That nobody uses: other programs may come and go meanwhile."""
        there = {name for name in os.listdir("/dev/shm") if not name.startswith("open_mpi")}
        new = there - self.shm
        if not new:
            return []
        maps = ""
        for path in Path("/proc").glob("[0-9]*/maps"):
            try:
                maps += path.read_text(errors="replace")
            except OSError:
                continue
        return [name for name in sorted(new) if f"/dev/shm/{name}" not in maps]


def names(text: str, rank: PlayedRank) -> bool:
    """Whether an error says of the rank what it did; that of a group may number it otherwise. Whose
    words it quotes, "[rank 2/6] all_to_all #1 ...", said so of itself; the first to speak is the
    rank that has the error."""
    quoted = re.sub(r"\[rank [^]]*\]", "", text, count=1)
    in_job = re.sub(r"\brank \d+ \((rank \d+) of the job\)", r"\1", quoted)
    by_number = rf"\brank {rank.rank}\b(?! \(pid (?!{rank.pid}\b))"
    return bool(re.search(rf"\bpid {rank.pid}\b|{by_number}", in_job))
