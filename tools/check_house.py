#!/usr/bin/env python3
"""Checks the structure of the sources and the English of comments and documents.

tools/house_allow.txt lists exceptions, one per line: CHECK NAME  # reason. An entry that is no
longer needed is a problem as well. Limits of the language are rates per 1,000 words over all files
together, so a single comment rarely fails; `--worst N` lists the comments to rewrite first.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

MIN_LINES = 40
MAX_FILES = 40
MAX_EXAMPLE_LINES = 120
MAX_SHORT_FILES = 40
FLOORS = [
    "base",
    "net",
    "store",
    "rendezvous",
    "kernels",
    "transport",
    "collective",
    "pipeline",
    "peers",
    "engine",
    "comm",
    "launch",
    "data",
    "checkpoint",
    "report",
    "cli",
    "torch",
]
WORDS = {
    "pronouns": "it they them its their one ones those",
    "what": "what",
    "who": "who whose whom whoever",
    "absence": "nobody nothing nowhere none",
    "people": "say says said tell tells told hear hears heard look looks looked know knows",
}
SOURCE_LIMITS = {"pronouns": 22, "what": 1.5, "who": 0.8, "absence": 1.5, "people": 1.5}
DOCUMENT_LIMITS = {"pronouns": 25, "what": 2.5, "who": 1.2, "people": 2}
MAX_FRAGMENTS = 0.02
FRAGMENT = re.compile(
    r"^(Of|By which|By whom|What|Who|Whose|Whom|Whoever|To who|For who|To whom|For whom|Theirs"
    r"|Whether|Else|Nobody|Nothing|None|Also|Unless|Past|Beside|The same|As"
    r"|Where|Those|That itself)\b"
)
TYPE = re.compile(
    r"^(?:template .*>\s*)?(?:class|struct|enum class)(?: alignas\([^)]*\))?"
    r"(?: UNISONO_\w+(?:\([^)]*\))?)? (\w+)(?: final)?(?: : [^{;]*)? ?\{",
    re.MULTILINE,
)
NAMESPACE_MEMBER = re.compile(
    r"^(?:[\w:<>,&*][\w:<>,&* ]* )?([A-Z]\w+)::(?:~?\w+|operator\S+)\(", re.MULTILINE
)
INCLUDE = re.compile(r'^#include "(unisono/[^"]+)"', re.MULTILINE)
PATH = re.compile(r"`((?:\.\./)*(?:[\w.-]+/)+[\w.*-]+\.(?:h|cpp|py|md|txt|sh|cmake))`")


def is_test(path: str) -> bool:
    return bool(re.search(r"_test\.|/testing/|/tests/", path))


def blocks_of(path: str, text: str) -> Iterator[tuple[int, str]]:
    """Yields line number and text of each comment, or of each paragraph of a Markdown file."""
    markdown, fenced = path.endswith(".md"), False
    block: list[str] = []
    start = 0
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if markdown:
            fence = line.lstrip().startswith("```")
            skipped = fence or fenced or line.startswith(("    ", "<!--", "#")) or not line.strip()
            fenced ^= fence
            part = None if skipped else re.sub(r"`[^`]*`|\[|\]\([^)]*\)", " ", line)
        elif path.endswith(".py"):
            match = re.match(r"\s*#(?!!)\s?(.*)$", line)
            part = match.group(1) if match else None
        else:
            match = re.match(r"\s*//+<?\s?(.*)$", line) or re.search(r"///<\s?(.*)$", line)
            part = match.group(1) if match else None
        if part is None or "NOLINT" in part or "clang-format" in part:
            if block:
                yield start, " ".join(block)
            block = []
            continue
        if not block:
            start = number
        block.append(part.strip())


class House:
    """The files of a repository, and the problems that were found in them."""

    def __init__(self, root: Path, files: list[str], allowed: set[tuple[str, str]]) -> None:
        self.root = root
        self.text = {
            name: (root / name).read_text(encoding="utf-8", errors="replace")
            for name in files
            if re.search(r"\.(h|cpp|py|md)$", name)
        }
        self.files = set(files)
        self.allowed = allowed
        self.used: set[tuple[str, str]] = set()
        self.problems: list[str] = []
        self.plain = [
            name
            for name in self.text
            if name.startswith("src/") and name.endswith((".h", ".cpp")) and not is_test(name)
        ]

    def report(self, check: str, name: str, problem: str) -> None:
        if (check, name) in self.allowed:
            self.used.add((check, name))
        else:
            self.problems.append(f"{name}: {problem} [{check}]")

    def check(self) -> list[str]:
        self.check_files()
        self.check_headers()
        self.check_types()
        self.check_classes()
        self.check_paths()
        self.check_engine()
        self.check_floors()
        self.check_language()
        for check, name in sorted(self.allowed - self.used):
            self.problems.append(f"{name}: the entry '{check}' of the allow-list is not needed")
        return self.problems

    def check_files(self) -> None:
        short = [name for name in self.plain if self.text[name].count("\n") < MIN_LINES]
        if len(short) > MAX_SHORT_FILES:
            self.problems.append(
                f"src: {len(short)} files have under {MIN_LINES} lines, {MAX_SHORT_FILES} may: "
                "merge them into the files that use them"
            )
        folders = Counter(os.path.dirname(name) for name in self.plain)
        for folder, count in folders.items():
            if count > MAX_FILES:
                self.report("folder", folder, f"{count} files, {MAX_FILES} may be in a folder")
        for name, text in self.text.items():
            if name.startswith("examples/") and name.endswith("/main.cpp"):
                lines = text.count("\n")
                if lines > MAX_EXAMPLE_LINES:
                    self.report("example", name, f"{lines} lines, at most {MAX_EXAMPLE_LINES}")

    def check_headers(self) -> None:
        users: dict[str, set[str]] = defaultdict(set)
        for name, text in self.text.items():
            for header in INCLUDE.findall(text):
                users[f"src/{header}"].add(name)
        for name in self.plain:
            if not name.endswith(".h") or os.path.dirname(name) == "src/unisono":
                continue
            own = f"{name[:-2]}.cpp"
            others = {user for user in users[name] if user != own and not is_test(user)}
            used = len(others) + (len(users[name]) > len(others) and own not in users[name])
            if used < 2 and own not in self.files and self.text[name].count("\n") < MIN_LINES:
                self.report("header", name, "has one user and few lines: make it part of that file")

    def check_types(self) -> None:
        places: dict[str, list[str]] = defaultdict(list)
        for name in self.plain:
            if name.endswith(".h"):
                for match in TYPE.finditer(self.text[name]):
                    places[match.group(1)].append(name)
        for type_name, headers in places.items():
            if len(set(headers)) > 1:
                self.report("type", type_name, f"is a type in {' and '.join(sorted(set(headers)))}")

    def check_classes(self) -> None:
        places: dict[tuple[str, str], set[str]] = defaultdict(set)
        for name in self.plain:
            if name.endswith(".cpp"):
                floor = "/".join(name.split("/")[:3])
                for match in NAMESPACE_MEMBER.finditer(self.text[name]):
                    places[floor, match.group(1)].add(name)
        for (_, class_name), sources in places.items():
            if len(sources) > 2:
                self.report(
                    "class",
                    class_name,
                    f"has members in {len(sources)} files: {', '.join(sorted(sources))}",
                )

    def check_paths(self) -> None:
        ends = {
            name[i:] for name in self.files for i in [0, *(m.end() for m in re.finditer("/", name))]
        }
        for name, text in self.text.items():
            if name.endswith(".md") and not name.startswith("docs/guide/"):
                for path in PATH.findall(text):
                    if "*" not in path and path.lstrip("./") not in ends:
                        self.report("path", name, f"names `{path}`, which does not exist")

    def check_engine(self) -> None:
        for name in self.plain:
            if not name.startswith("src/unisono/engine/"):
                for header in INCLUDE.findall(self.text[name]):
                    if header.startswith("unisono/engine/native/"):
                        self.report(
                            "engine", name, f"includes {header}, a part of the engine alone"
                        )

    def check_floors(self) -> None:
        for name in self.plain:
            floor = name.split("/")[2]
            if floor not in FLOORS:
                continue
            higher = FLOORS[FLOORS.index(floor) + 1 :]
            pattern = re.compile(
                r"(?<![\w/:])(?:unisono/|unisono::)?(" + "|".join(higher) + r")(?:/\w+\.h\b|::\w)"
            )
            for number, comment in blocks_of(name, self.text[name]):
                match = pattern.search(comment)
                if match and not match.group(0).startswith("torch::"):
                    self.report(
                        "floor", f"{name}:{number}", f"names {match.group(0)}..., of a floor above"
                    )

    def rates(self, names: list[str]) -> tuple[dict[str, float], float, list[tuple[float, str]]]:
        sets = {kind: set(words.split()) for kind, words in WORDS.items()}
        counts: Counter[str] = Counter()
        n_words = n_blocks = n_fragments = 0
        worst = []
        for name in names:
            for number, block in blocks_of(name, self.text[name]):
                if re.search(r"copyright|license", block, re.IGNORECASE):
                    continue
                words = re.findall(r"[a-z']+", block.lower())
                n_words += len(words)
                n_blocks += bool(words)
                n_fragments += bool(words) and bool(FRAGMENT.match(block))
                hits = 0
                for kind, members in sets.items():
                    found = sum(word in members for word in words)
                    counts[kind] += found
                    hits += found
                if hits > 2:
                    worst.append((hits / (len(words) + 6), f"{name}:{number}: {block[:120]}"))
        rates = {kind: 1000 * counts[kind] / max(1, n_words) for kind in WORDS}
        return rates, n_fragments / max(1, n_blocks), sorted(worst, reverse=True)

    def sources(self) -> list[str]:
        return [
            n
            for n in self.text
            if n.startswith(("src/", "datasets/", "python/")) and not is_test(n)
        ]

    def check_language(self) -> None:
        documents = [
            n for n in self.text if n.startswith(("docs/", "examples/")) or n == "README.md"
        ]
        for where, names, limits in (
            ("comments", self.sources(), SOURCE_LIMITS),
            ("documents", documents, DOCUMENT_LIMITS),
        ):
            rates, fragments, _ = self.rates(names)
            for kind, limit in limits.items():
                if rates[kind] > limit:
                    self.problems.append(
                        f"{where}: {rates[kind]:.1f} {kind} per 1,000 words, at most {limit}; "
                        "tools/check_house.py --worst 20 lists where to begin"
                    )
            if where == "comments" and fragments > MAX_FRAGMENTS:
                self.problems.append(
                    f"comments: {fragments:.1%} begin as fragments without a subject, at most "
                    f"{MAX_FRAGMENTS:.0%}"
                )


def read_allowed(path: Path) -> set[tuple[str, str]]:
    allowed = set()
    for line in path.read_text().splitlines():
        entry = line.split("#")[0].split()
        if entry:
            check, name = entry
            allowed.add((check, name))
    return allowed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worst", type=int, default=0, metavar="N", help="list N comments")
    arguments = parser.parse_args()
    root = Path(__file__).resolve().parents[1]
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    files = [name for name in listing.splitlines() if (root / name).is_file()]
    house = House(root, files, read_allowed(root / "tools/house_allow.txt"))
    if arguments.worst:
        for _, place in house.rates(house.sources())[2][: arguments.worst]:
            print(place)
        return 0
    problems = house.check()
    print("\n".join(problems) or "the house is in order")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
