#!/usr/bin/env python3
"""Jobs of which a rank dies at a random moment: before it meets the others, while it does, in any
of their operations, while groups are made, while it leaves.

Every survivor ends its steps with an error that names the dead rank, or rightly; in time, though
operations may take minutes. What it has got by then is right, and nobody has written beside it.
Groups of survivors go on. Afterwards the process is well, and nothing is left of the job.
"""

from __future__ import annotations

import random
import signal
import time
from dataclasses import dataclass

import attack
from attack import BOUND_S, Outcome
from played_job import Event, PlayedJob, PlayedRank, names
from scenario import Line, Scenario

PATIENCE_FOR_MEETING_S = 1.5  # Ranks say whom they wait for after 0.5 s and 1 s.
UNMET = "ended before anybody met it"
OTHER_ENDS = ("exit", "_exit", "abort", "throw")


@dataclass
class Moment:
    """Of a death: so long after the job's start, or after the victim began a step."""

    step: int | None
    delay_s: float
    stops_for_s: float | None  # Stopped before it is killed.

    def __str__(self) -> str:
        since = "the start" if self.step is None else f"step {self.step}"
        stopped = "" if self.stops_for_s is None else f"stopped for {self.stops_for_s:.3f} s and "
        return f"{stopped}killed {self.delay_s * 1000:.3f} ms after {since}"


def choose_moment(chance: random.Random, script: list[Line]) -> Moment:
    stops_for = chance.uniform(0, 0.5) if chance.random() < 0.2 else None
    if chance.random() < 0.25:
        return Moment(None, chance.uniform(0, 0.25), stops_for)
    delay = chance.choice([0, chance.uniform(0, 0.002), chance.uniform(0, 0.03)])
    return Moment(chance.choice(script).step, delay, stops_for)


