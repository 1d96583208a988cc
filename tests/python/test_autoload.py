#!/usr/bin/env python3
"""Programs that name the backend "unisono" without importing the package: torch finds it by the
installed package's entry points."""

from __future__ import annotations

import sys
import tempfile
import unittest
from pathlib import Path

import torch.distributed as dist
from jobs import UNISONO, lines_of, run

PROGRAM = """
import sys
import torch
import torch.distributed as dist

print("unisono" in sys.modules, dist.is_backend_available("unisono"))
dist.init_process_group(sys.argv[1], *sys.argv[2:])
numbers = torch.ones(2)
dist.all_reduce(numbers)
names = {dist.get_backend(), dist.get_backend(dist.new_group(backend="UNISONO"))}
kind = dist.group.WORLD._get_backend(torch.device("cpu"))
line = f"{numbers.tolist()} {names} {type(kind).__module__}"
dist.destroy_process_group()
sys.stdout.write(line + "\\n")
"""
OTHER_TORCH = """
import torch
torch.__version__ = "2.12.1+cpu"
import torch.distributed as dist
try:
    dist.init_process_group("unisono", init_method="unisono://")
except (ImportError, RuntimeError) as error:
    while error.__cause__ is not None:
        error = error.__cause__
    print(error)
"""
OTHER_BACKEND = """
import sys
import torch.distributed as dist
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
print("unisono" in sys.modules)
"""


class Autoload(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def command(self, backend: str, *place: str) -> list[str]:
        script = self.folder / "program.py"
        script.write_text(PROGRAM)
        return [UNISONO, "run", "-n", "2", sys.executable, str(script), backend, *place]

    def job(self, backend: str, *place: str, **changes: str) -> list[str]:
        return sorted(lines_of(self.command(backend, *place), **changes))

    def check(self, lines: list[str], names: str = "{'unisono'}") -> None:
        expected = f"[2.0, 2.0] {names} unisono._C"
        self.assertEqual([line for line in lines if line.startswith("[")], [expected] * 2)

    def test_its_name_is_enough(self) -> None:
        self.check(self.job("unisono"))

    def test_so_is_its_scheme(self) -> None:
        self.check(self.job("unisono", "unisono://"))

    def test_the_name_may_be_that_of_a_device(self) -> None:
        lines = self.job("cpu:unisono", "unisono://")
        self.assertEqual(len([line for line in lines if "unisono._C" in line]), 2, lines)

    def test_it_is_there_before_it_is_imported(self) -> None:
        lines = self.job("Unisono")
        self.assertEqual([line for line in lines if "True" in line], ["False True"] * 2)

    def test_programs_with_other_backends_do_not_pay(self) -> None:
        lines = lines_of([sys.executable, "-c", OTHER_BACKEND], GLOO_SOCKET_IFNAME="lo")
        self.assertEqual(lines, ["False"])

    def test_says_when_it_is_of_another_torch(self) -> None:
        lines = lines_of([sys.executable, "-c", OTHER_TORCH])
        self.assertRegex("\n".join(lines), "built for torch .*, but torch 2.12.1.cpu is installed")

    def test_torch_may_be_told_not_to_look(self) -> None:
        switch = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        if hasattr(dist.Backend, "_ensure_backend_registered"):  # From 2.14 on torch asks by name.
            self.check(self.job("unisono", **switch))
            return
        job = run(self.command("unisono"), **switch)
        self.assertIn("Unknown backend type unisono", job.stderr)


if __name__ == "__main__":
    unittest.main()
