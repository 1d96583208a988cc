#!/usr/bin/env python3
"""Runs clang-tidy over the sources of a build folder's compile_commands.json.

A file that passed once is skipped until the file, anything that it includes, its compile command,
.clang-tidy or clang-tidy itself changes: results are kept in $XDG_CACHE_HOME/unisono-tidy.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIMEOUT_SECONDS = 600


@functools.cache
def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


class Tidy:
    def __init__(self, program: str, build: Path) -> None:
        self.program = program
        self.build = build
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        self.cache = base / "unisono-tidy"
        self.cache.mkdir(parents=True, exist_ok=True)
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
        self.salt = version.stdout + digest(str(ROOT / ".clang-tidy"))

    def key(self, entry: dict[str, str]) -> str | None:
        """What the result depends on; None if the compiler cannot say, as for a broken file."""
        command = [word for word in shlex.split(entry["command"]) if word != "ccache"]
        without_output = command[: command.index("-o")] if "-o" in command else command
        listing = subprocess.run(
            [*without_output, "-M", entry["file"]],
            cwd=entry["directory"],
            capture_output=True,
            text=True,
            check=False,
        )
        if listing.returncode != 0:
            return None
        files = listing.stdout.replace("\\\n", " ").split()[1:]
        content = [digest(str(Path(entry["directory"], name))) for name in files]
        text = "\n".join([self.salt, *without_output, *files, *content])
        # A checkout in another folder is the same source.
        return hashlib.sha256(text.replace(str(ROOT), "").encode()).hexdigest()

    def check(self, entry: dict[str, str]) -> tuple[bool, str]:
        """Returns whether the file passed, and clang-tidy's words if not."""
        key = self.key(entry)
        if key and (self.cache / key).exists():
            return True, ""
        command = [self.program, "-p", str(self.build), "--quiet", entry["file"]]
        try:
            result = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=TIMEOUT_SECONDS
            )
        except subprocess.TimeoutExpired:
            return False, f"{entry['file']}: clang-tidy took over {TIMEOUT_SECONDS} s\n"
        if result.returncode == 0:
            if key:
                (self.cache / key).touch()
            return True, ""
        return False, result.stdout + (result.stderr if not result.stdout else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-p", dest="build", type=Path, required=True, help="build folder")
    parser.add_argument("-j", dest="jobs", type=int, default=os.cpu_count())
    parser.add_argument("--clang-tidy", default="clang-tidy-19")
    parser.add_argument("files", nargs="*", type=Path, help="only these; default: all of ours")
    arguments = parser.parse_args()
    entries = json.loads((arguments.build / "compile_commands.json").read_text())
    wanted = {str(path.resolve()) for path in arguments.files}
    # A file that is compiled twice, for two targets, is checked once.
    chosen = {
        entry["file"]: entry
        for entry in entries
        if Path(entry["file"]).is_relative_to(ROOT)
        and not Path(entry["file"]).is_relative_to(arguments.build.resolve())
        and (not wanted or entry["file"] in wanted)
    }
    tidy = Tidy(arguments.clang_tidy, arguments.build)
    failed = 0
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for passed, words in pool.map(tidy.check, chosen.values()):
            if not passed:
                failed += 1
                print(words, end="", flush=True)
    print(f"clang-tidy: {len(chosen)} files, {failed} with findings")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
