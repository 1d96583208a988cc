"""Kills a training at random moments and resumes it, until it ends: its parameters must be those of
an undisturbed run, bit for bit.

python kill_and_resume.py UNISONO PROGRAM DIGITS [--sharded] [--kills N] [--seed S]

Each start has loaders of another number of workers. A training has 1 to 3 ranks; one on shards has
another number of them each time, and must come to the same parameters.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HASH = re.compile(r"^Rank \d parameter hash (\w{16})$", re.MULTILINE)
MOST_RANKS = 3
MOST_WORKERS = 2
DEADLINE_SECONDS = 60
MOST_ROUNDS = 100


def command(arguments, n_ranks, n_workers, checkpoints):
    """A short training with dropout; the folder's name in it tells its processes from others."""
    words = [arguments.unisono, "run", "-n", str(n_ranks), arguments.program]
    if arguments.sharded:
        return [*words, arguments.digits, checkpoints, "12", str(n_workers)]
    words += ["--data", arguments.digits, "--epochs", "6", "--batch-size", "2", "--lr", "0.2"]
    words += ["--workers", str(n_workers), "--save", "", "--verbose"]
    return [*words, "--checkpoint-dir", checkpoints, "--checkpoint-every", "1", "--resume"]


def processes_with(text):
    """The processes that have the text in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if text.encode() in words and int(entry.name) != os.getpid():
                    found.append(int(entry.name))
    return sorted(found)


def wait_until_gone(text):
    deadline = time.monotonic() + DEADLINE_SECONDS
    while processes_with(text):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes {processes_with(text)} are still there")
        time.sleep(0.01)


def run_to_the_end(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def hash_of(output, n_ranks):
    """The one that all ranks have printed."""
    found = HASH.findall(output)
    if len(found) != n_ranks or len(set(found)) != 1:
        sys.exit(f"{n_ranks} ranks have the hashes {found}\n{output}")
    return found[0]


def kill_one(victims, chance):
    """Whether there was one: the launcher, its guardian, or a rank."""
    if not victims:
        return False
    try:
        os.kill(chance.choice(victims), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def run_and_kill(words, text, wait_seconds, chance):
    """Whether a process of the job was killed before the job had ended by itself."""
    with tempfile.TemporaryFile("w+") as output:
        job = subprocess.Popen(words, stdout=output, stderr=output)
        try:
            job.wait(timeout=wait_seconds)
        except subprocess.TimeoutExpired:
            is_killed = kill_one(processes_with(text), chance)
            job.wait(timeout=DEADLINE_SECONDS)
            wait_until_gone(text)
            if is_killed:
                return True
        finally:
            job.kill()
            job.wait()
        output.seek(0)
        if job.returncode != 0:
            raise RuntimeError(f"exit code {job.returncode}\n{output.read()}")
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("unisono")
    parser.add_argument("program", help="mnist, or shard_training")
    parser.add_argument("digits")
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    undisturbed = {}  # hash and seconds, by number of ranks
    n_kills = n_resumed = n_rounds = 0
    with tempfile.TemporaryDirectory() as folder:

        def start(name, n_ranks):
            workers = chance.randint(0, MOST_WORKERS)
            return command(arguments, n_ranks, workers, f"{folder}/{name}")

        for n_ranks in range(1, MOST_RANKS + 1):
            begin = time.monotonic()
            output = run_to_the_end(start(f"undisturbed-{n_ranks}", n_ranks))
            undisturbed[n_ranks] = hash_of(output, n_ranks), time.monotonic() - begin
        expected = {value for value, _ in undisturbed.values()}
        if len(expected) != (1 if arguments.sharded else MOST_RANKS):
            sys.exit(f"by number of ranks: {undisturbed}")
        while n_kills < arguments.kills or n_resumed == 0:
            if n_rounds == MOST_ROUNDS:
                sys.exit(f"only {n_kills} kills and {n_resumed} resumed in {n_rounds} trainings")
            n_rounds += 1
            name = f"killed-{n_rounds}"
            n_ranks = chance.randint(1, MOST_RANKS)
            # Kills a job a few times, and then lets the job finish.
            for _ in range(chance.randint(1, 5)):
                seconds = chance.uniform(0, undisturbed[n_ranks][1])
                words = start(name, n_ranks)
                n_kills += run_and_kill(words, f"{folder}/{name}", seconds, chance)
                if arguments.sharded:
                    n_ranks = chance.randint(1, MOST_RANKS)
            output = run_to_the_end(start(name, n_ranks))
            n_resumed += "going on from " in output
            found, wanted = hash_of(output, n_ranks), undisturbed[n_ranks][0]
            if found != wanted:
                sys.exit(
                    f"seed {arguments.seed}, round {n_rounds}: {found} after interruptions, "
                    f"{wanted} without\n{output}"
                )
    print(f"{n_kills} kills in {n_rounds} trainings, of which {n_resumed} were resumed: all equal")


if __name__ == "__main__":
    main()
