"""What one rank of a scenario does wrong. Each mistake changes that rank's script, and says what
has to come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from scenario import (
    BARRIERS,
    BLOCKS,
    COLLECTIVES,
    DTYPES,
    REDUCING,
    REDUCTIONS,
    ROOTED,
    Line,
    Scenario,
)

PATIENCE_MS = 1500  # Of a message that nobody takes: only its time limit can end that.


class Consequence(Enum):
    REFUSED = "an error of the call, and nothing else"
    NO_GROUP = "no new group, and nothing else"
    MISMATCH = "an error on all ranks of the group with both calls"
    LEFT = "an error on all ranks of the group that name who left or was behind"
    CLOSED = "an error on all ranks of the group"
    ANY = "an end in time"


@dataclass
class Mistake:
    kind: str
    consequence: Consequence
    rank: int
    group: int
    step: int


# Makes a mistake at a place of the rank's script, or returns None if the mistake is not possible
# there.
Maker = Callable[[Scenario, int, int], Mistake | None]


def lines_of(scenario: Scenario, rank: int) -> list[Line]:
    return scenario.scripts[rank]


def is_collective(line: Line, *, with_barriers: bool = False) -> bool:
    return line.verb in COLLECTIVES or (with_barriers and line.verb in BARRIERS)


def refuse(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    """A call with wrong arguments before a right one."""
    chance = scenario.chance
    right = lines_of(scenario, rank)[place]
    size = len(scenario.groups.get(right.group, []))
    wrong: list[dict[str, object]] = []
    if is_collective(right) or right.verb in ("send", "recv"):
        wrong = [{"timeout": chance.choice([0, -1])}]
    if right.verb in ROOTED:
        wrong.append({"root": chance.choice([-1, size, size + 5, 2**31 - 1])})
    if is_collective(right) and not (
        right.verb == "scatter" and not is_root(scenario, rank, right)
    ):
        wrong += [{"in_count": chance.choice([-1, -(2**40)])}, {"in_null": 1, "count": 3}]
        wrong.append({"in_count": 2**62, "dtype": "f64"})
        if right.verb == "all_reduce_coalesced":
            wrong = [{"in_count": -1}]
        elif "counts" in right.values or "in_counts" in right.values:
            wrong.remove({"in_null": 1, "count": 3})
    if right.verb in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        wrong.append({"out_count": 4 * size + 1, "count": 3, "in_place": None, "counts": None})
    if right.verb in BLOCKS:
        wrong += [{"counts": [1] * (size + 1)}, {"counts": [-1] * size}]
    if right.verb in ("send", "recv"):
        wrong += [{"tag": -1}, {"peer": size}, {"peer": -2}, {"in_count": -1}]
    if right.verb == "new_group":
        wrong += [{"ranks": []}, {"ranks": [0, 0]}, {"ranks": [size]}, {"ranks": [-1]}]
    if not wrong:
        return None
    values = {k: v for k, v in (right.values | chance.choice(wrong)).items() if v is not None}
    step = next_step(scenario)
    lines_of(scenario, rank).insert(place, Line(step, right.verb, values))
    return Mistake(f"refused {right.verb}", Consequence.REFUSED, rank, right.group, step)


def is_root(scenario: Scenario, rank: int, line: Line) -> bool:
    return scenario.groups[line.group].index(rank) == line.values.get("root")


def next_step(scenario: Scenario) -> int:
    scenario.n_steps += 1
    return scenario.n_steps


def call_otherwise(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    """Another operation, or another parameter of it."""
    line = lines_of(scenario, rank)[place]
    size = len(scenario.groups.get(line.group, []))
    if not is_collective(line, with_barriers=True) or size < 2:
        return None
    # A rank that only sends fails in its next call or when the rank leaves the group.
    if scenario.chance.random() < 0.5:
        end_without_barriers(scenario, line)
    ways = ["verb"]
    if is_collective(line):
        ways += ["dtype", "count"]
    if line.verb in REDUCING:
        ways.append("op")
    if line.verb in ROOTED:
        ways.append("root")
    way = scenario.chance.choice(ways)
    change(scenario, rank, line, way)
    return Mistake(f"another {way}", Consequence.MISMATCH, rank, line.group, line.step)


def end_without_barriers(scenario: Scenario, line: Line) -> None:
    """Makes the line the last call of its group, where only barriers follow."""
    members = scenario.groups[line.group]
    later = [
        each
        for member in members
        for each in lines_of(scenario, member)
        if each.group == line.group and each.step > line.step
    ]
    if any(each.verb not in (*BARRIERS, "destroy") for each in later):
        return
    barriers = {each.step for each in later if each.verb in BARRIERS}
    for member in members:
        scenario.scripts[member] = [
            each for each in lines_of(scenario, member) if each.step not in barriers
        ]


def change(scenario: Scenario, rank: int, line: Line, way: str) -> None:
    chance, values = scenario.chance, line.values
    group = scenario.groups[line.group]
    if way == "verb":
        line.verb = other_than(chance, [*COLLECTIVES, "barrier"], line.verb)
        values.setdefault("dtype", "f32")
        values.setdefault("count", 12)
        values.setdefault("root", 0)
        values.pop("counts", None)
        values.pop("in_place", None)
        if line.verb == "all_reduce_coalesced":
            values["counts"] = [values["count"]]
    elif way == "count":
        change_count(scenario, values, group.index(rank))
    else:
        choices = {"dtype": list(DTYPES), "op": REDUCTIONS, "root": list(range(len(group)))}[way]
        values[way] = other_than(chance, choices, values[way])


def change_count(scenario: Scenario, values: dict[str, object], own: int) -> None:
    """Of an all_to_all's list, not what the rank keeps: that is its own affair."""
    lists = [key for key in ("counts", "in_counts") if key in values]
    if not lists:
        values["count"] = other_count(scenario, values["count"])
        return
    counts = list(values[lists[0]])
    places = [at for at in range(len(counts)) if lists[0] == "counts" or at != own]
    place = scenario.chance.choice(places)
    counts[place] = other_count(scenario, counts[place])
    values[lists[0]] = counts


