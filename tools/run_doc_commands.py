#!/usr/bin/env python3
"""Runs what the documents show: every command block of README.md and docs/guide/*.md.

A block of commands (```sh), or of commands with their output (```console: lines after `$ `), runs
in the repository's root, with a HOME of its own that the blocks of a page share. `build/release`
stands for the build under test. In expected output `...` stands for anything. A comment on the line
before a block changes that:

    <!-- doc-test: skip: why it cannot run in a test -->
    <!-- doc-test: slow -->              runs only with --slow
    <!-- doc-test: file ~/hello/x.cpp --> is no command: the block is written to that file

Other blocks of C++ (```cpp) are compiled by compile_doc_snippets.py; none is skipped.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MARK = re.compile(r"^<!-- doc-test: (skip|slow|file)(?:: | )?(.*?) ?-->$")
FENCE = re.compile(r"^```([\w+]*)$")
COMMANDS = {"sh", "console"}
MUST_BE_MARKED = {"c++", "bash", "shell", "zsh", "python", "py"}
SNIPPET = "cpp"
# Lines of C++ in a block that is indented, and so has no language.
INDENTED_CPP = re.compile(r"^    (?:#include .*|.*(?:\);|\};|[^ ] \{)(?: *//.*)?)$")
TIMEOUT_SECONDS = {False: 240, True: 2000}


class DocError(Exception):
    """Something wrong with a page, or with what it shows."""


@dataclass
class Block:
    place: str
    language: str
    text: str
    mark: str
    argument: str


def pages_of_the_guide() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md"))]


def is_snippet(block: Block) -> bool:
    """Whether compile_doc_snippets.py compiles the block."""
    return block.language == SNIPPET and block.mark != "file"


def parse(text: str, page: str) -> list[Block]:
    """Returns the blocks of a page that are run, compiled, written to a file, or skipped with a
    reason."""
    blocks: list[Block] = []
    mark = argument = ""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        place = f"{page}:{number}"
        found = MARK.match(line)
        fence = FENCE.match(line)
        if found:
            mark, argument = found.groups()
            if mark != "slow" and not argument:
                raise DocError(
                    f"{place}: `{mark}` wants a {'reason' if mark == 'skip' else 'name'}"
                )
            continue
        if "doc-test" in line:
            raise DocError(f"{place}: not understood: {line}")
        if INDENTED_CPP.match(line):
            raise DocError(f"{place}: C++ that is tested by no one: write it as a block of ```cpp")
        if fence:
            body = []
            for _, inner in lines:
                if inner == "```":
                    break
                body.append(inner + "\n")
            else:
                raise DocError(f"{place}: the block has no end")
            language = fence.group(1)
            if not mark and language in MUST_BE_MARKED:
                raise DocError(
                    f"{place}: a block of {language} is tested by no one: use sh or console for "
                    "commands, `doc-test: file` for programs, or `doc-test: skip` and why"
                )
            if language == SNIPPET and mark == "skip":
                raise DocError(
                    f"{place}: C++ is compiled and not skipped: see compile_doc_snippets.py"
                )
            if mark or language in COMMANDS or language == SNIPPET:
                blocks.append(Block(place, language, "".join(body), mark, argument))
        if line.strip():
            mark = argument = ""
    return blocks


def split_console(text: str) -> list[tuple[str, str]]:
    """Returns the commands of a console block, each with the output shown."""
    steps: list[tuple[str, str]] = []
    continues = False
    for line in text.splitlines():
        if continues or line.startswith("$ "):
            command = line if continues else line[2:]
            if continues:
                steps[-1] = (steps[-1][0] + "\n" + command, "")
            else:
                steps.append((command, ""))
            continues = command.endswith("\\")
        elif steps:
            steps[-1] = (steps[-1][0], steps[-1][1] + line + "\n")
        else:
            raise DocError(f"output before the first command: {line}")
    return steps


def matches(expected: str, actual: str) -> bool:
    """Whether the lines expected stand in the output, in their order; `...` is anything."""
    lines = iter(actual.splitlines())
    for wanted in expected.splitlines():
        if wanted.strip() == "...":
            continue
        pattern = ".*".join(re.escape(part) for part in wanted.rstrip().split("..."))
        if not any(re.fullmatch(pattern, line.rstrip()) for line in lines):
            return False
    return True


class Page:
    """Runs the blocks of one page, which share a home folder."""

    def __init__(self, home: Path, build: Path, slow: bool) -> None:
        self.home = home
        self.build = build
        self.slow = slow
        self.environment = os.environ | {
            "CCACHE_DIR": os.environ.get("CCACHE_DIR", str(Path.home() / ".cache/ccache")),
            "HOME": str(home),
            "TMPDIR": str(home),
        }
        # Make and CMake behave otherwise when they find themselves inside of another's run.
        for name in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "DESTDIR"):
            self.environment.pop(name, None)

    def run_command(self, command: str, place: str) -> str:
        command = command.replace("build/release", os.path.relpath(self.build, ROOT))
        process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", command],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        limit = TIMEOUT_SECONDS[self.slow]
        try:
            output, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
            raise DocError(f"{place}: not done after {limit} s:\n{command}\n{output}") from None
        if process.returncode != 0:
            raise DocError(f"{place}: exit status {process.returncode}:\n{command}\n{output}")
        return output

    def write_file(self, block: Block) -> None:
        if not block.argument.startswith("~/"):
            raise DocError(f"{block.place}: the file's name must begin with ~/")
        path = self.home / block.argument.removeprefix("~/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)

    def run(self, block: Block) -> str:
        """Runs a block, and says in a word what was done with it."""
        if block.mark == "skip":
            return f"skipped: {block.argument}"
        if block.mark == "file":
            self.write_file(block)
            return f"written to {block.argument}"
        if is_snippet(block):
            return "for compile_doc_snippets.py"
        if block.mark == "slow" and not self.slow:
            return "skipped: slow"
        if block.language == "sh":
            self.run_command(block.text, block.place)
            return "ran"
        if block.language != "console":
            raise DocError(f"{block.place}: only blocks of sh and console can run")
        for command, expected in split_console(block.text):
            output = self.run_command(command, block.place)
            if not matches(expected, output):
                raise DocError(
                    f"{block.place}: {command}\nshould print\n{expected}but printed\n{output}"
                )
        return "ran"


def run_page(path: Path, build: Path, slow: bool) -> None:
    name = os.path.relpath(path, ROOT)
    blocks = parse(path.read_text(), name)
    home = Path(tempfile.mkdtemp(prefix="unisono-docs-"))
    try:
        page = Page(home, build, slow)
        for block in blocks:
            print(f"{block.place}: {page.run(block)}", flush=True)
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--slow", action="store_true", help="also what is marked as slow")
    parser.add_argument("pages", nargs="*", type=Path)
    arguments = parser.parse_args()
    pages = arguments.pages or pages_of_the_guide()
    failed = False
    for path in pages:
        try:
            run_page(path, arguments.build.resolve(), arguments.slow)
        except DocError as error:
            failed = True
            print(error, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
