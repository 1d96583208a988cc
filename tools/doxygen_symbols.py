"""Turns Doxygen's XML of the public headers into one Markdown page per header, for build_docs.py.

A comment also covers the declarations below it that are overloads or the `_async` form, and fields
of the same type without an empty line between: they share a heading on the page.
"""

from __future__ import annotations

import re
import subprocess
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

COMPOUNDS = ("class", "struct", "union", "concept")
INCLUDE = re.compile(r'^\s*#\s*include\s*"(unisono/[^"]+)"', re.MULTILINE)
# Functions that do what those of std and torch do.
USUAL = re.compile(
    r"operator ?(==|!=|<|<=|>|>=|<=>|<<|=|->|\*|bool|\(\))|"
    r"begin|end|clear|lock|unlock|notify_one|notify_all|train|eval|zero_grad"
)
WIDTH = 88


@dataclass
class Symbol:
    """A declaration of a header, with the members of a class or the values of an enumeration."""

    node: ET.Element
    ident: str
    kind: str
    scope: str
    name: str
    header: str
    line: int
    end: int
    text: str
    type: str = ""
    arguments: str = ""
    parent: Symbol | None = None
    inherited: bool = False
    members: list[Symbol] = field(default_factory=list)
    overloads: list[Symbol] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        return f"{self.scope}::{self.name}".removeprefix("unisono::").removeprefix("::")

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w~-]+", "-", self.qualified.replace("::", "-")).strip("-")

    def fields(self) -> list[Symbol]:
        return [one for one in self.members if one.kind in ("variable", "enumvalue")]

    def is_shown(self) -> bool:
        """The page has a text for it, and not only the class's declaration."""
        is_plain = self.inherited or self.is_special() or self.kind in ("variable", "enumvalue")
        return bool(self.text) or not is_plain

    def is_special(self) -> bool:
        """A constructor without arguments, a copy, a move, a destructor, or what does not exist."""
        if re.search(r"= ?(delete|default)$", self.arguments) or self.name.startswith("~"):
            return True
        copy = rf"\((const )?{re.escape(self.name)}(<.*>)? ?&&?.*\)"
        return self.is_constructor() and bool(re.match(rf"\(\)|{copy}", self.arguments))

    def is_constructor(self) -> bool:
        return self.parent is not None and self.name == self.parent.name.split("<")[0]

    def needs_text(self) -> bool:
        """Some members explain themselves; the class or the enumeration always needs a comment."""
        if self.kind == "enumvalue" or self.inherited or self.is_special():
            return False
        if self.parent and self.kind == "variable":
            owner = self.parent.text.replace("\\", "")
            named = re.search(rf"\b{re.escape(self.name)}\b", owner)
            return not named and self.parent.name.endswith("Options")
        if self.kind != "function":
            return not (self.parent and self.kind == "typedef")
        is_accessor = self.arguments.startswith("() const") and self.type not in ("", "void")
        return not (self.parent and is_accessor) and not USUAL.fullmatch(self.name)


def header_path(root: Path, name: str) -> Path:
    return root / ("datasets" if name.startswith("unisono/datasets") else "src") / name


def reached_headers(root: Path, doors: list[str]) -> dict[str, str]:
    """The headers that the doors include, directly or not, each with the first door that does."""
    reached: dict[str, str] = {}

    def visit(name: str, door: str) -> None:
        if name not in reached and header_path(root, name).exists():
            reached[name] = door
            for included in INCLUDE.findall(header_path(root, name).read_text()):
                visit(included, door)

    for door in doors:
        visit(door, door)
    return reached


