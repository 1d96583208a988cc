"""`unisono completion`, within shells: python test_completion.py UNISONO"""

import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

import help_text

UNISONO = sys.argv.pop(1)
COMMANDS = list(help_text.all_commands(UNISONO))
TIMEOUT = 60
SHOW = "\x14"  # ^T
# The shell's startup file: ^T writes the current command line into a file.
STARTUP = {
    "bash": (
        ".bashrc",
        "source ./script\n"
        'show() { printf "%s\\n" "$READLINE_LINE" >> shown; READLINE_LINE=; }\n'
        "bind -x '\"\\C-t\": show'\n",
    ),
    "zsh": (
        ".zshrc",
        "autoload -Uz compinit; compinit -D -u\n"
        "source ./script\n"
        'show() { print -r -- "$BUFFER" >> shown; BUFFER= }\n'
        "zle -N show; bindkey '^T' show\n",
    ),
}


def script(shell):
    done = subprocess.run(
        [UNISONO, "completion", shell], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout


class Terminal:
    """An interactive shell that knows the completion, in a folder of its own."""

    def __init__(self, shell, folder):
        if not shutil.which(shell):
            raise unittest.SkipTest(f"{shell} is not installed")
        self.folder = Path(folder)
        self.shown = self.folder / "shown"
        name, text = STARTUP[shell]
        (self.folder / "script").write_text(script(shell))
        (self.folder / name).write_text(text)
        options = {
            "bash": ["--noprofile", "--rcfile", name, "-i"],
            "zsh": ["-d", "-i"],
        }[shell]
        self.controller, terminal = pty.openpty()
        self.process = subprocess.Popen(
            [shell, *options],
            stdin=terminal,
            stdout=terminal,
            stderr=terminal,
            cwd=folder,
            start_new_session=True,
            env={
                "PATH": f"{folder}/bin:{os.environ['PATH']}",
                "HOME": folder,
                "ZDOTDIR": folder,
                "TERM": "dumb",
                "LC_ALL": "C",
            },
        )
        os.close(terminal)
        self.output = b""
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        try:
            while data := os.read(self.controller, 4096):
                self.output += data
        except OSError:
            pass

    def complete(self, words):
        """What tab adds to these words of `unisono`, without a space or a = at the end."""
        line = f"unisono {words}"
        self.shown.unlink(missing_ok=True)
        os.write(self.controller, f"{line}\t{SHOW}".encode())
        deadline = time.monotonic() + TIMEOUT
        while not self.shown.exists() or not self.shown.read_text().endswith("\n"):
            assert time.monotonic() < deadline, self.output.decode(errors="replace")
            time.sleep(0.01)
        shown = self.shown.read_text()
        assert shown.startswith(line), shown
        return shown.removeprefix(line).rstrip(" =\n")

    def close(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.join()
        os.close(self.controller)


class Bash(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("bash"):
            raise unittest.SkipTest("bash is not installed")
        cls.script = script("bash")

    def complete(self, *words, before="", cwd=None):
        done = subprocess.run(
            [
                "bash",
                "-c",
                f"set -u; {self.script}\n{before}\n"
                'COMP_LINE="" COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)); _unisono\n'
                'printf "%s\\n" "${COMPREPLY[@]}"',
                "bash",
                "unisono",
                *words,
            ],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            cwd=cwd,
        )
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_commands(self):
        self.assertEqual(self.complete(""), help_text.top_level(UNISONO))
        self.assertEqual(self.complete("ru"), ["run"])
        self.assertEqual(self.complete("-"), ["-h", "--help", "--version"])

    def test_every_command_offers_what_its_help_lists(self):
        for command in COMMANDS:
            with self.subTest(command=command.words):
                self.assertEqual(self.complete(*command.words, "-"), command.offered)
                if command.commands:
                    self.assertEqual(self.complete(*command.words, ""), command.commands)
        self.assertEqual(self.complete("config", ""), ["-h", "--help"])

    def test_one_spelling_of_each_is_offered_and_all_are_understood(self):
        self.assertEqual(self.complete("run", "--nproc"), ["--nproc-per-node"])
        self.assertEqual(self.complete("run", "--monitor"), [])
        for option in ("--nproc_per_node", "--monitor-interval", "--monitor_interval"):
            offered = self.complete("run", option, "2", "--rdzv-b")
            self.assertEqual(offered, ["--rdzv-backend"], option)

    def test_choices(self):
        self.assertEqual(self.complete("bench", "all_r", "--check"), ["--check"])
        self.assertEqual(self.complete("bench", "all_r"), ["all_reduce"])
        self.assertEqual(self.complete("bench", "--memory", ""), ["private", "symmetric"])
        self.assertEqual(self.complete("bench", "--algorithm", "ri"), ["ring"])
        self.assertEqual(self.complete("bench", "--dtype", "bf"), ["bf16"])
        self.assertEqual(self.complete("bench", "--seconds", ""), [])
        self.assertEqual(self.complete("run", "--rdzv_backend", ""), ["static", "c10d"])
        self.assertEqual(self.complete("run", "-n", ""), ["auto", "cpu", "gpu"])
        self.assertEqual(self.complete("completion", ""), ["bash", "zsh"])

    def test_files_and_programs(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("train.py", "trace.json"):
                (Path(folder) / name).touch()
            (Path(folder) / "tree").mkdir()

            def complete(*words, before=""):
                return sorted(self.complete(*words, before=before, cwd=folder))

            everything = ["trace.json", "train.py", "tree"]
            self.assertEqual(complete("checkpoint", "ls", "tr"), everything)
            self.assertEqual(complete("run", "--log-dir", "tr"), ["tree"])
            self.assertEqual(complete("run", "-n", "2", ""), everything)
            self.assertLess({"train.py", "true"}, set(complete("run", "-n", "2", "tr")))
            self.assertEqual(complete("run", "true", "tra"), ["trace.json", "train.py"])
            self.assertEqual(complete("run", "--", "./tra"), ["./trace.json", "./train.py"])
            # `unisono` does not complete the options of the started program; bash-completion does.
            self.assertEqual(complete("run", "-n", "2", "true", "--verb"), [])
            for name in ("_command_offset", "_comp_command_offset"):
                before = f"{name}() {{ COMPREPLY=($1); }}"
                self.assertEqual(complete("run", "-n", "2", "true", "", before=before), ["4"])

    def test_in_a_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train me.py").touch()
            terminal = Terminal("bash", folder)
            self.addCleanup(terminal.close)
            for typed, added in (
                ("sto", "re"),
                ("bench --memory=sym", "metric"),
                ("bench --memory sym", "metric"),
                # Readline splits these values.
                ("run --rdzv-endpoint a:1 --ver", "bose"),
                ("run --rdzv-conf x=1,y=2 --ver", "bose"),
                ("run -n 2 train", "\\ me.py"),
            ):
                with self.subTest(typed=typed):
                    self.assertEqual(terminal.complete(typed), added)


class Zsh(unittest.TestCase):
    def test_its_syntax(self):
        if not shutil.which("zsh"):
            self.skipTest("zsh is not installed")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "_unisono"
            path.write_text(script("zsh"))
            done = subprocess.run(["zsh", "-n", path], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_every_command_has_what_its_help_lists(self):
        functions = re.split(r"^_unisono_?(\w*)\(\) {$", script("zsh"), flags=re.MULTILINE)
        functions = dict(zip(functions[1::2], functions[2::2], strict=True))
        for command in COMMANDS:
            function = functions["_".join(command.words)]
            offered = re.findall(r"^    '(?:\*|\(.*?\))?(--?[\w-]+)[=+]?\[", function, re.MULTILINE)
            names = re.findall(r"^    '(\w+):", function, re.MULTILINE)
            with self.subTest(command=command.words):
                self.assertEqual(offered, command.offered)
                if command.commands:
                    self.assertEqual(names, command.commands)
        self.assertEqual(
            re.findall(r"^    '(\w+):", functions[""], re.MULTILINE), help_text.top_level(UNISONO)
        )

    def test_in_a_terminal(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "tune_it.py").touch()
            (Path(folder) / "logs").mkdir()
            (Path(folder) / "logfile").touch()
            program = Path(folder) / "bin" / "violin"
            program.parent.mkdir()
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
            terminal = Terminal("zsh", folder)
            self.addCleanup(terminal.close)
            for typed, added in (
                ("sto", "re"),
                ("--ver", "sion"),
                ("store wa", "tch"),
                ("store watch --cou", "nt"),
                ("bench all_r", "educe"),
                ("bench all_reduce --memory sy", "mmetric"),
                ("bench --memory=sy", "mmetric"),
                ("run --nproc-", "per-node"),
                ("run --nproc_", ""),
                ("run --nproc_per_node 2 --rdzv-b", "ackend"),
                ("run --monitor-interval 2 --rdzv-b", "ackend"),
                ("run --log-dir lo", "gs/"),
                ("run -n 2 tune_", "it.py"),
                ("run -n 2 viol", "in"),
                ("run -n 2 violin tune_", "it.py"),
                ("run -n 2 violin --ver", ""),
                ("checkpoint ls tune_", "it.py"),
            ):
                with self.subTest(typed=typed):
                    self.assertEqual(terminal.complete(typed), added)


class Command(unittest.TestCase):
    def test_other_shells_are_refused(self):
        done = subprocess.run([UNISONO, "completion", "csh"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        self.assertIn("no shell csh; there are bash, zsh", done.stderr)


if __name__ == "__main__":
    unittest.main()