def other_count(scenario: Scenario, count: int) -> int:
    return other_than(scenario.chance, [0, count + 1, max(0, count - 1), 2 * count], count)


def other_than(chance, choices: list, value):
    return chance.choice([choice for choice in choices if choice != value])


def are_told_apart(scenario: Scenario, rank: int, place: int) -> bool:
    """Whether all of the group call this and then another of its collectives: who comes to another
    group in between would wait there, and nobody could know for what."""
    script = lines_of(scenario, rank)
    line = script[place]
    if place + 1 == len(script) or not is_collective(line, with_barriers=True):
        return False
    following = script[place + 1]
    same_group = line.group == following.group and len(scenario.groups[line.group]) > 1
    if not (same_group and is_collective(following, with_barriers=True)):
        return False
    steps = (line.step, following.step)
    return line.verb != following.verb and all(
        steps in zip(steps_of(scenario, member), steps_of(scenario, member)[1:], strict=False)
        for member in scenario.groups[line.group]
    )


def steps_of(scenario: Scenario, rank: int) -> list[int]:
    return [line.step for line in lines_of(scenario, rank)]


def drop(scenario: Scenario, rank: int, place: int) -> None:
    """Takes a line away, and the wait for it."""
    script = lines_of(scenario, rank)
    gone = script[place].step
    scenario.scripts[rank] = [
        line for line in script if line.step != gone and line.values.get("of") != gone
    ]


