#!/usr/bin/env python3
"""Checks every #include of src/unisono and datasets/ against CMake's list of libraries.

The LINKS of unisono_library() are the layer diagram: a file may include the headers of what its
library links, a public header only public ones of what the library links publicly, and a floor may
link only floors that src/unisono/CMakeLists.txt lists above it. The library datasets/ stands above
all floors, so that no floor may use it.
"""

from __future__ import annotations

import argparse
import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

KEYWORDS = {
    "unisono_library": {
        "COMPONENT",
        "HEADERS",
        "INTERNAL_HEADERS",
        "PRIVATE_HEADERS",
        "SOURCES",
        "LINKS",
        "PRIVATE_LINKS",
    },
    "unisono_test": {"SOURCES", "LINKS", "LABELS", "TIMEOUT"},
    "target_link_libraries": {"PUBLIC", "PRIVATE", "INTERFACE"},
    "add_executable": set(),
}
COMMAND = re.compile(r"^\s*(" + "|".join(KEYWORDS) + r")\s*\(([^)]*)\)", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
TORCH = re.compile(r"^(torch|ATen|c10|pybind11|caffe2)/|^Python\.h$")
THIRD_PARTY = re.compile(
    r"^(fmt|spdlog|nlohmann|toml\+\+|CLI|openssl|hwy|gtest|gmock|benchmark)/"
    r"|^(jpeglib|png|sndfile|zlib)\.h$"
)
SOURCE_SUFFIXES = {".h", ".cpp"}


@dataclass
class Target:
    """A library, test or program, as its CMakeLists.txt describes it."""

    name: str
    folder: Path
    place: str
    is_library: bool
    public_headers: set[Path] = field(default_factory=set)
    internal_headers: set[Path] = field(default_factory=set)
    private_files: set[Path] = field(default_factory=set)
    links: set[str] = field(default_factory=set)
    private_links: set[str] = field(default_factory=set)


def parse_arguments(command: str, text: str) -> tuple[list[str], dict[str, list[str]]]:
    positional: list[str] = []
    named: dict[str, list[str]] = {}
    current = positional
    for word in re.sub(r"#.*", "", text).split():
        if word in KEYWORDS[command]:
            current = named.setdefault(word, [])
        else:
            current.append(word)
    return positional, named


def unisono_links(words: list[str]) -> set[str]:
    return {word.removeprefix("unisono::") for word in words if word.startswith("unisono::")}


def parse_cmake(path: Path, root: Path) -> list[Target]:
    """Returns the targets of one CMakeLists.txt."""
    folder = path.parent
    targets: dict[str, Target] = {}
    text = re.sub(r"#[^\n]*", "", path.read_text())
    for match in COMMAND.finditer(text):
        command = match.group(1)
        positional, named = parse_arguments(command, match.group(2))
        if not positional:
            continue
        name = positional[0]
        line = text.count("\n", 0, match.start(1)) + 1
        place = f"{path.relative_to(root)}:{line}"
        if command == "target_link_libraries":
            target = targets.get(name.removeprefix("unisono_"), targets.get(name))
            if target is not None:
                target.links |= unisono_links(named.get("PUBLIC", []) + named.get("INTERFACE", []))
                target.private_links |= unisono_links(named.get("PRIVATE", []) + positional[1:])
            continue
        target = Target(name, folder, place, is_library=command == "unisono_library")
        target.public_headers = {folder / word for word in named.get("HEADERS", [])}
        target.internal_headers = {folder / word for word in named.get("INTERNAL_HEADERS", [])}
        private = named.get("SOURCES", []) + named.get("PRIVATE_HEADERS", []) + positional[1:]
        target.private_files = {folder / word for word in private}
        target.links = unisono_links(named.get("LINKS", []))
        target.private_links = unisono_links(named.get("PRIVATE_LINKS", []))
        targets[name] = target
    return list(targets.values())


class Layers:
    """The targets of a source tree, and what is wrong with its includes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.top = root / "src/unisono"
        self.datasets = root / "datasets"
        self.problems: list[str] = []
        lists = [*self.top.glob("*/**/CMakeLists.txt"), *self.datasets.rglob("CMakeLists.txt")]
        self.targets = [target for path in sorted(lists) for target in parse_cmake(path, root)]
        self.libraries = {target.name: target for target in self.targets if target.is_library}
        self.owners: dict[Path, list[Target]] = {}
        for target in self.targets:
            for path in target.public_headers | target.internal_headers | target.private_files:
                self.owners.setdefault(path, []).append(target)
        order = re.findall(r"add_subdirectory\((\w+)\)", (self.top / "CMakeLists.txt").read_text())
        self.order = {floor: position for position, floor in enumerate([*order, "datasets"])}

    def floor(self, path: Path) -> str:
        if path.is_relative_to(self.datasets):
            return "datasets"
        return path.relative_to(self.top).parts[0]

    def header(self, name: str) -> Path:
        """The file that an #include of "unisono/..." names."""
        root = self.datasets if name.startswith("unisono/datasets") else self.top.parent
        return root / name

    def closure(self, names: set[str]) -> set[str]:
        """The libraries given and what they link publicly, directly or not."""
        reached: set[str] = set()
        waiting = list(names)
        while waiting:
            name = waiting.pop()
            if name not in reached and name in self.libraries:
                reached.add(name)
                waiting += self.libraries[name].links
        return reached

    def check_links(self) -> None:
        for target in self.targets:
            floor = self.floor(target.folder)
            if floor not in self.order:
                self.problems.append(
                    f"{target.place}: {floor}/ is not in src/unisono/CMakeLists.txt"
                )
                continue
            for link in sorted(target.links | target.private_links):
                wrong = self.wrong_link(target, link)
                if wrong:
                    self.problems.append(
                        f"{target.place}: {target.name} links unisono::{link}, which {wrong}"
                    )

    def wrong_link(self, target: Target, link: str) -> str:
        library = self.libraries.get(link)
        if library is None:
            # Tests may use helpers of tests/, which this check does not read.
            return "no floor defines" if target.is_library else ""
        if self.order.get(self.floor(library.folder), -1) > self.order[self.floor(target.folder)]:
            return "stands above it"
        return ""

    def check_cycles(self) -> None:
        finished: set[str] = set()

        def visit(name: str, path: list[str]) -> None:
            if name in path:
                cycle = " -> ".join([*path[path.index(name) :], name])
                self.problems.append(
                    f"{self.libraries[name].place}: libraries link in a cycle: {cycle}"
                )
                return
            if name in finished or name not in self.libraries:
                return
            target = self.libraries[name]
            for link in sorted(target.links | target.private_links):
                visit(link, [*path, name])
            finished.add(name)

        for name in sorted(self.libraries):
            visit(name, [])

    def owners_of(self, path: Path) -> list[Target]:
        """The targets that list a file; if none does, those of the nearest CMakeLists.txt above."""
        if path in self.owners:
            return self.owners[path]
        for folder in path.parents:
            nearest = [target for target in self.targets if target.folder == folder]
            if nearest or folder in (self.top, self.datasets):
                return nearest
        return []

    def check_file(self, path: Path) -> None:
        owners = self.owners_of(path)
        public = any(path in target.public_headers for target in owners)
        allowed: set[str] = set()
        if path.parent == self.top:  # A header of headers, above all floors.
            public, allowed = True, set(self.libraries)
        for target in owners:
            own = {target.name} if target.is_library else set()
            allowed |= self.closure(
                target.links | (set() if public else target.private_links) | own
            )
        names = "/".join(sorted({target.name for target in owners})) or self.floor(path)
        for number, line in enumerate(path.read_text(errors="replace").splitlines(), 1):
            match = INCLUDE.match(line)
            if match:
                place = f"{path.relative_to(self.root)}:{number}"
                problem = self.check_include(path, match.group(1), public, allowed)
                if problem:
                    self.problems.append(f"{place}: {problem.format(name=names)}")

    def check_include(self, path: Path, header: str, public: bool, allowed: set[str]) -> str:
        """Returns what is wrong with an include; {name} in it stands for the file's targets."""
        if TORCH.match(header) and self.floor(path) != "torch":
            return f"only torch/ and python/ may include {header}"
        if public and THIRD_PARTY.match(header):
            return f"a public header must not include {header}: users would need that library"
        if not header.startswith("unisono/"):
            return ""
        included = self.header(header)
        if not included.exists():
            return f"there is no {header}"
        if path.parent == included.parent == self.top:
            return ""
        libraries = [target for target in self.owners_of(included) if target.is_library]
        if any(target.name in allowed for target in libraries):
            if any(included in target.public_headers for target in libraries):
                return ""
            if public:
                return f"a public header must not include {header}, which is not installed"
            own_folder = self.floor(included) == self.floor(path)
            if own_folder or any(included in target.internal_headers for target in libraries):
                return ""
            return f"{header} is private: not among (INTERNAL_)HEADERS of its library"
        if not libraries and any(
            included.is_relative_to(target.folder) for target in self.owners_of(path)
        ):
            return ""
        wanted = (
            " or ".join(sorted(f"unisono::{target.name}" for target in libraries)) or "a library"
        )
        how = "in its LINKS" if public else "in its LINKS or PRIVATE_LINKS"
        return f"{{name}} includes {header} of {wanted}, which is not {how}"

    def check(self) -> list[str]:
        self.check_links()
        self.check_cycles()
        for path in sorted([*self.top.rglob("*"), *self.datasets.rglob("*")]):
            if path.suffix in SOURCE_SUFFIXES and path.is_file():
                self.check_file(path)
        return self.problems


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    problems = Layers(parser.parse_args().root).check()
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_layers: {len(problems)} problem(s)", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
