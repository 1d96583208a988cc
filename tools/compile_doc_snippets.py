#!/usr/bin/env python3
"""Compiles the C++ that README.md and docs/guide/*.md show, against an installed build.

Every ```cpp block is a snippet, unless `doc-test: file` writes it to a file (see
run_doc_commands.py). A snippet is the body of a function, or with a `main()` a whole file. Its
`#include`s are moved to the top, and a line `...` stands for code that is left out. Names that the
snippets of a page use and do not declare are in tests/docs/snippets: `namespace given::train` is
docs/guide/train.md's. The snippets of all pages are two source files, with and without LibTorch,
which the compiler reads and does not translate.

Headers and functions that the text names in `code` must be installed, too, unless a header is named
by its path in the repository, as `examples/command_line.h`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from run_doc_commands import ROOT, Block, DocError, is_snippet, pages_of_the_guide, parse

PROJECT = ROOT / "tests/docs/snippets"
GIVEN = {"core": PROJECT / "given_core.h", "torch": PROJECT / "given_torch.h"}
# Pages about calls of others, in C++ and in Python.
FOREIGN_FUNCTIONS = {"coming-from.md", "python.md", "python-groups.md", "python-train.md"}
FOREIGN_HEADERS = {"mpi.h"}


def namespace_of(page: str) -> str:
    return re.sub(r"\W", "_", Path(page).stem)


def component_of(page: str) -> str:
    """Whether the snippets of a page may include LibTorch."""
    given = f"namespace given::{namespace_of(page)} {{"
    return "torch" if given in GIVEN["torch"].read_text() else "core"


def source_of(blocks: list[Block], component: str) -> str:
    """Returns one source file that holds the snippets, each in a namespace of its own."""
    given = GIVEN[component].read_text()
    includes = [f'#include "{GIVEN[component]}"']
    bodies = []
    for block in blocks:
        page, line = block.place.rsplit(":", 1)
        body = []
        for text in block.text.splitlines():
            if text.startswith("#include"):
                includes.append(text)
            body.append("" if text.startswith("#include") or text.strip() == "..." else text)
        namespace = namespace_of(page)
        is_file = any(text.startswith("int main(") for text in body)
        bodies += [
            f"namespace {namespace}_{line} {{",
            f"using namespace given::{namespace};"
            if f"namespace given::{namespace} {{" in given
            else "",
            "" if is_file else "void snippet();\nvoid snippet() {",
            f'#line {int(line) + 1} "{page}"',
            *body,
            "}" if is_file else "}\n}",
        ]
    return "\n".join(includes + bodies) + "\n"


def run(what: str, *command: object) -> None:
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DocError(f"{what} failed:\n{done.stdout}")


def compile_all(blocks: list[Block], prefix: Path, arguments: argparse.Namespace) -> None:
    sources: dict[str, list[Block]] = {"core": [], "torch": []}
    for block in blocks:
        sources[component_of(block.place.rsplit(":", 1)[0])].append(block)
    for component, snippets in sources.items():
        (arguments.work / f"{component}.cpp").write_text(source_of(snippets, component))
    build = arguments.work / "build"
    run(
        "configuring tests/docs/snippets",
        *("cmake", "-S", PROJECT, "-B", build, "-G", "Ninja"),
        f"-DCMAKE_CXX_COMPILER={arguments.compiler}",
        f"-DCMAKE_PREFIX_PATH={prefix}",
        f"-DSOURCES={arguments.work}",
        f"-DUNISONO_TORCH_DIR={arguments.torch}",
    )
    run("compiling the snippets", "cmake", "--build", build)
    print(f"{sum(map(len, sources.values()))} snippets compile")


def check_names(text: str, page: str, snippets: str, include: Path) -> list[str]:
    """Returns what is wrong with the headers and functions that the text of a page names."""
    headers = {f"/{path.relative_to(include)}": path.read_text() for path in include.rglob("*.h")}
    words = set(re.findall(r"\w+", " ".join([snippets, *headers.values()])))
    problems = []
    is_block = False
    for number, line in enumerate(text.splitlines(), 1):
        is_block ^= line.startswith("```")
        if is_block or line.startswith("    "):
            continue
        code = " ; ".join(re.findall(r"`([^`]+)`", line))
        for name in re.findall(r"[\w/]+\.h\b", code):
            is_known = name in FOREIGN_HEADERS or (ROOT / name).is_file()
            if not is_known and not any(header.endswith("/" + name) for header in headers):
                problems.append(f"{page}:{number}: no header {name} is installed")
        for name in re.findall(r"(?<![\w.])(?:\w+::)*(\w+)\(", code):
            if name not in words and Path(page).name not in FOREIGN_FUNCTIONS:
                problems.append(f"{page}:{number}: no installed header has {name}()")
    return problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build/release")
    parser.add_argument("--work", type=Path, required=True, help="a folder that is made anew")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--torch", type=Path, required=True, help="the folder of LibTorch")
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    shutil.rmtree(arguments.work, ignore_errors=True)
    arguments.work.mkdir(parents=True)
    prefix = arguments.work / "installed"
    try:
        pages = {os.path.relpath(path, ROOT): path.read_text() for path in pages_of_the_guide()}
        blocks = [block for page, text in pages.items() for block in parse(text, page)]
        run("installing", "cmake", "--install", arguments.build, "--prefix", prefix)
        compile_all([block for block in blocks if is_snippet(block)], prefix, arguments)
        shown = " ".join(block.text for block in blocks)
        problems = [
            problem
            for page, text in pages.items()
            for problem in check_names(text, page, shown, prefix / "include")
        ]
        if problems:
            raise DocError("\n".join(problems))
    except DocError as error:
        print(error, file=sys.stderr)
        return 1
    shutil.rmtree(arguments.work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
