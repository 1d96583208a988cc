#!/usr/bin/env python3
"""The installed package: what it brings, what importing it costs, and which torch it takes."""

import ast
import os
import re
import statistics
import subprocess
import sys
import tempfile
import unittest
from importlib import metadata
from pathlib import Path

import torch

import unisono

TORCH = torch.__version__.partition("+")[0]
IMPORT = """
import sys, time
import torch
before = time.perf_counter()
import unisono
print(time.perf_counter() - before)
"""
OTHER_TORCH = """
import torch
torch.__version__ = "2.12.1+cpu"
try:
    import unisono
except ImportError as error:
    print(error)
"""


def python(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout


class Package(unittest.TestCase):
    def test_comes_from_the_wheel(self) -> None:
        folder = Path(unisono.__file__).parent
        self.assertTrue(folder.is_relative_to(sys.prefix), folder)
        names = {path.name for path in folder.iterdir()}
        self.assertLessEqual({"py.typed", "_C.pyi", "bin"}, names)
        share = Path(sys.prefix) / "share"
        self.assertTrue((share / "man/man1/unisono.1").is_file())
        self.assertTrue((share / "bash-completion/completions/unisono").is_file())
        self.assertEqual(metadata.version("unisono"), unisono.__version__)
        self.assertEqual(metadata.requires("unisono"), [f"torch=={TORCH}"])

    def test_its_stubs_name_what_the_module_has(self) -> None:
        def public(names) -> set[str]:
            return {n for n in names if not n.startswith("__") and "pybind11" not in n}

        stubs = ast.parse((Path(unisono.__file__).parent / "_C.pyi").read_text())
        parts = [n for n in stubs.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        self.assertEqual({part.name for part in parts}, public(vars(unisono._C)))
        for part in parts:
            if isinstance(part, ast.ClassDef):
                methods = {n.name for n in part.body if isinstance(n, ast.FunctionDef)}
                values = {n.target.id for n in part.body if isinstance(n, ast.AnnAssign)}
                found = vars(getattr(unisono._C, part.name))
                self.assertEqual(public(methods | values), public(found), part.name)

    def test_brings_the_program(self) -> None:
        script = Path(sys.prefix) / "bin" / "unisono"
        texts = [
            python("-m", "unisono", "--version"),
            subprocess.run(
                [script, "--version"], check=True, capture_output=True, text=True, timeout=60
            ).stdout,
        ]
        for text in texts:
            self.assertRegex(text, re.escape(unisono.__version__))

    def test_its_program_runs_scripts_under_the_python_of_the_package(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "where.py"
            program.write_text("import sys, unisono; print(sys.prefix)\n")
            other = Path(folder) / "python3"
            other.write_text("#!/bin/sh\necho the one in PATH\n")
            other.chmod(0o755)
            ran = subprocess.run(
                [Path(sys.prefix) / "bin" / "unisono", "run", "-n", "1", program],
                capture_output=True,
                text=True,
                timeout=60,
                env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
            )
        self.assertEqual((ran.returncode, ran.stdout), (0, f"{sys.prefix}\n"), ran.stderr)

    def test_import_is_cheap(self) -> None:
        cost = statistics.median(float(python("-c", IMPORT)) for _ in range(3))
        print(f"import unisono: {cost * 1e3:.1f} ms over import torch")
        self.assertLess(cost, 0.05)

    def test_refuses_another_torch(self) -> None:
        text = python("-c", OTHER_TORCH)
        self.assertIn(f"built for torch {TORCH}, but torch 2.12.1+cpu is installed", text)
        self.assertIn(f"install torch=={TORCH}", text)


if __name__ == "__main__":
    unittest.main()
