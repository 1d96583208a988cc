"""Kills a training at random moments and resumes it, until it ends: its parameters must be those of
an undisturbed run, bit for bit.

python kill_and_resume.py UNISONO MNIST DIGITS [--kills N] [--seed S]
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

HASH = re.compile(r"^Rank (\d) parameter hash (\w{16})$", re.MULTILINE)
DEADLINE_SECONDS = 60
MOST_ROUNDS = 100


def command(arguments, folder, name):
    """A short training with dropout; the folder's name in it tells its processes from others."""
    words = [arguments.unisono, "run", "-n", "2", arguments.mnist, "--data", arguments.digits]
    words += ["--epochs", "6", "--batch-size", "2", "--lr", "0.2", "--save", "", "--verbose"]
    return [*words, "--checkpoint-dir", str(Path(folder) / name), "--checkpoint-every", "1"]


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


def hashes(output):
    return [value for _, value in sorted(HASH.findall(output))]


def run_to_the_end(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


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
    parser.add_argument("mnist")
    parser.add_argument("digits")
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    n_kills = n_resumed = n_rounds = 0
    with tempfile.TemporaryDirectory() as folder:
        start = time.monotonic()
        expected = hashes(run_to_the_end(command(arguments, folder, "undisturbed")))
        seconds = time.monotonic() - start
        if len(expected) != 2 or expected[0] != expected[1]:
            sys.exit(f"the ranks' hashes differ: {expected}")
        while n_kills < arguments.kills or n_resumed == 0:
            if n_rounds == MOST_ROUNDS:
                sys.exit(f"only {n_kills} kills and {n_resumed} resumed in {n_rounds} trainings")
            n_rounds += 1
            name = f"killed-{n_rounds}"
            words = [*command(arguments, folder, name), "--resume"]
            text = str(Path(folder) / name)
            # A job is killed a few times, then it comes to its end.
            for _ in range(chance.randint(1, 5)):
                n_kills += run_and_kill(words, text, chance.uniform(0, seconds), chance)
            output = run_to_the_end(words)
            n_resumed += "going on from " in output
            if hashes(output) != expected:
                sys.exit(
                    f"seed {arguments.seed}, round {n_rounds}: {hashes(output)} after "
                    f"interruptions, {expected} without\n{output}"
                )
    print(f"{n_kills} kills in {n_rounds} trainings, of which {n_resumed} were resumed: all equal")


if __name__ == "__main__":
    main()
