"""`--help` and the manual page: python test_help.py UNISONO"""

import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import help_text

UNISONO = sys.argv.pop(1)
COMMANDS = list(help_text.all_commands(UNISONO))
TIMEOUT = 60


def unisono(*words):
    return subprocess.run([UNISONO, *words], capture_output=True, text=True, timeout=TIMEOUT)


def find(words):
    """The command that begins a line, the words behind it."""
    found = max(
        (c for c in COMMANDS if words[: len(c.words)] == c.words), key=lambda c: len(c.words)
    )
    return found, words[len(found.words) :]


class Examples(unittest.TestCase):
    def test_every_help_ends_with_some(self):
        for command in COMMANDS:
            with self.subTest(command=command.words):
                last_part = re.findall(r"^\w+:$", command.text, re.MULTILINE)[-1]
                self.assertEqual(last_part, "Examples:")
                self.assertGreaterEqual(len(command.examples), 2 if not command.commands else 1)
                name = " ".join(["unisono", *command.words])
                self.assertIn(name, command.examples[0])
        self.assertRegex(unisono("--help").stdout, r"\n\nExamples:\n(  unisono [a-z].*\n)+$")

    def test_all_of_their_words_are_accepted(self):
        """But for a wrong option among them, there is nothing to complain of."""
        for example in {line for command in COMMANDS for line in command.examples}:
            with self.subTest(example=example):
                words = help_text.words_of(example)
                command, rest = find(words)
                place = self.check_options(command, rest)
                if command.words == ["plan", "slurm"]:
                    done = unisono(*words)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                    continue
                place += len(command.words)
                done = unisono(*words[:place], "--no-such-option", *words[place:])
                self.assertEqual(done.returncode, 2)
                self.assertRegex(
                    done.stderr,
                    r"argument was not expected: --no-such-option"
                    r"|there is no option --no-such-option ",
                )

    def check_options(self, command, words):
        """Looks them up in --help; returns the place behind the last."""
        words = list(words)
        place = 0
        n_operands = 0
        while place < len(words):
            if not words[place].startswith("-"):
                if command.runs_program:
                    return place
                n_operands += 1
                place += 1
                continue
            option = next((o for o in command.options if words[place] in o.offered), None)
            self.assertIsNotNone(option, words[place])
            place += 2 if option.takes_value else 1
        self.assertFalse(command.runs_program, "an example has a program")
        self.assertLessEqual(n_operands, len(command.operands))
        return place


class ManualPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        done = unisono("man")
        assert done.returncode == 0 and not done.stderr, done.stderr
        cls.roff = done.stdout
        parts = re.split(r"^\.SS unisono (.*)\n", cls.roff, flags=re.MULTILINE)
        cls.sections = dict(zip(parts[1::2], parts[2::2], strict=True))

    def test_its_hyphens_are_such_as_can_be_copied(self):
        self.assertNotRegex(self.roff, r"(?m)\\fB-|^unisono.* -")

    def plain(self, roff):
        for escaped, character in (
            (r"\-", "-"),
            (r"\(aq", "'"),
            (r"\(ga", "`"),
            (r"\(ha", "^"),
            (r"\(ti", "~"),
            (r"\e", "\\"),
        ):
            roff = roff.replace(escaped, character)
        return roff

    def test_it_has_every_command_with_its_options_and_examples(self):
        self.assertEqual(list(self.sections), [" ".join(c.words) for c in COMMANDS])
        for command in COMMANDS:
            section = self.plain(self.sections[" ".join(command.words)])
            terms = re.findall(r"^\.TP\n(\\fB-.*)$", section, re.MULTILINE)
            named = [re.findall(r"\\fB(-.*?)\\fR", term) for term in terms]
            with self.subTest(command=command.words):
                self.assertEqual(named, [option.offered for option in command.options])
                for operand in command.operands:
                    self.assertRegex(section, rf"(?m)^\\fI{operand}\\fR$")
                if not command.commands:
                    lines = section.splitlines()
                    for example in command.examples:
                        self.assertIn(example.strip(), lines)

    def test_it_has_the_settings(self):
        names = re.findall(r"^(UNISONO_\w+)", unisono("config").stdout, re.MULTILINE)
        self.assertGreater(len(names), 5)
        for name in names:
            self.assertIn(f".TP\n\\fB{name}\\fR", self.roff)

    def check(self, *command):
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "unisono.1"
            path.write_text(self.roff)
            return subprocess.run([*command, path], capture_output=True, text=True, timeout=TIMEOUT)

    def test_man_has_nothing_to_say_against_it(self):
        done = self.check("man", "--warnings", "--local-file")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_mandoc_has_nothing_to_say_against_it(self):
        done = self.check("mandoc", "-T", "lint", "-W", "warning")
        complaints = [line for line in done.stdout.splitlines() if "missing date" not in line]
        self.assertEqual(complaints, [])


if __name__ == "__main__":
    unittest.main()
