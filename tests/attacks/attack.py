"""The frame of attacks by chance: jobs one after the other, what was found, a summary."""

from __future__ import annotations

import argparse
import datetime
import os
import random
import statistics
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from played_job import Event, PlayedJob, PlayedRank
from scenario import Line, Scenario

# Time in which a rank that can't continue must report an error. A sanitizer needs more time.
BOUND_S = 30.0 if os.environ.get("SANITIZED") else 10.0


@dataclass
class Outcome:
    """Of one job: what is wrong, and how long ranks took to fail once they could not go on."""

    kind: str
    findings: list[str] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)
    details: str = ""


Attack = Callable[[str, random.Random], Outcome]


def seed_of_commit() -> int:
    """Another one for each commit; for each day, where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    return zlib.crc32((result.stdout or datetime.date.today().isoformat()).encode())


def describe(scenario: Scenario, job: PlayedJob) -> str:
    """All that is known of a job, to look for the cause."""
    lines = [f"nodes: {scenario.nodes or 'the machine'}; groups: {scenario.groups}"]
    for rank in job.ranks:
        lines.append(f"--- rank {rank.rank} (pid {rank.pid}), ended: {rank.process.returncode}")
        lines += [f"  {line}" for line in scenario.scripts[rank.rank]]
        lines += [f"  {e.at:.6f} {e.word} {e.step} {e.text}" for e in rank.events]
        lines += [f"  | {line}" for line in rank.err.decode(errors="replace").splitlines()]
    return "\n".join(lines)


def first_errors(scenario: Scenario, rank: PlayedRank) -> list[tuple[Line, Event]]:
    """Of each group: later calls repeat it."""
    first: dict[int | None, tuple[Line, Event]] = {}
    for event in rank.said("error"):
        line = scenario.line(rank.rank, event.step)
        first.setdefault(line.group, (line, event))
    return list(first.values())


def arguments(description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("program", help="the program that plays scripts: scripted_rank")
    parser.add_argument("--seconds", type=float, default=60, help="how long to begin jobs")
    parser.add_argument("--seed", type=int, help="default: made of the commit")
    parser.add_argument("--job", type=int, help="this one alone, with all that its ranks said")
    parser.add_argument("--jobs", type=int, help="so many at most")
    return parser.parse_args()


def summarize(outcomes: list[Outcome]) -> None:
    latencies = sorted(latency for outcome in outcomes for latency in outcome.latencies)
    kinds = Counter(outcome.kind for outcome in outcomes)
    print(f"{len(outcomes)} jobs:", ", ".join(f"{n} {kind}" for kind, n in kinds.most_common()))
    if latencies:
        late = latencies[min(len(latencies) - 1, len(latencies) * 99 // 100)]
        print(
            f"{len(latencies)} errors of ranks, after {statistics.median(latencies):.3f} s in the"
            f" median, {late:.3f} s (99%), {latencies[-1]:.3f} s at most"
        )


def run(description: str, attack: Attack) -> None:
    """The main function of an attack's program; ends the process."""
    chosen = arguments(description)
    seed = seed_of_commit() if chosen.seed is None else chosen.seed
    outcomes: list[Outcome] = []
    n_findings = 0
    end = time.monotonic() + chosen.seconds
    print(f"seed {seed}", flush=True)
    numbers = [chosen.job] if chosen.job is not None else range(chosen.jobs or 1_000_000)
    for number in numbers:
        if time.monotonic() > end:
            break
        outcome = attack(chosen.program, random.Random(f"{seed}/{number}"))
        outcomes.append(outcome)
        n_findings += len(outcome.findings)
        if outcome.findings:
            print(f"--seed {seed} --job {number} ({outcome.kind}):")
            print("".join(f"  {finding}\n" for finding in outcome.findings), end="", flush=True)
        if outcome.findings or chosen.job is not None:
            print(outcome.details, flush=True)
    summarize(outcomes)
    n_bad = sum(bool(outcome.findings) for outcome in outcomes)
    print(f"{n_findings} findings in {n_bad} jobs")
    sys.exit(1 if n_findings else 0)