def run_doxygen(root: Path, headers: list[str], config: Path, out: Path) -> list[str]:
    """Writes OUT/xml and returns Doxygen's warnings, with paths from the root."""
    inputs = " ".join(str(header_path(root, name)) for name in headers)
    text = f"{config.read_text()}\nINPUT = {inputs}\nOUTPUT_DIRECTORY = {out}\n"
    text += f"STRIP_FROM_PATH = {root}\n"
    out.mkdir(parents=True, exist_ok=True)
    for old in out.glob("xml/*.xml"):
        old.unlink()
    run = subprocess.run(
        ["doxygen", "-"], input=text, capture_output=True, text=True, cwd=root, check=False
    )
    if run.returncode:
        raise SystemExit(f"docs: doxygen failed:\n{run.stderr}")
    lines = run.stderr.splitlines()
    return [line.replace(f"{root}/", "", 1) for line in lines if ": warning: " in line]


def tidy(code: str) -> str:
    """A type or arguments as clang-format writes them, from Doxygen's spelling."""
    code = re.sub(r"\s+", " ", code).strip()
    code = re.sub(r"< ", "<", code)
    code = re.sub(r" >", ">", code)
    code = re.sub(r" ([&*]+)(?=\w)", r"\1 ", code)
    code = re.sub(r" ([&*]+)(?=[,)>.]|$)", r"\1", code)
    return re.sub(
        r"\) ?= ?(delete|default|0)", r") = \1", re.sub(r"\)(const|override)", r") \1", code)
    )


def plain(node: ET.Element | None) -> str:
    return "" if node is None else "".join(node.itertext())


def wrapped(head: str, arguments: str) -> str:
    """A declaration, with a line per parameter where it is long."""
    whole = head + arguments
    if len(whole) <= WIDTH or not arguments.startswith("("):
        return whole
    parts, depth, last = [], 0, 1
    for place, letter in enumerate(arguments):
        depth += (letter in "(<{[") - (letter in ")>}]")
        if (letter == "," and depth == 1) or (letter == ")" and depth == 0):
            parts.append(arguments[last:place].strip())
            last = place + 1
            if letter == ")":
                break
    return head + "(\n    " + ",\n    ".join(parts) + ")" + arguments[last:]


def inline(node: ET.Element, link: Callable[[str, str], str]) -> str:
    """The Markdown of a comment's text; `link` makes a link of a word to a symbol."""
    parts = [escaped(node.text)]
    for child in node:
        if child.tag == "computeroutput":
            parts.append(f"`{plain(child)}`")
        elif child.tag == "ref":
            parts.append(link(child.get("refid", ""), plain(child)))
        elif child.tag == "linebreak":
            parts.append("  \n")
        elif child.tag in ("itemizedlist", "orderedlist"):
            mark = "1. " if child.tag == "orderedlist" else "- "
            items = [markdown(item, link).replace("\n", "\n    ") for item in child]
            parts.append("\n\n" + "\n".join(mark + item for item in items) + "\n\n")
        elif child.tag in ("verbatim", "programlisting", "preformatted"):
            parts.append(f"\n\n```text\n{textwrap.dedent(plain(child)).strip()}\n```\n\n")
        else:
            parts.append(inline(child, link))
        parts.append(escaped(child.tail))
    return "".join(parts)


def escaped(text: str | None) -> str:
    return re.sub(r"([\\*_<\[\]`])", r"\\\1", re.sub(r"\s+", " ", text or ""))


def markdown(
    node: ET.Element | None, link: Callable[[str, str], str] = lambda _, word: word
) -> str:
    parts = [] if node is None else [inline(para, link).strip() for para in node]
    return "\n\n".join(part for part in parts if part)


def described(node: ET.Element, link: Callable[[str, str], str] = lambda _, word: word) -> str:
    parts = [markdown(node.find(f"{part}description"), link) for part in ("brief", "detailed")]
    text = "\n\n".join(part for part in parts if part)
    return re.sub(r"(?<![\w/`(])docs/[\w/-]+\.md", r"[\g<0>](/\g<0>)", text)