class Death:
    """A job, its victim, and how that dies."""

    def __init__(self, program: str, chance: random.Random) -> None:
        self.scenario = Scenario(chance, victim=True)
        script = self.scenario.scripts[self.scenario.victim]
        self.how = chance.choice(OTHER_ENDS) if chance.random() < 0.25 else "kill"
        self.moment = choose_moment(chance, script)
        if self.how != "kill":
            place = chance.randrange(len(script))
            script.insert(place, Line(0, "end", {"how": self.how}))
        self.is_reaped_at_once = chance.random() < 0.6
        self.holds = not self.has_groups_of_survivors() and chance.random() < 0.4
        self.due: float | None = None
        self.died: float | None = None
        texts = [self.scenario.text(rank) for rank in range(self.scenario.world_size)]
        if self.holds:
            texts = [text + "hold\n" for text in texts]
        self.job = PlayedJob(program, texts, self.scenario.nodes, self.on_event)
        self.victim = self.job.ranks[self.scenario.victim]
        self.survivors = [rank for rank in self.job.ranks if rank is not self.victim]
        self.outcome = Outcome(self.how)
        if self.how == "kill" and self.moment.step is None:
            self.due = time.monotonic() + self.moment.delay_s

    def has_groups_of_survivors(self) -> bool:
        return any(self.is_of_survivors(group) for group in self.scenario.groups)

    def is_of_survivors(self, group: int | None) -> bool:
        return group is not None and self.scenario.victim not in self.scenario.groups[group]

    def on_event(self, rank: PlayedRank, event: Event) -> None:
        if rank.rank != self.scenario.victim or event.word != "start":
            return
        if self.how == "kill" and event.step == self.moment.step and self.due is None:
            self.due = event.at + self.moment.delay_s
        elif event.text == "end":
            self.died = event.at

    # --- the course of a job ---

    def run(self) -> Outcome:
        if self.how == "kill":
            self.kill()
        else:
            self.job.pump(lambda: self.victim.has_ended or self.are_over(), BOUND_S * 3)
        if self.died is not None and self.is_reaped_at_once:
            self.job.pump(lambda: self.victim.has_ended, BOUND_S)
            self.victim.process.wait()
        self.wait_for_survivors()
        self.check()
        self.outcome.findings += self.job.close()
        self.outcome.details = (
            f"rank {self.scenario.victim}: {self.how}, {self.moment}, at {self.died};"
            f" reaped at once: {self.is_reaped_at_once}; others hold: {self.holds}\n"
            + attack.describe(self.scenario, self.job)
        )
        return self.outcome

    def kill(self) -> None:
        self.job.pump(lambda: self.due is not None or self.are_over(), BOUND_S * 3)
        if self.due is None:
            return
        self.job.pump(lambda: self.victim.has_ended, max(0.0, self.due - time.monotonic()))
        if self.moment.stops_for_s is not None:
            self.victim.process.send_signal(signal.SIGSTOP)
            self.job.pump(lambda: self.victim.has_ended, self.moment.stops_for_s)
        if not self.victim.has_ended:
            self.died = time.monotonic()
            self.victim.process.send_signal(signal.SIGKILL)

    def are_over(self) -> bool:
        return all(rank.is_done() for rank in self.survivors)

    def wait_for_survivors(self) -> None:
        """Until they have ended, or wait in vain."""
        while not self.job.pump(self.are_over, 0.2):
            if self.wait_for_one_nobody_met() or self.silence() > BOUND_S:
                break
        self.job.let_go()
        if self.are_over():
            self.job.pump(lambda: all(rank.has_ended for rank in self.job.ranks), BOUND_S)

    def silence(self) -> float:
        return time.monotonic() - max(self.died or 0.0, self.job.latest_event())

    def wait_for_one_nobody_met(self) -> bool:
        """Ranks that say that they wait for the dead one in the meeting are right."""
        has_come = self.died is None or self.victim.said("ok")
        if has_come or self.silence() < PATIENCE_FOR_MEETING_S:
            return False
        waiting = [rank for rank in self.survivors if not rank.is_done()]
        are_right = all(self.waits_for_the_unknown(rank) for rank in waiting)
        if are_right:
            self.outcome.kind = UNMET
        return are_right

    def waits_for_the_unknown(self, rank: PlayedRank) -> bool:
        if rank.said("ok"):
            return False
        says = rank.last_words()
        is_missing = "has waited" in says and f"for rank {self.scenario.victim} " in says
        return is_missing or (self.scenario.victim == 0 and "to reach the store" in says)

    # --- what must hold ---

    def check(self) -> None:
        for rank in self.survivors:
            self.check_rank(rank)
        if self.died is None:
            self.outcome.kind = "ended before its death"

    def find(self, rank: PlayedRank, what: str) -> None:
        how = f"rank {self.scenario.victim}: {self.how}"
        self.outcome.findings.append(f"rank {rank.rank} {what} [{self.scenario.layout()}; {how}]")

    def check_rank(self, rank: PlayedRank) -> None:
        for line, event in attack.first_errors(self.scenario, rank):
            self.check_error(rank, line, event)
        is_excused = self.outcome.kind == UNMET and not rank.is_done()
        for problem in [] if is_excused else rank.problems():
            self.find(rank, problem)
        came_to_the_end = any(
            event.step >= self.scenario.last_barrier for event in self.victim.said("start")
        )
        is_silent = rank.has_ended and not rank.said("error")
        if self.died is not None and is_silent and not came_to_the_end:
            self.find(rank, "noticed nothing")

    def check_error(self, rank: PlayedRank, line: Line, event: Event) -> None:
        says = f"step {event.step} {line.verb}: {event.text}"
        if self.died is None or event.at < self.died:
            self.find(rank, f"failed before the death: {says}")
        elif self.is_of_survivors(line.group) and not self.is_broken(line.group):
            self.find(rank, f"failed in a group of survivors: {says}")
        elif not self.is_of_survivors(line.group) and not names(event.text, self.victim):
            self.find(rank, f"does not name the dead rank: {says}")
        if self.died is not None:
            began = max(self.died, rank.start_of(event.step))
            self.outcome.latencies.append(event.at - began)
            if event.at - began > BOUND_S:
                self.find(rank, f"failed after {event.at - began:.1f} s: {says}")

    def is_broken(self, group: int) -> bool:
        """Whether a member could not make it."""
        members = self.scenario.groups[group]
        return any(
            not any(
                line.verb == "new_group"
                and line.values["as"] == group
                and any(ok.step == line.step for ok in self.job.ranks[member].said("ok"))
                for line in self.scenario.scripts[member]
            )
            for member in members
        )


if __name__ == "__main__":
    attack.run(__doc__.split("\n\n")[0], lambda program, chance: Death(program, chance).run())
