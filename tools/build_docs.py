#!/usr/bin/env python3
"""Builds the API reference and the guides as one site in build/docs: `make docs`.

Fails, with a line for each finding, on a public symbol without a comment, a broken link or anchor,
a name of a file that does not exist, and a warning of Doxygen. The C++ samples of the pages are
checked by compile_doc_snippets.py.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import api_pages
import doxygen_symbols

LINK = re.compile(r"\]\(([^)\s#]+)")
# Fenced and indented code: commands, output and samples, not references.
CODE = re.compile(r"^( *)(```|~~~).*?^\1\2|(?<=\n\n)(?: {4}[^\n]*\n+)+", re.MULTILINE | re.DOTALL)
SUFFIX = r"\.(?:h|cpp|py|md|sh|cmake|yaml|yml|toml|txt)"
TOP = r"(?:bench|cmake|datasets|deploy|docs|examples|fuzz|python|src|tests|tools)"
SPAN = re.compile(rf"(?<!`)`([\w.+-]+(?:/[\w.+-]+)*{SUFFIX})`(?!`)")
PATH = re.compile(
    rf"(?<![\w/.~$}}-]){TOP}/(?:[\w.+-]+/)*(?:[\w.+-]+{SUFFIX}(?!\w)|(?<=\w/)(?![\w*{{<$]))"
)
# Files of other packages, and names of files that a reader makes.
FOREIGN = re.compile(
    r"(torch|ATen|c10|pybind11)/|(mpi|main|x_test|NNNN-title|NAME_fuzzer|mnist_DDP)\."
)
# A class in a sample, behind its namespaces.
QUALIFIED = re.compile(
    r'((?:<span class="n\w?">\w+</span><span class="o">::</span>)*)'
    r'<span class="nc?">([A-Z]\w+)</span>'
)
WARNING = re.compile(r"Doc file '([^']+)' contains (?:an? )?([\w ]*link) '([^']*)',? (?:but )?(.*)")


class Repository:
    """The files of the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        output = subprocess.run(
            command, cwd=root, check=True, capture_output=True, text=True
        ).stdout
        self.names = sorted(name for name in output.split("\0") if (root / name).is_file())
        self.pages = [name for name in self.names if name.endswith(".md")]
        # A page may name a file by the end of its path, and a folder.
        self.ends: set[str] = set()
        for name in self.names:
            parts = name.split("/")
            for last in range(1, len(parts) + 1):
                self.ends.update("/".join(parts[first:last]) for first in range(last))

    def text(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def place(self, name: str, wanted: str) -> str:
        """FILE:LINE of the first line that contains the wanted text."""
        for number, line in enumerate(self.text(name).splitlines(), 1):
            if wanted in line:
                return f"{name}:{number}"
        return name

    def missing_files(self, name: str, text: str) -> list[str]:
        """A finding for each file that the text names and that does not exist."""
        named = SPAN.findall(text) + [match.group().rstrip("/") for match in PATH.finditer(text)]
        return [
            f"{self.place(name, file)}: there is no file {file}"
            for file in dict.fromkeys(named)
            if file not in self.ends and not FOREIGN.match(file)
        ]


def check_references(repository: Repository, headers: list[str]) -> list[str]:
    findings = []
    for name in repository.pages:
        text = LINK.sub("](", CODE.sub("", repository.text(name)))
        findings += repository.missing_files(name, text)
    for name in headers:
        comments = [line for line in repository.text(name).splitlines() if "//" in line]
        findings += repository.missing_files(name, "\n".join(comments))
    return findings


def check_comments(reader: doxygen_symbols.Reader, doors: dict[str, str]) -> list[str]:
    findings = []
    for symbol in reader.undocumented():
        if symbol.header in doors:
            path = doxygen_symbols.header_path(reader.root, symbol.header).relative_to(reader.root)
            findings.append(
                f"{path}:{symbol.line}: {symbol.kind} {symbol.qualified} has no comment"
            )
    return findings


def stage(repository: Repository, pages: dict[str, str], folder: Path) -> None:
    """Copies what the site shows, with the paths of the repository: pages and what they link."""
    shutil.rmtree(folder, ignore_errors=True)
    wanted = {*repository.pages, "docs/site/site.css", "docs/site/iframe-worker.js"}
    for name in repository.pages:
        for link in LINK.findall(CODE.sub("", repository.text(name))):
            wanted.add(os.path.normpath(os.path.join(os.path.dirname(name), link)))
    for name in wanted.intersection(repository.names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(repository.root / name, folder / name)
    for name, text in pages.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def navigation(repository: Repository, api: list[Any]) -> list[Any]:
    """The tabs of the site; the guide has the sections and the order of its README.md."""
    guide: list[Any] = []
    index = "docs/guide/README.md"
    text = repository.text(index) if index in repository.pages else ""
    for line in text.splitlines():
        section = re.fullmatch(r"(\w[^.]*):", line)
        link = re.match(r"- \[([^]]+)\]\(([\w-]+\.md)\)", line)
        if section:
            guide.append({section.group(1): []})
        elif link and guide:
            next(iter(guide[-1].values())).append({link.group(1): f"docs/guide/{link.group(2)}"})

    def below(folder: str) -> list[str]:
        inside = [name for name in repository.pages if name.startswith(f"{folder}/")]
        first = ("README.md", "architecture.md", "glossary.md")
        return sorted(inside, key=lambda name: (not name.endswith(first), name))

    used = {index, "README.md", *re.findall(r"docs/guide/[\w-]+\.md", str(guide))}
    tabs = [
        {"Home": "README.md"},
        {"Guide": [index, *guide, *(name for name in below("docs/guide") if name not in used)]},
        {"API": api},
        {"Design": below("docs/design")},
        {"Decisions": below("docs/adr")},
        {"Benchmarks": "docs/benchmarks.md"},
    ]
    used.update(re.findall(r"[\w./-]+\.md", str(tabs)))
    tabs.append({"Project": [name for name in repository.pages if name not in used]})
    present = [tab for tab in tabs if all(value and value != [index] for value in tab.values())]
    return [
        t
        for t in present
        if t != {"Benchmarks": "docs/benchmarks.md"} or "docs/benchmarks.md" in repository.pages
    ]


class Warnings(logging.Handler):
    """Collects the warnings of MkDocs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())

    def findings(self, repository: Repository, sources: dict[str, str]) -> list[str]:
        findings = []
        for message in self.messages:
            match = WARNING.match(message.replace("\n", " "))
            if not match:
                findings.append(f"docs: {message}")
                continue
            page, kind, link, problem = match.groups()
            place = sources.get(page) or repository.place(page, link)
            findings.append(f"{place}: {kind} '{link}': {problem}")
        return findings


def build_site(
    config: Path, staged: Path, site: Path, nav: list[Any], symbols: dict[str, str]
) -> Warnings:
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    warnings = Warnings()
    logger = logging.getLogger("mkdocs")
    logger.addHandler(warnings)
    logger.propagate = False
    settings = load_config(
        str(config),
        docs_dir=str(staged),
        site_dir=str(site),
        nav=nav,
        hooks=[str(Path(__file__).resolve())],
    )
    settings.extra["symbols"] = symbols
    build(settings)
    logger.removeHandler(warnings)
    return warnings


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """MkDocs calls this hook: names of symbols become links to the API reference."""
    source = page.file.src_uri
    # There the same names are those of PyTorch.
    if re.match(r"docs/guide/python|python/|docs/benchmarks|CHANGELOG", source):
        return html
    symbols, up = config.extra["symbols"], os.path.dirname(page.url)

    def linked(name: str, shown: str) -> str:
        target = symbols.get(name.removeprefix("unisono::"))
        if not target:
            return shown
        return f'<a href="{os.path.relpath(target, up or ".")}">{shown}</a>'

    def word(match: re.Match[str]) -> str:
        scopes, name = re.findall(r">(\w+)<", match.group(1)), match.group(2)
        if scopes and scopes[0] in ("at", "c10", "std", "torch"):
            return match.group()
        return match.group(1) + linked(name, match.group()[len(match.group(1)) :])

    parts = re.split(
        r"(<a\b.*?</a>|<h\d\b.*?</h\d>|<div class=\"language-.*?</div>)", html, flags=re.DOTALL
    )
    for place, part in enumerate(parts):
        if part.startswith('<div class="language-cpp'):
            parts[place] = QUALIFIED.sub(word, part)
        elif not part.startswith(("<a", "<h", '<div class="language-')):
            parts[place] = re.sub(
                r"<code>((?:unisono::)?[\w:]*[A-Z][\w:]*|[\w:]+(?=\())(\(\))?</code>",
                lambda code: linked(code.group(1), code.group()),
                part,
            )
    return "".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    root = parser.parse_args().root.resolve()
    try:
        from mkdocs.utils.yaml import yaml_load
    except ImportError:
        parser.error("MkDocs is not installed: run `make docs-deps`")
    if not shutil.which("doxygen"):
        parser.error("doxygen is not installed: run `make docs-deps`")
    build = root / "build"
    config = root / "docs/site/mkdocs.yml"
    settings = yaml_load(config.read_text())["extra"]
    repository = Repository(root)
    doors = doxygen_symbols.reached_headers(root, settings["doors"])
    paths = [str(doxygen_symbols.header_path(root, name).relative_to(root)) for name in doors]
    findings = doxygen_symbols.run_doxygen(
        root, list(doors), config.with_name("Doxyfile"), build / "doxygen"
    )
    reader = doxygen_symbols.Reader(root, build / "doxygen/xml")
    findings += check_comments(reader, doors)
    findings += check_references(repository, paths)
    pages = api_pages.Pages(reader, doors, settings["parts"])
    texts, api = pages.write(settings["doors"])
    stage(repository, texts, build / "docs-pages")
    warnings = build_site(
        config, build / "docs-pages", build / "docs", navigation(repository, api), pages.names()
    )
    findings += warnings.findings(repository, pages.sources())
    for finding in findings:
        print(finding, file=sys.stderr)
    counts = f"{len(texts) + len(repository.pages)} pages, {len(reader.symbols)} symbols"
    print(f"docs: {counts}, {len(findings)} finding(s): build/docs/index.html")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
