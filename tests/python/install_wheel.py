#!/usr/bin/env python3
"""Builds the wheel, and installs it into a new virtual environment that sees this Python's torch.

Nothing is downloaded: what the build and the tests need has to be there.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

NEEDED = ("scikit_build_core", "pathspec", "expecttest", "hypothesis", "psutil", "numpy")


def check_needed(source: Path) -> None:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        sys.exit(
            f"{sys.executable} lacks {', '.join(missing)}: run `make test-deps`, or "
            f"`{sys.executable} -m pip install -r {source}/tools/requirements-test.txt`"
        )


def pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)]
    subprocess.run(command, check=True)


def build_wheel(source: Path, build: Path, defines: list[str]) -> Path:
    folder = build / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    settings = [f"--config-settings=build-dir={build}"]
    settings += [f"--config-settings=cmake.define.{define}" for define in defines]
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", folder)
    pip("wheel", "--verbose", *options, *settings, source)
    (wheel,) = folder.glob("unisono-*.whl")
    return wheel


def make_venv(venv: Path) -> Path:
    """A new environment; returns its Python."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--clear", "--without-pip", str(venv)], check=True
    )
    python = venv / "bin" / "python"
    places = {"base": str(venv), "platbase": str(venv)}
    site = Path(sysconfig.get_path("platlib", "venv", vars=places))
    # The packages of the build environment come after the packages of the new environment.
    (site / "torch_of_the_build.pth").write_text(sysconfig.get_path("platlib") + "\n")
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--build", type=Path, required=True, help="folder of the wheel's build")
    parser.add_argument("--venv", type=Path, required=True)
    parser.add_argument("--define", action="append", default=[], help="NAME=VALUE for CMake")
    arguments = parser.parse_args()
    check_needed(arguments.source)
    wheel = build_wheel(arguments.source, arguments.build, arguments.define)
    python = make_venv(arguments.venv)
    pip("--python", python, "install", "--no-deps", "--no-index", "--ignore-installed", wheel)
    subprocess.run([python, "-c", "import unisono; print(unisono.__file__)"], check=True)


if __name__ == "__main__":
    main()
