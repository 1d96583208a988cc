"""Writes the API reference for build_docs.py: a Markdown page per header, an index per part."""

from __future__ import annotations

import os
import re
import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path

from doxygen_symbols import (
    COMPOUNDS,
    WIDTH,
    Reader,
    Symbol,
    described,
    escaped,
    header_path,
    plain,
    tidy,
    wrapped,
)


class Pages:
    """Writes the Markdown of a page per header, and an index per folder."""

    def __init__(self, reader: Reader, doors: dict[str, str], parts: dict[str, str]) -> None:
        self.reader = reader
        self.doors = doors
        self.parts = parts
        self.places: dict[str, tuple[str, str]] = {}
        self.headers: dict[str, list[Symbol]] = {}
        for top in reader.tops:
            if top.header in doors:
                self.headers.setdefault(top.header, []).append(top)
        self.used: dict[str, set[str]] = {}
        for tops in self.headers.values():
            for top in tops:
                self.give_place(top, "")

    def give_place(self, symbol: Symbol, outer: str) -> None:
        """Anchors: a member that the page does not show by itself leads to its class."""
        page = page_of(symbol.header)
        used = self.used.setdefault(page, set())
        anchor, number = symbol.anchor, 2
        while anchor in used:
            anchor, number = f"{symbol.anchor}-{number}", number + 1
        if outer and not symbol.is_shown():
            anchor = outer
        used.add(anchor)
        for one in [symbol, *symbol.overloads]:
            self.places[one.ident] = (page, anchor)
        for member in symbol.members:
            self.give_place(member, anchor)

    def title(self, header: str) -> str:
        """The class that the header is named after, else the header's name in words."""
        stem = Path(header).stem
        for top in self.headers[header]:
            if top.kind in COMPOUNDS and top.name.lower() == stem.replace("_", ""):
                return top.name
        return stem.replace("_", " ").capitalize()

    def linker(self, page: str) -> Callable[[str, str], str]:
        def link(ident: str, word: str) -> str:
            if ident not in self.places:
                return escaped(word)
            target, anchor = self.places[ident]
            path = os.path.relpath(target, os.path.dirname(page)) if target != page else ""
            return f"[{escaped(word)}]({path}#{anchor})"

        return link

    def page(self, header: str) -> str:
        self.link = self.linker(page_of(header))
        include = f"#include <{self.doors[header]}>  // or <{header}>"
        parts = [f"# {self.title(header)}", f"```cpp\n{include}\n```"]
        for top in self.headers[header]:
            parts += self.section(top, "##")
        return "\n\n".join(parts) + "\n"

    def section(self, symbol: Symbol, level: str) -> list[str]:
        name = symbol.qualified if level == "##" else symbol.name
        if symbol.kind == "variable":
            name = ", ".join([name, *(one.name for one in symbol.overloads)])
        _, anchor = self.places[symbol.ident]
        code = "\n".join(declaration(one) for one in [symbol, *symbol.overloads])
        parts = [f"{level} {escaped(name)} {{ #{anchor} data-toc-label='{symbol.name}' }}"]
        parts += [f"```cpp\n{code}\n```", described(symbol.node, self.link)]
        parts.append("\n".join(self.field(one) for one in symbol.fields() if one.is_shown()))
        for member in symbol.members:
            if member not in symbol.fields() and member.is_shown():
                parts += self.section(member, level + "#")
        return [part for part in parts if part]

    def field(self, symbol: Symbol) -> str:
        """An entry of a definition list."""
        names = ", ".join(f"`{one.name}`" for one in [symbol, *symbol.overloads])
        text = described(symbol.node, self.link).replace("\n", "\n    ")
        return f"[](){{ #{self.places[symbol.ident][1]} }}{names}\n:   {text}\n"

    def part(self, header: str) -> str:
        """The folder below unisono/, the longest that has a title."""
        folder = Path(header).parent.as_posix().removeprefix("unisono").strip("/")
        while folder not in self.parts and "/" in folder:
            folder = folder.rpartition("/")[0]
        return folder

    def index(self, part: str, headers: list[str]) -> str:
        """Each symbol with the first sentence of its comment."""
        lines = [f"# {self.parts.get(part, part)}"]
        for header in headers:
            page = page_of(header)
            lines += ["", f"## [{self.title(header)}](/{page})", "", "| symbol | kind | content |"]
            lines.append("| --- | --- | --- |")
            for top in self.headers[header]:
                text = re.split(r"(?<=[.:;])\s|\n", described(top.node))[0].rstrip(":;")
                text = text.replace("|", "\\|")
                kind = "constant" if top.kind == "variable" else top.kind
                name = f"[`{top.qualified}`](/{page}#{self.places[top.ident][1]})"
                lines.append(f"| {name} | {kind} | {text} |")
        return "\n".join(lines) + "\n"

    def write(self, doors: list[str]) -> tuple[dict[str, str], list[object]]:
        """The text of each page, and the navigation."""
        texts = {page_of(header): self.page(header) for header in self.headers}
        start = ["# API reference", ""]
        for door in filter(self.doors.get, doors):
            source = header_path(self.reader.root, door).read_text()
            comment = re.search(r"^(///.*\n)+", source, re.MULTILINE)
            start += [f"## `<{door}>`", ""]
            start += [line[3:].strip() for line in comment.group().splitlines()] if comment else []
            start.append("")
        start += ["## Parts", "", "| part | symbols |", "| --- | --- |"]
        nav: list[object] = ["api/README.md"]
        folders = {self.part(header) for header in self.headers}
        for part in sorted(folders, key=[*self.parts, *sorted(folders)].index):
            headers = sorted((h for h in self.headers if self.part(h) == part), key=self.title)
            index = f"api/{part}/README.md"
            texts[index] = self.index(part, headers)
            title = self.parts.get(part, part)
            nav.append({title: [index, *map(page_of, headers)]})
            names = [
                f"`{top.name}`" for h in headers for top in self.headers[h] if top.name[0].isupper()
            ]
            start.append(f"| [{title}](/{index}) | {', '.join(dict.fromkeys(names))} |")
        texts["api/README.md"] = "\n".join(start) + "\n"
        return texts, nav

    def sources(self) -> dict[str, str]:
        """The header of each page."""
        root = self.reader.root
        return {page_of(h): str(header_path(root, h).relative_to(root)) for h in self.headers}

    def names(self) -> dict[str, str]:
        """Where a name that a page mentions leads, if only one symbol has it."""
        found: dict[str, set[str]] = {}
        for symbol in self.reader.symbols.values():
            if symbol.ident in self.places and symbol.kind != "variable":
                page, anchor = self.places[symbol.ident]
                keys = {symbol.qualified}
                if symbol.name[0].isupper() and not symbol.is_constructor():
                    keys.add(symbol.name)
                for key in keys:
                    found.setdefault(key, set()).add(f"{page.removesuffix('.md')}.html#{anchor}")
        return {key: targets.pop() for key, targets in found.items() if len(targets) == 1}


