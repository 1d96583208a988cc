#!/usr/bin/env python3
"""How names of other backends come to mean Unisono: what a Python does when it starts, and what
`unisono alias` and `unisono run --backend-alias` say."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import unittest
from pathlib import Path

import torch
from jobs import ALIAS, STARTUP, UNISONO, lines_of, run

IS_IMPORTED = "import sys; print(*(n in sys.modules for n in ('_unisono_alias', 'torch')))"
MEANING = "import torch.distributed as dist; print(dist.Backend('gloo'), dist.Backend('nccl'))"


class Start(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_imports_next_to_nothing(self) -> None:
        command = [sys.executable, "-c", IS_IMPORTED]
        self.assertEqual(lines_of(command, PYTHONPATH=STARTUP), ["False False"])
        self.assertEqual(
            lines_of(command, PYTHONPATH=STARTUP, UNISONO_BACKEND_ALIAS=ALIAS), ["True False"]
        )

    def test_only_the_names_given_change(self) -> None:
        command = [sys.executable, "-c", MEANING]
        self.assertEqual(lines_of(command, PYTHONPATH=STARTUP), ["gloo nccl"])
        self.assertEqual(
            lines_of(command, PYTHONPATH=STARTUP, UNISONO_BACKEND_ALIAS="gloo=unisono"),
            ["unisono nccl"],
        )

    def test_runs_another_sitecustomize_too(self) -> None:
        text = "print(__name__, __file__)\n"
        other = self.folder / "sitecustomize.py"
        other.write_text(text)
        command = [sys.executable, "-c", "import sitecustomize; " + MEANING]
        for alias, meaning in (("", "gloo nccl"), (ALIAS, "unisono unisono")):
            lines = lines_of(
                command, PYTHONPATH=f"{STARTUP}:{self.folder}", UNISONO_BACKEND_ALIAS=alias
            )
            self.assertEqual(lines, [f"sitecustomize {other}", meaning])

    def test_names_that_are_none_are_one_error(self) -> None:
        sys.path.insert(0, STARTUP)
        from _unisono_alias import parse

        self.assertEqual(parse(ALIAS), {"gloo", "nccl", "tcp"})
        wrong = ("gloo", "gloo=nccl", "=unisono", "gloo=unisono,", "Gloo=unisono", "gloo= unisono")
        for alias in (*wrong, "unisono=unisono", "tcp=unisono,tcp=unisono"):
            with self.assertRaises(ValueError) as caught:
                parse(alias)
            self.assertIn(f'UNISONO_BACKEND_ALIAS="{alias}" is not a list', str(caught.exception))

    def test_the_error_comes_with_torch(self) -> None:
        job = run(
            [sys.executable, "-c", "import torch"],
            PYTHONPATH=STARTUP,
            UNISONO_BACKEND_ALIAS="gloo",
        )
        self.assertEqual(job.returncode, 1)
        last = job.stderr.splitlines()[-1]
        self.assertIn('ValueError: UNISONO_BACKEND_ALIAS="gloo" is not a list of backends', last)

    def without_site(self, startup: str) -> list[str]:
        """A Python whose path has torch, but not the package."""
        (self.folder / "mere" / "unisono").mkdir(parents=True)
        places = [startup, str(self.folder / "mere"), str(Path(torch.__file__).parents[1])]
        code = (
            f"import sys; sys.path[:0] = {places!r}; import _unisono_alias as a\n"
            "a.patch_when_imported()\n"
            f"try:\n {MEANING}\n"
            "except ImportError as error: print(error)\n"
            "else: print(sys.modules['unisono'].__file__)"
        )
        return lines_of([sys.executable, "-S", "-c", code], UNISONO_BACKEND_ALIAS=ALIAS)

    def test_the_package_need_not_be_on_the_path(self) -> None:
        meaning, file = self.without_site(STARTUP)
        self.assertEqual(meaning, "unisono unisono")
        self.assertEqual(file, str(Path(STARTUP).parent / "__init__.py"))

    def test_a_package_of_another_python_is_explained(self) -> None:
        package = self.folder / "unisono"
        shutil.copytree(STARTUP, package / "_startup")
        (package / "__init__.py").write_text("from ._C import Backend\n")
        (line,) = self.without_site(str(package / "_startup"))
        self.assertIn(f"the one in {package} was built for another Python (No module", line)
        self.assertIn(f"there is no unisono for {sys.executable}", line)

    def program_in(self, folder: Path) -> str:
        """A copy of the program."""
        (folder / "bin").mkdir(parents=True)
        return shutil.copy(UNISONO, folder / "bin" / "unisono")

    def test_what_the_command_prints_is_for_any_shell(self) -> None:
        package = self.folder / "it's $HOME"
        program = self.program_in(package)
        shutil.copytree(STARTUP, package / "_startup")
        script = (
            'eval "$("$0" alias gloo=unisono)"; echo "$UNISONO_BACKEND_ALIAS"; echo "$PYTHONPATH"'
        )
        startup = str(package / "_startup")
        for before, after in (("", startup), ("/mine:/theirs", f"{startup}:/mine:/theirs")):
            lines = lines_of(["sh", "-c", script, program], PYTHONPATH=before)
            self.assertEqual(lines, ["gloo=unisono", after])

    def test_the_launcher_keeps_the_path(self) -> None:
        command = [UNISONO, "run", "--backend-alias", "my_1=unisono", "sh", "-c"]
        for before, after in (("", STARTUP), ("/mine", f"{STARTUP}:/mine")):
            lines = lines_of(
                [*command, 'echo "$UNISONO_BACKEND_ALIAS $PYTHONPATH"'], PYTHONPATH=before
            )
            self.assertEqual(lines, [f"my_1=unisono {after}"])

    def test_a_program_elsewhere_finds_the_package_of_the_programs_python(self) -> None:
        program = self.program_in(self.folder)
        script = self.folder / "script"
        script.write_text(f"#!{sys.executable}\n{MEANING}\n")
        script.chmod(0o755)
        for command in ([sys.executable, "-c", MEANING], [str(script)]):
            lines = lines_of([program, "run", "--backend-alias", ALIAS, *command])
            self.assertEqual(lines, ["unisono unisono"])
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.assertIn(f"'{STARTUP}'", "".join(lines_of([program, "alias", ALIAS], PATH=path)))

    def test_a_program_without_the_package_is_explained_once(self) -> None:
        program = self.program_in(self.folder)
        python3 = self.folder / "python3"
        python3.write_text("#!/bin/sh\n")
        python3.chmod(0o755)
        path = f"{self.folder}:{os.environ['PATH']}"
        for arguments in (
            ["run", "-n", "3", "--backend-alias", ALIAS, "echo", "x"],
            ["alias", ALIAS],
        ):
            job = run([program, *arguments], PATH=path)
            self.assertEqual((job.returncode, job.stdout), (1, ""))
            (line,) = job.stderr.splitlines()
            self.assertIn(f"the unisono in {self.folder}/bin has no Python package", line)
            self.assertIn(f"and {python3} finds no module unisono", line)

    def test_wrong_names_are_wrong_usage(self) -> None:
        for arguments in (["run", "--backend-alias", "gloo", "echo"], ["alias", "gloo"], ["alias"]):
            job = run([UNISONO, *arguments])
            self.assertEqual((job.returncode, job.stdout), (2, ""))
            (line,) = job.stderr.splitlines()
            self.assertIn("NAME", line)

    def test_settings_are_checked(self) -> None:
        job = run([UNISONO, "run", "echo"], UNISONO_BACKEND_ALIAS="gloo")
        self.assertEqual((job.returncode, job.stdout), (2, ""))
        self.assertIn('UNISONO_BACKEND_ALIAS="gloo" is not a list of backends', job.stderr)


if __name__ == "__main__":
    unittest.main()
