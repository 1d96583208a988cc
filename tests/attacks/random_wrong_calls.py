#!/usr/bin/env python3
"""Jobs of which a random rank calls something wrong: another operation, type, size, root or order
than the others, none where they call one, messages that do not fit, wrong arguments.

A wrong argument is an error of that call alone. All else that disagrees is an error of all ranks of
the group, in time, with both calls and ranks; other groups go on. No memory is wrong after what
ended well, and nobody has ever written beside a buffer.
"""

from __future__ import annotations

import random
import re
import time

import attack
from attack import BOUND_S, Outcome
from mistakes import Consequence, Mistake, make_mistake
from played_job import Event, PlayedJob, PlayedRank, names
from scenario import Line, Scenario

INVALID = "InvalidArgument"
REASON_OF_ABORT = "as the script has it"
BOTH_CALLS = re.compile(
    r"called .*, .* called |gives \d+ elements to .*, which takes \d+|sent .* rec"
)


class WrongCall:
    """A job, and the mistake of one of its ranks."""

    def __init__(self, program: str, chance: random.Random) -> None:
        self.scenario = Scenario(chance, victim=False)
        self.mistake: Mistake = make_mistake(self.scenario)
        self.outcome = Outcome(self.mistake.kind)
        texts = [self.scenario.text(rank) for rank in range(self.scenario.world_size)]
        self.job = PlayedJob(program, texts, self.scenario.nodes)
        self.wrong = self.job.ranks[self.mistake.rank]

    def run(self) -> Outcome:
        while not self.job.pump(self.is_over, 0.2):
            latest = self.job.latest_event()
            if latest and time.monotonic() - latest > BOUND_S:
                break
        for rank in self.job.ranks:
            self.check_rank(rank)
        if self.may_be_unheard() and not any(map(self.errors_of, self.job.ranks)):
            self.find(self.wrong, "and all others noticed nothing")
        self.outcome.findings += self.job.close()
        self.outcome.details = f"{self.mistake}\n{attack.describe(self.scenario, self.job)}"
        return self.outcome

    def is_over(self) -> bool:
        return all(rank.has_ended for rank in self.job.ranks)

    def find(self, rank: PlayedRank, what: str) -> None:
        wrong = f"rank {self.mistake.rank}, group {self.mistake.group}: {self.mistake.kind}"
        self.outcome.findings.append(f"rank {rank.rank} {what} [{self.scenario.layout()}; {wrong}]")

    def check_rank(self, rank: PlayedRank) -> None:
        errors = self.errors_of(rank)
        for line, event in errors:
            self.check_error(rank, line, event)
        for problem in rank.problems():
            self.find(rank, problem)
        if rank.has_ended and not errors and self.must_fail(rank):
            self.find(rank, "noticed nothing")

    def errors_of(self, rank: PlayedRank) -> list[tuple[Line, Event]]:
        return attack.first_errors(self.scenario, rank)

    def lacks_a_member(self, group: int) -> bool:
        """Whether a rank could not make the group, as its parent had failed by then."""
        return any(
            line.verb == "new_group" and line.values.get("as") == group
            for rank in self.job.ranks
            for line in (self.scenario.line(rank.rank, event.step) for event in rank.said("error"))
        )

    def may_be_unheard(self) -> bool:
        """Whether between nodes a rank that only sends to a root is done before others notice."""
        nodes = self.scenario.nodes  # None are named where there is one.
        members = self.scenario.groups.get(self.mistake.group, [])
        is_apart = bool(nodes) and len({nodes[rank] for rank in members}) > 1
        return self.mistake.kind == "another root" and is_apart

    def must_fail(self, rank: PlayedRank) -> bool:
        if self.mistake.consequence is Consequence.REFUSED:
            return rank is self.wrong
        if self.may_be_unheard():
            return False
        is_member = rank.rank in self.scenario.groups[self.mistake.group]
        return is_member and self.mistake.consequence is not Consequence.ANY

    def check_error(self, rank: PlayedRank, line: Line, event: Event) -> None:
        consequence = self.mistake.consequence
        if consequence is not Consequence.REFUSED:
            began = max(rank.start_of(event.step), self.wrong.start_of(self.mistake.step))
            self.outcome.latencies.append(max(0.0, event.at - began))
        code = event.text.split(" ", 1)[0]
        says = f"step {event.step} {line.verb}: {event.text}"
        if consequence is Consequence.REFUSED:
            if (rank.rank, event.step, code) != (self.mistake.rank, self.mistake.step, INVALID):
                self.find(rank, f"failed: {says}")
        elif consequence is Consequence.ANY:
            return
        elif line.group != self.mistake.group:
            # A rank that waits because of the mistake may be part of a deadlock in this group.
            is_circle = "ranks wait for each other" in event.text
            if not is_circle and not self.lacks_a_member(line.group):
                self.find(rank, f"failed in another group: {says}")
        elif consequence is Consequence.NO_GROUP:
            if event.step != self.mistake.step or code != "Mismatch":
                self.find(rank, f"failed: {says}")
        elif code == INVALID:
            self.find(rank, f"takes it for a wrong argument: {says}")
        elif consequence is Consequence.MISMATCH:
            if not BOTH_CALLS.search(event.text) or not self.is_named_to(rank, event.text):
                self.find(rank, f"does not say who called what: {says}")
        elif consequence is Consequence.LEFT and not self.is_named_to(rank, event.text):
            self.find(rank, f"does not name the rank that is wrong: {says}")

    def is_named_to(self, rank: PlayedRank, text: str) -> bool:
        return rank is self.wrong or names(text, self.wrong) or REASON_OF_ABORT in text


if __name__ == "__main__":
    attack.run(__doc__.split("\n\n")[0], lambda program, chance: WrongCall(program, chance).run())
