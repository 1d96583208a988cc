#!/usr/bin/env python3
"""Holds the text of the repository's files to the rules that no other tool knows.

Checks the files given, or all that git knows of. A line that needs an exception says why in a
comment with `check_text: allow`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

MAX_LINES = 600
UNLIMITED = {"LICENSE", "CHANGELOG.md"}
ALLOW = "check_text: " + "allow"
RULES = [
    (
        re.compile(r"(?<![\w.$}-])/(?:home|root|Users|mnt|srv|work)/\w"),
        "a path of one machine; nobody else has it",
    ),
    (
        re.compile(r"\b(?:TO[D]O(?!\((?:perf|soon|security)\): )|FI[X]ME\b|X[X]X\b)"),
        "put (perf|soon|security): behind the word, and say what is missing",
    ),
    (
        re.compile(r"\b(?:issue|ticket|PR) ?#\d", re.IGNORECASE),
        "explain it here; a number explains nothing",
    ),
    (
        re.compile(r"\bshared[/](?!(?<=\.\./shared.)data\b)"),
        "that folder is not in the repository; only its data/ may be the default of an option",
    ),
]


def tracked_files() -> list[Path]:
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in output.split("\0") if name and Path(name).is_file()]


def problems_of(path: Path) -> list[str]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        return []
    problems = []
    if len(lines) > MAX_LINES and path.name not in UNLIMITED:
        problems.append(
            f"{path}: {len(lines)} lines; over {MAX_LINES} it must do more than one thing"
        )
    for number, line in enumerate(lines, 1):
        if ALLOW in line:
            continue
        for pattern, advice in RULES:
            match = pattern.search(line)
            if match:
                problems.append(f"{path}:{number}: '{match.group()}': {advice}")
    return problems


def main() -> int:
    paths = [Path(name) for name in sys.argv[1:]] or tracked_files()
    problems = [problem for path in paths for problem in problems_of(path)]
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
