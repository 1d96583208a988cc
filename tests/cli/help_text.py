"""What `unisono --help` and its commands' say, taken apart for the tests."""

import re
import shlex
import subprocess


class Option:
    def __init__(self, line):
        names, _, self.value = line.strip().partition(" ")
        self.spellings = names.split(",")
        short = [name for name in self.spellings if not name.startswith("--")]
        self.offered = short + [name for name in self.spellings if name.startswith("--")][:1]
        self.takes_value = not re.match(r"( |$|\(Env)", self.value)


class Command:
    """A command as its --help describes it."""

    def __init__(self, program, words):
        self.words = words
        done = subprocess.run(
            [program, *words, "--help"], capture_output=True, text=True, timeout=60, check=True
        )
        self.text = done.stdout
        parts = re.split(r"^(\w+):\n", self.text, flags=re.MULTILINE)
        parts = dict(zip(parts[1::2], parts[2::2], strict=True))
        self.options = [
            Option(line) for line in parts["Options"].splitlines() if line.startswith("  -")
        ]
        self.commands = re.findall(r"^  (\w+) ", parts.get("Subcommands", ""), re.MULTILINE)
        self.operands = re.findall(r"^  (\w+) ", parts.get("Positionals", ""), re.MULTILINE)
        self.examples = parts.get("Examples", "").strip("\n").splitlines()

    @property
    def offered(self):
        return [name for option in self.options for name in option.offered]

    @property
    def runs_program(self):
        return self.words in (["run"], ["launch"], ["plan", "slurm"])


def top_level(program):
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^  unisono (\w+)  ", text, re.MULTILINE)


def all_commands(program):
    """Commands of the program, each before its own."""
    for name in top_level(program):
        command = Command(program, [name])
        yield command
        for own in command.commands:
            yield Command(program, [name, own])


def words_of(example):
    """What the program gets of a line for a shell, without its own name."""
    line = re.sub(r'^eval "\$\((.*)\)"$', r"\1", example.strip())
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    words = words[words.index("unisono") + 1 :]
    ends = [place for place, word in enumerate(words) if re.fullmatch(r"[|;<>()&]+", word)]
    return words[: min(ends, default=len(words))]
