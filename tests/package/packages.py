#!/usr/bin/env python3
"""Unpacks what users get, the .deb, the tarball and the wheel, into empty folders, and builds the
documents' programs with each. Nothing is installed on this machine, and nothing is downloaded."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

from run_doc_commands import parse  # noqa: E402

# Guide pages with a program in a separate folder, and the output of the program's ranks.
PROGRAMS = {
    "README.md": ("hello", 4, "".join(f"rank {rank} of 4: 10\n" for rank in range(4))),
    "docs/guide/train.md": ("train", 2, r"rank 0: parameters (\w+)\nrank 1: parameters \1\n"),
}


def run(*command: object, **options: object) -> str:
    """Runs a command; ends the test with its output if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}")
    return done.stdout


def expect(condition: object, text: str) -> None:
    if not condition:
        sys.exit(text)


def empty(folder: Path) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder


def files_below(prefix: Path) -> set[str]:
    return {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}


def check_prefix(prefix: Path, build: Path) -> None:
    """Checks that the files may lie anywhere, and have no debug information."""
    package_files = list(prefix.glob("lib*/**/*.cmake"))
    expect(package_files, f"no CMake package in {prefix}")
    for path in package_files:
        for folder in (ROOT, build, prefix):
            expect(f"{folder}/" not in path.read_text(), f"{path} contains the path {folder}")
    for library in prefix.glob("lib*/*.a"):
        sections = run("readelf", "--section-headers", "--wide", library)
        expect(".debug_info" not in sections, f"{library} has debug information")


def write_packages(arguments: argparse.Namespace) -> None:
    """Writes both packages by CPack, checks them, unpacks them into work/deb and work/tarball."""
    work = empty(arguments.work)
    config = arguments.build / "CPackConfig.cmake"
    fast = ("-D", "CPACK_DEBIAN_COMPRESSION_TYPE=gzip")  # xz takes 10 s for the core alone.
    run("cpack", "--config", config, "-B", work / "packages", *fast, cwd=work)
    (deb,) = work.glob("packages/*.deb")
    (tarball,) = work.glob("packages/*.tar.gz")
    print(f"{deb.name}: {deb.stat().st_size} bytes, {tarball.name}: {tarball.stat().st_size} bytes")

    run("dpkg-deb", "--extract", deb, work / "deb")
    run("tar", "--extract", "--file", tarball, "--directory", work)
    (work / tarball.name.removesuffix(".tar.gz")).rename(work / "tarball")
    files = files_below(work / "deb/usr")
    expect(
        files == files_below(work / "tarball"),
        f"the packages differ in {files ^ files_below(work / 'tarball')}",
    )
    expect("bin/unisono" in files, "no program unisono")
    expect("share/doc/unisono/copyright" in files, "no license")
    expect([p.name for p in (work / "deb").iterdir()] == ["usr"], "the .deb has files beside /usr")
    check_prefix(work / "deb/usr", arguments.build)

    depends = run("dpkg-deb", "--field", deb, "Depends")
    for package in ("libc6 ", "libstdc++6 ", "libfmt-dev ", "libssl-dev", "zlib1g-dev"):
        expect(package in depends, f"the .deb does not depend on {package}: {depends}")
    expect("mpi" not in depends, f"the .deb depends on an MPI: {depends}")
    shutil.rmtree(work / "packages")


def build_program(arguments: argparse.Namespace, prefix: Path, *options: object) -> Path:
    """Builds and runs the program of a page with the files in `prefix`; returns its build."""
    name, n_ranks, expected = PROGRAMS[arguments.page]
    source = arguments.work / name
    build = empty(source / "build")
    for block in parse((ROOT / arguments.page).read_text(), arguments.page):
        if block.mark == "file" and block.argument.startswith(f"~/{name}/"):
            (source / block.argument.removeprefix(f"~/{name}/")).write_text(block.text + "\n")
    run(
        *("cmake", "-S", source, "-B", build, "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={prefix}"),
        f"-DCMAKE_CXX_COMPILER={arguments.compiler}",
        f"-DCMAKE_CXX_FLAGS={arguments.flags}",
        *options,
    )
    run("cmake", "--build", build)
    printed = run(prefix / "bin/unisono", "run", "-n", n_ranks, build / name, cwd=build)
    printed = "".join(sorted(printed.splitlines(keepends=True)))
    expect(re.fullmatch(expected, printed), f"{name} printed: {printed}")
    return build


def test_program(arguments: argparse.Namespace) -> None:
    """Builds the program of a page with the files in `prefix`."""
    empty(arguments.work)
    build_program(arguments, arguments.prefix, f"-DUNISONO_TORCH_DIR={arguments.torch or ''}")
    shutil.rmtree(arguments.work)


def test_wheel(arguments: argparse.Namespace) -> None:
    """Installs the wheel into a folder, beside a link to torch, and builds the page's program."""
    work = empty(arguments.work)
    (wheel,) = arguments.wheel_folder.glob("unisono-*.whl")
    print(f"{wheel.name}: {wheel.stat().st_size} bytes")
    site = work / "site"
    run(
        *(arguments.python, "-m", "pip", "--disable-pip-version-check", "install"),
        *("--no-deps", "--no-index", "--target", site, wheel),
    )
    (site / "torch").symlink_to(arguments.torch.resolve())
    for name in ("PYTHON", "UNISONO_TORCH_DIR"):
        os.environ.pop(name, None)
    print_prefix = "import unisono; print(unisono.cmake_prefix_path)"
    path = {**os.environ, "PYTHONPATH": str(site)}
    printed = run(arguments.python, "-c", print_prefix, env=path).strip()
    prefix = site / "unisono"
    expect(printed == str(prefix), f"cmake_prefix_path is {printed}, not {prefix}")
    check_prefix(prefix, arguments.build)
    build = build_program(arguments, prefix)
    cache = (build / "CMakeCache.txt").read_text()
    found = re.search("^TorchLite_INCLUDE_DIR:PATH=(.*)$", cache, re.MULTILINE)
    if found:
        expect(found[1].startswith(f"{site}/torch/"), f"took another torch: {found[1]}")
    shutil.rmtree(work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["write", "program", "wheel", "remove"])
    parser.add_argument("--work", type=Path, required=True, help="a folder that is made anew")
    parser.add_argument("--build", type=Path, help="the build that wrote the package")
    parser.add_argument("--prefix", type=Path)
    parser.add_argument("--page", choices=PROGRAMS)
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--flags", default="")
    parser.add_argument("--torch", type=Path)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--wheel-folder", type=Path)
    arguments = parser.parse_args()
    arguments.work = arguments.work.resolve()
    parts = {"write": write_packages, "program": test_program, "wheel": test_wheel}
    if arguments.part == "remove":
        shutil.rmtree(arguments.work)
    else:
        parts[arguments.part](arguments)


if __name__ == "__main__":
    main()