class Reader:
    """Reads the symbols of all headers from Doxygen's XML."""

    def __init__(self, root: Path, xml: Path) -> None:
        self.root = root
        self.symbols: dict[str, Symbol] = {}
        self.tops: list[Symbol] = []
        self.lines: dict[str, list[str]] = {}
        compounds = []
        for path in sorted(xml.glob("*.xml")):
            for node in ET.parse(path).getroot().iter("compounddef"):
                kind, name = node.get("kind", ""), node.findtext("compoundname", "")
                if re.search(r"\bdetail\b|@", name):
                    continue
                if kind in COMPOUNDS and node.get("prot") != "private":
                    scope, _, last = name.rpartition("::")
                    compounds.append((self.add(node, kind, scope, last), node))
                elif kind == "namespace":
                    compounds.append((None, node))
        for parent, node in compounds:
            for member in node.iter("memberdef"):
                self.add_member(parent, node.findtext("compoundname", ""), member)
        self.tops = self.grouped([s for s in self.symbols.values() if s.parent is None])
        for symbol in list(self.symbols.values()):
            symbol.members = self.grouped(symbol.members)

    def add(
        self, node: ET.Element, kind: str, scope: str, name: str, parent: Symbol | None = None
    ) -> Symbol:
        place = node.find("location")
        assert place is not None
        file, line = place.get("file", ""), int(place.get("line", 0))
        end = int(place.get("bodyend") or 0) if place.get("bodyfile") == file else 0
        header = file[file.index("unisono/") :] if "unisono/" in file else file
        symbol = Symbol(
            node=node,
            ident=node.get("id", ""),
            kind=kind,
            scope=scope,
            name=name,
            header=header,
            line=line,
            end=max(end, line),
            text=described(node),
            type=tidy(plain(node.find("type"))),
            arguments=tidy(plain(node.find("argsstring"))),
            parent=parent,
        )
        self.symbols[symbol.ident] = symbol
        if parent:
            parent.members.append(symbol)
        return symbol

    def add_member(self, parent: Symbol | None, scope: str, node: ET.Element) -> None:
        kind, name = node.get("kind", ""), node.findtext("name", "")
        is_guide = (
            not parent
            and re.search(r"\) -> ", plain(node.find("argsstring")))
            and not plain(node.find("type"))
        )
        known = node.get("id") in self.symbols
        if node.get("prot") == "private" or kind == "friend" or known or is_guide:
            return
        symbol = self.add(node, kind, scope, name, parent)
        is_override = bool(re.search(r"\b(override|final)\b", symbol.arguments))
        symbol.inherited = not symbol.text and is_override
        for value in node.findall("enumvalue"):
            item = Symbol(
                node=value,
                ident=value.get("id", ""),
                kind="enumvalue",
                scope=f"{scope}::{name}",
                name=value.findtext("name", ""),
                header=symbol.header,
                line=symbol.line,
                end=symbol.line,
                text=described(value),
                parent=symbol,
            )
            symbol.members.append(item)

    def grouped(self, symbols: list[Symbol]) -> list[Symbol]:
        """In the order of the sources, with the declarations that one comment covers as one."""
        groups: list[Symbol] = []
        previous: Symbol | None = None
        for symbol in sorted(symbols, key=lambda one: (one.header, one.line)):
            if previous and not symbol.text and self.covers(groups[-1], previous, symbol):
                groups[-1].overloads.append(symbol)
            else:
                groups.append(symbol)
            previous = symbol
        return groups

    def covers(self, head: Symbol, previous: Symbol, symbol: Symbol) -> bool:
        if head.kind != symbol.kind or head.header != symbol.header:
            return False
        if symbol.kind != "variable":
            return head.name.removesuffix("_async") == symbol.name.removesuffix("_async")
        if symbol.header not in self.lines:
            self.lines[symbol.header] = (
                header_path(self.root, symbol.header).read_text().split("\n")
            )
        between = self.lines[symbol.header][previous.end : symbol.line - 1]
        apart = any(re.match(r"\s*(//|$)", line) for line in between)
        return bool(head.text) and head.type == symbol.type and not apart

    def undocumented(self) -> list[Symbol]:
        """The symbols that need a comment of their own and have none."""
        every = [symbol for top in self.tops for symbol in (top, *top.members)]
        return [symbol for symbol in every if not symbol.text and symbol.needs_text()]
