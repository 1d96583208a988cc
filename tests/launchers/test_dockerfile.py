"""Expects what can be known of deploy/docker/Dockerfile without making the image: that Docker's own
parser takes it, that what it copies and installs is what the build and the programs need.

python test_dockerfile.py PROGRAM UNISONO
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from support import DEPLOY, PROGRAM, RUN_TIMEOUT_S, UNISONO, main, need

try:
    import dockerfile
except ImportError:
    dockerfile = None

ROOT = DEPLOY.parent
INSTRUCTIONS = {
    *("ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL"),
    *("ONBUILD", "RUN", "SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"),
}
# OPENED: packages of programs that another program starts on demand. ALWAYS_THERE: packages on
# which all Debian packages depend.
OPENED = {"elfutils"}
# Packages of the component datasets, which the image does not contain.
OF_DATASETS = {"libjpeg62-turbo-dev", "libpng-dev", "libsndfile1-dev"}
ALWAYS_THERE = {"libc6", "libgcc-s1"}


def packages_of(run: str) -> list[str]:
    installs = re.search(r"apt-get install -y --no-install-recommends\s+(.*?)\s*&&", run)
    return installs[1].split() if installs else []


@unittest.skipIf(dockerfile is None, "not installed: Python's dockerfile")
class DockerfileTest(unittest.TestCase):
    def setUp(self):
        self.instructions = dockerfile.parse_file(str(DEPLOY / "docker/Dockerfile"))
        starts = [n for n, each in enumerate(self.instructions) if each.cmd == "FROM"]
        self.assertEqual(len(starts), 2)
        self.build = self.instructions[: starts[1]]
        self.last = self.instructions[starts[1] :]

    def runs(self, stage) -> list[str]:
        return [each.value[0] for each in stage if each.cmd == "RUN"]

    def packages(self, stage) -> list[str]:
        return [name for run in self.runs(stage) for name in packages_of(run)]

    def copies(self) -> list[tuple[str, ...]]:
        return [each.value for each in self.build if each.cmd == "COPY"]

    def test_every_instruction_is_one(self):
        self.assertEqual({each.cmd for each in self.instructions} - INSTRUCTIONS, set())
        for each in self.instructions:
            self.assertTrue(all(each.value), each)

    def test_both_stages_begin_with_the_same_debian(self):
        bases = [each.value for each in self.instructions if each.cmd == "FROM"]
        self.assertEqual(bases, [("debian:12-slim", "AS", "build"), ("debian:12-slim",)])
        flags = [each.flags for each in self.last if each.cmd == "COPY"]
        self.assertEqual(flags, [("--from=build",)])

    def test_what_is_copied_is_in_the_repository(self):
        sources = [source for *listed, _ in self.copies() for source in listed]
        self.assertIn("src", sources)
        for source in sources:
            self.assertTrue((ROOT / source).exists(), source)

    def test_the_build_has_the_packages_that_make_deps_installs(self):
        script = (ROOT / "tools/install_deps.sh").read_text()
        wanted = re.search(r"^readonly packages=\(\n(.*?)\)$", script, re.M | re.S)[1].split()
        self.assertLessEqual(OF_DATASETS, set(wanted))
        self.assertEqual(sorted(self.packages(self.build)), sorted(set(wanted) - OF_DATASETS))

    def test_the_build_can_be_configured_with_what_is_copied(self):
        need("cmake", "ninja")
        (configure,) = (run for run in self.runs(self.build) if run.startswith("cmake -S"))
        with tempfile.TemporaryDirectory() as folder:
            for source, target in self.copies():
                copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
                copy(ROOT / source, Path(folder) / target)
            done = subprocess.run(
                ["sh", "-c", configure],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=RUN_TIMEOUT_S,
                check=False,
            )
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertNotIn("not used by the project", done.stderr)
            rules = (Path(folder) / "build/build.ninja").read_text()
        for program in ("unisono", "hello_all_reduce"):
            self.assertIn(f"build bin/{program}:", rules)

    def test_the_image_has_the_libraries_of_the_programs(self):
        need("ldd", "dpkg-query")
        if "SANITIZED" in os.environ:
            self.skipTest("the programs are built otherwise here")
        if 'VERSION_ID="12"' not in Path("/etc/os-release").read_text():
            self.skipTest("this is not Debian 12, whose packages the image has")
        needed = set()
        for program in (PROGRAM, UNISONO):
            listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True)
            for path in re.findall(r"=> (/\S+)", listed.stdout):
                # Debian's packages record files with or without the prefix /usr.
                owner = subprocess.run(
                    ["dpkg-query", "-S", path, "/usr" + path], capture_output=True, text=True
                )
                self.assertIn(": ", owner.stdout, path)
                needed.add(owner.stdout.partition(":")[0])
        self.assertEqual(set(self.packages(self.last)), (needed | OPENED) - ALWAYS_THERE)

    def test_no_process_is_root(self):
        users = [each.value[0] for each in self.last if each.cmd == "USER"]
        self.assertEqual(len(users), 1)
        self.assertGreater(int(users[0]), 0)
        self.assertIn(f"useradd --create-home --uid {users[0]} ", self.runs(self.last)[0])
        for each in self.last[self.last.index(next(e for e in self.last if e.cmd == "USER")) :]:
            self.assertNotIn(each.cmd, {"RUN", "COPY", "ADD"})


if __name__ == "__main__":
    main()