def page_of(header: str) -> str:
    return "api/" + header.removeprefix("unisono/").removesuffix(".h") + ".md"


def declaration(symbol: Symbol) -> str:
    """The declaration without attributes and bodies, as in the header."""
    node = symbol.node
    template = ""
    if node.find("templateparamlist") is not None:
        template = tidy(f"template <{', '.join(template_parameters(node))}>") + "\n"
    if symbol.kind == "concept":
        code = tidy_lines(plain(node.find("initializer")))
        return re.sub(r"concept [\w:]*::", "concept ", code) + ";"
    if symbol.kind in COMPOUNDS:
        bases = [tidy(f"{b.get('prot')} {plain(b)}") for b in node.findall("basecompoundref")]
        head = (
            f"{template}{symbol.kind} {symbol.name}" + (" : " if bases else "") + ", ".join(bases)
        )
        fields = [one for head in symbol.fields() for one in [head, *head.overloads]]
        body = "".join(f"  {declaration(one)}\n" for one in fields)
        return f"{head} {{\n{body}}};" if body else f"{head};"
    if symbol.kind == "enum":
        head = f"enum class {symbol.name}" + (f" : {symbol.type}" if symbol.type else "")
        values = ", ".join(f"{one.name} {initializer(one)}".strip() for one in symbol.fields())
        return wrapped_list(head + " {", values, "};")
    if symbol.kind == "typedef":
        return f"{template}using {symbol.name} = {symbol.type}{symbol.arguments};"
    words = [w for w in ("static", "explicit") if node.get(w) == "yes"]
    if node.get("virt", "non-virtual") != "non-virtual":
        words.append("virtual")
    head = " ".join(word for word in [*words, symbol.type, symbol.name] if word)
    if symbol.kind == "variable":
        value = re.sub(r"^=", " =", initializer(symbol))
        return f"{template}{head}{symbol.arguments}{value};"
    arguments = re.sub(r"(\w)=(?!=)", r"\1 = ", symbol.arguments)
    return template + wrapped(head, arguments) + ";"


def initializer(symbol: Symbol) -> str:
    return tidy(plain(symbol.node.find("initializer")))


def wrapped_list(head: str, items: str, tail: str) -> str:
    """A list in braces, with lines of at most WIDTH."""
    lines = [f"{head} {items} {tail}"]
    if len(lines[0]) > WIDTH:
        lines = [
            head,
            *textwrap.wrap(items, WIDTH, initial_indent="  ", subsequent_indent="  "),
            tail,
        ]
    return "\n".join(lines)


def template_parameters(node: ET.Element) -> list[str]:
    parameters = []
    for parameter in node.findall("templateparamlist/param"):
        word = f"{plain(parameter.find('type'))} {plain(parameter.find('declname'))}".strip()
        default = plain(parameter.find("defval"))
        parameters.append(word + (f" = {default}" if default else ""))
    return parameters


def tidy_lines(code: str) -> str:
    return "\n".join(line.rstrip() for line in code.strip().splitlines())
