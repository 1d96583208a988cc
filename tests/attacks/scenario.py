"""Random jobs: how ranks lie on nodes, and what each calls. All of it follows from the seed.

A script is a list of lines, as tests/attacks/script plays them; lines of ranks that have the same
step are one call. Ranks come to steps in one order, so that no job waits for ever by itself.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

TIMEOUT_MS = 120_000  # Nobody may have to wait for it.
MOST_BYTES = 4 << 20
DTYPES = {"i8": 1, "u8": 1, "i32": 4, "i64": 8, "f32": 4, "f64": 8}
REDUCTIONS = ["sum", "min", "max"]
REDUCING = ["all_reduce", "all_reduce_coalesced", "reduce", "reduce_scatter"]
ROOTED = ["reduce", "broadcast", "gather", "scatter"]
BLOCKS = ["reduce_scatter", "all_gather", "gather", "scatter"]
COLLECTIVES = [*REDUCING, "broadcast", "all_gather", "gather", "scatter", "all_to_all"]
BARRIERS = ["barrier", "monitored_barrier"]


@dataclass
class Line:
    step: int
    verb: str
    values: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        values = "".join(
            f" {key}={','.join(map(str, value)) if isinstance(value, list) else value}"
            for key, value in self.values.items()
        )
        return f"{self.step} {self.verb}{values}"

    @property
    def group(self) -> int | None:
        """Whose call it is; the first call makes group 0."""
        return self.values.get("group", 0 if self.verb == "init" else None)


class Scenario:
    """A world, its groups (numbers to ranks of the job), and a script for each rank."""

    def __init__(self, chance: random.Random, victim: bool) -> None:
        self.chance = chance
        self.world_size = chance.randint(2, 8)
        self.victim = chance.randrange(self.world_size) if victim else None
        self.nodes = self.lay_out()
        self.scripts: list[list[Line]] = [[] for _ in range(self.world_size)]
        self.groups = {0: list(range(self.world_size))}
        self.n_steps = 0
        self.waits: list[list[int]] = [[] for _ in range(self.world_size)]
        self.add(self.groups[0], "init", timeout=TIMEOUT_MS)
        for _ in range(chance.randint(3, 14)):
            self.add_something()
        self.add_end()

    def lay_out(self) -> list[str]:
        """A node's name for each rank; none: the machine itself."""
        kind = self.chance.choice(["machine", "one", "two", "in turn", "each"])
        return {
            "machine": [],
            "one": ["a"] * self.world_size,
            "two": sorted(self.chance.choices("ab", k=self.world_size)),
            "in turn": [f"n{rank % 2}" for rank in range(self.world_size)],
            "each": [f"n{rank}" for rank in range(self.world_size)],
        }[kind]

    def add(self, callers: list[int], verb: str, own=None, **values: object) -> int:
        """A step; `own` has what single ranks pass besides. Returns its number."""
        self.n_steps += 1
        for rank in callers:
            mine = values | (own or {}).get(rank, {})
            self.scripts[rank].append(Line(self.n_steps, verb, mine))
            if mine.get("async"):
                self.waits[rank].append(self.n_steps)
        return self.n_steps

    def add_something(self) -> None:
        kind = self.chance.choices(
            ["collective", "message", "barrier", "group", "sleep", "wait"], [50, 20, 8, 10, 6, 10]
        )[0]
        group = self.chance.choice(list(self.groups))
        if kind == "collective":
            self.add_collective(group)
        elif kind == "message":
            self.add_message(group)
        elif kind == "barrier":
            self.add(self.groups[group], self.chance.choice(BARRIERS), group=group)
        elif kind == "group":
            self.add_group(group)
        elif kind == "sleep":
            rank = self.chance.randrange(self.world_size)
            self.add([rank], "sleep", us=self.chance.randint(1, 20_000))
        else:
            self.add_wait(self.chance.randrange(self.world_size))

    def add_collective(self, group: int) -> None:
        ranks = self.groups[group]
        verb = self.chance.choice(COLLECTIVES)
        dtype = self.chance.choice(list(DTYPES))
        values: dict[str, object] = {"group": group, "dtype": dtype}
        has_blocks = verb in BLOCKS or verb == "all_to_all"
        values["count"] = self.count(dtype, len(ranks) if has_blocks else 1)
        if verb in REDUCING:
            values["op"] = self.chance.choice(REDUCTIONS)
        if verb in ROOTED:
            values["root"] = self.chance.randrange(len(ranks))
        if verb == "all_reduce_coalesced":
            n_buffers = self.chance.randint(1, 5)
            values["counts"] = [self.count(dtype, n_buffers) for _ in range(n_buffers)]
        elif verb in BLOCKS and self.chance.random() < 0.3:
            values["counts"] = [self.count(dtype, len(ranks)) for _ in ranks]
        own = {rank: self.own_way(verb) for rank in ranks}
        if verb == "all_to_all" and self.chance.random() < 0.3:
            counts = [[self.count(dtype, len(ranks)) for _ in ranks] for _ in ranks]
            for index, rank in enumerate(ranks):
                own[rank]["in_counts"] = counts[index]
                own[rank]["out_counts"] = [row[index] for row in counts]
        self.add(ranks, verb, own, **values)

    def own_way(self, verb: str) -> dict[str, object]:
        """What ranks may do each in their way."""
        own: dict[str, object] = {}
        if self.chance.random() < 0.3:
            own["async"] = 1
        if self.chance.random() < 0.4:
            own["memory"] = "symmetric"
        if verb == "all_reduce" and self.chance.random() < 0.5:
            own["in_place"] = 1
        return own

    def count(self, dtype: str, n_blocks: int) -> int:
        if self.chance.random() < 0.1:
            return 0
        most = MOST_BYTES // DTYPES[dtype] // n_blocks
        return int(most ** self.chance.random())

    def add_message(self, group: int) -> None:
        ranks = self.groups[group]
        if len(ranks) < 2:
            return
        source, target = self.chance.sample(range(len(ranks)), 2)
        dtype = self.chance.choice(list(DTYPES))
        common = {"group": group, "dtype": dtype, "count": self.count(dtype, 1)}
        tag = self.n_steps + 1  # Nobody else's.
        self.n_steps += 1
        is_from_any = self.chance.random() < 0.2
        peers = {"peer": -1, "source": source} if is_from_any else {"peer": source}
        for rank, verb, own in [
            (ranks[source], "send", {"peer": target}),
            (ranks[target], "recv", peers),
        ]:
            values = common | {"tag": tag} | own | self.own_way(verb)
            self.scripts[rank].append(Line(tag, verb, values))
            if values.get("async"):
                self.waits[rank].append(tag)

    def add_group(self, parent: int) -> None:
        """Survivors alone get one group at most: a rank that can't make it goes on, and who has
        made it may wait for that one only until it ends."""
        size = len(self.groups[parent])
        members = self.chance.sample(range(size), self.chance.randint(1, size))
        ranks = [self.groups[parent][member] for member in members]
        are_doomed = [self.victim in of for of in self.groups.values()]
        if self.victim is not None and self.victim not in ranks and not all(are_doomed):
            return
        number = len(self.groups)
        self.add(
            self.groups[parent],
            "new_group",
            **{"group": parent, "as": number, "ranks": members, "timeout": TIMEOUT_MS},
        )
        self.groups[number] = ranks

    def add_wait(self, rank: int) -> None:
        if self.waits[rank]:
            of = self.waits[rank].pop(self.chance.randrange(len(self.waits[rank])))
            self.add([rank], "wait", of=of)

    def add_end(self) -> None:
        for rank in range(self.world_size):
            while self.waits[rank]:
                self.add_wait(rank)
        for group in reversed(self.groups):
            self.last_barrier = self.add(self.groups[group], "barrier", group=group)
        for group in reversed(self.groups):
            self.add(self.groups[group], "destroy", group=group)

    def line(self, rank: int, step: int) -> Line:
        return next(line for line in self.scripts[rank] if line.step == step)

    def layout(self) -> str:
        n_nodes = len(set(self.nodes)) or 1
        return f"{self.world_size} ranks on {n_nodes} node{'s' if n_nodes > 1 else ''}"

    def text(self, rank: int) -> str:
        return "".join(f"{line}\n" for line in self.scripts[rank])