def leave_out(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    if not are_told_apart(scenario, rank, place):
        return None
    line = lines_of(scenario, rank)[place]
    drop(scenario, rank, place)
    return Mistake("left out", Consequence.MISMATCH, rank, line.group, line.step)


def call_twice(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    if not are_told_apart(scenario, rank, place):
        return None
    line = lines_of(scenario, rank)[place]
    step = next_step(scenario)
    values = {k: v for k, v in line.values.items() if k != "async"}
    lines_of(scenario, rank).insert(place + 1, Line(step, line.verb, values))
    return Mistake("called twice", Consequence.MISMATCH, rank, line.group, step)


def swap(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    if not are_told_apart(scenario, rank, place):
        return None
    script = lines_of(scenario, rank)
    script[place], script[place + 1] = script[place + 1], script[place]
    line = script[place]
    return Mistake("in another order", Consequence.MISMATCH, rank, line.group, line.step)


def swap_groups(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    script = lines_of(scenario, rank)
    if place + 1 == len(script):
        return None
    one, other = script[place], script[place + 1]
    if one.group == other.group or not all(
        is_collective(line, with_barriers=True) and len(scenario.groups[line.group]) > 1
        for line in (one, other)
    ):
        return None
    script[place], script[place + 1] = other, one
    return Mistake("groups in another order", Consequence.ANY, rank, one.group, one.step)


def send_otherwise(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    """A message that does not fit its receive, or that finds none."""
    line = lines_of(scenario, rank)[place]
    if line.verb not in ("send", "recv"):
        return None
    way = scenario.chance.choice(["dtype", "count", "tag", "peer"])
    size = len(scenario.groups[line.group])
    partner = next(
        other
        for member in scenario.groups[line.group]
        for other in lines_of(scenario, member)
        if other.step == line.step and other is not line
    )
    if way in ("dtype", "count"):
        change(scenario, rank, line, way)
        return Mistake(
            f"message of another {way}", Consequence.MISMATCH, rank, line.group, line.step
        )
    if way == "tag":
        line.values["tag"] = 100_000 + line.step
    else:
        if line.values["peer"] < 0:
            return None
        line.values["peer"] = other_than(scenario.chance, list(range(size)), line.values["peer"])
    for one in (line, partner):
        one.values["timeout"] = PATIENCE_MS
    return Mistake(f"message of another {way}", Consequence.CLOSED, rank, line.group, line.step)


def leave_early(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    """Destroys the group, or aborts it, and calls it once more."""
    line = lines_of(scenario, rank)[place]
    if not is_collective(line, with_barriers=True) or len(scenario.groups[line.group]) < 2:
        return None
    verb = scenario.chance.choice(["destroy", "abort"])
    step = next_step(scenario)
    lines_of(scenario, rank).insert(place, Line(step, verb, {"group": line.group}))
    return Mistake(f"{verb} before others", Consequence.LEFT, rank, line.group, step)


def list_otherwise(scenario: Scenario, rank: int, place: int) -> Mistake | None:
    line = lines_of(scenario, rank)[place]
    if line.verb != "new_group" or len(scenario.groups[line.group]) < 2:
        return None
    ranks = list(line.values["ranks"])
    others = [r for r in range(len(scenario.groups[line.group])) if r not in ranks]
    if others:
        ranks.append(scenario.chance.choice(others))
    elif len(ranks) > 1:
        ranks.pop()
    line.values["ranks"] = ranks
    return Mistake("another list of ranks", Consequence.NO_GROUP, rank, line.group, line.step)


MAKERS: dict[Maker, int] = {
    refuse: 6,
    call_otherwise: 8,
    leave_out: 3,
    call_twice: 3,
    swap: 3,
    swap_groups: 1,
    send_otherwise: 3,
    leave_early: 2,
    list_otherwise: 2,
}


def make_mistake(scenario: Scenario) -> Mistake:
    """One somewhere in the scenario; it has a rank and a place for one."""
    chance = scenario.chance
    while True:
        maker = chance.choices(list(MAKERS), list(MAKERS.values()))[0]
        for _ in range(20):
            rank = chance.randrange(scenario.world_size)
            made = maker(scenario, rank, chance.randrange(len(scenario.scripts[rank])))
            if made:
                return made
