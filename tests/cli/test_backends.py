"""`unisono backends`, and what a program is told whose backend the machine can't have.

A machine without a driver is tried as it is. Where there is to be a driver, it is the test's own
libcuda.so.1 (fake_libcuda.cpp, in the folder FAKE_CUDA), which knows of no memory.

python test_backends.py PATH_OF_UNISONO
"""

import ctypes
import os
import re
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
NO_GLOO = (
    "backend gloo can't be used here: Gloo is a library inside of PyTorch; use backend unisono, "
    "the default of InitOptions::backend, whose native engine has all of Gloo's operations on "
    "CPUs, by shared memory inside a node and tcp between nodes (in Python, "
    'unisono.Options(engine="gloo") takes PyTorch\'s Gloo)'
)
# The message of a build with the headers of NCCL, or without.
MISSING_NCCL = (
    r"NVIDIA's NCCL can't be loaded: libnccl\.so\.2: cannot open.* and name its folder in "
    r"LD_LIBRARY_PATH|this build has no NCCL; .*\(-DUNISONO_NCCL_DIR=FOLDER\)"
)


def is_loadable(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def run(*words, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | variables
    return subprocess.run(
        [PROGRAM, *words], capture_output=True, text=True, timeout=60, env=environment
    )


class Backends(unittest.TestCase):
    def expect_no_nccl(self, reason, **variables):
        """The list says why, and so does who asks for the backend."""
        listed = run("backends", **variables)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        found = re.search("^nccl: (can't be used here: .*)$", listed.stdout, re.MULTILINE)
        self.assertIsNotNone(found, listed.stdout)
        self.assertRegex(found[1], reason)
        self.assertIn("unisono", found[1])
        for line in listed.stdout.splitlines():
            if line.startswith("all_reduce "):
                self.assertEqual(line.split()[1:3], ["yes", "-"])
                self.assertEqual(line.split()[-2:], ["-", "-"])
        asked = run("bench", "all_reduce", "-n", "2", "--backend", "nccl", **variables)
        self.assertNotEqual(asked.returncode, 0)
        self.assertIn(f"backend nccl {found[1]}", asked.stderr)

    @unittest.skipIf(is_loadable("libcuda.so.1"), "this machine has a driver of NVIDIA")
    def test_without_driver(self):
        self.expect_no_nccl("it needs a GPU, and there is no NVIDIA driver")

    @unittest.skipIf(is_loadable("libcuda.so.1"), "this machine has a driver of NVIDIA")
    def test_without_driver_names_what_to_take(self):
        said = run("backends").stdout
        self.assertIn("on CPUs use backend unisono, which does there what gloo does\n", said)
        self.assertNotIn("this build has no NCCL", said)

    def test_without_gpu(self):
        self.expect_no_nccl(
            'it needs a GPU, and CUDA_VISIBLE_DEVICES="" hides all',
            CUDA_VISIBLE_DEVICES="",
            LD_LIBRARY_PATH=os.environ["FAKE_CUDA"],
            FAKE_CUDA_GPUS="2",
        )

    @unittest.skipIf(is_loadable("libnccl.so.2"), "this machine has NVIDIA's NCCL")
    def test_without_library(self):
        self.expect_no_nccl(
            MISSING_NCCL,
            LD_LIBRARY_PATH=os.environ["FAKE_CUDA"],
            FAKE_CUDA_GPUS="2",
        )

    def test_gloo_is_said_to_be_elsewhere(self):
        asked = run("bench", "all_reduce", "-n", "2", "--backend", "gloo")
        self.assertNotEqual(asked.returncode, 0)
        self.assertIn(NO_GLOO, asked.stderr)

    def test_fallback_is_the_native_backend_of_all(self):
        asked = run(
            *("bench", "barrier", "-n", "2", "--backend", "gloo", "--seconds", "0.01"),
            UNISONO_BACKEND_FALLBACK="on",
        )
        self.assertEqual(asked.returncode, 0, asked.stderr)
        self.assertEqual(
            asked.stderr,
            f"[unisono rank 0] warning: {NO_GLOO} (ranks 0, 1); all ranks use backend unisono "
            "instead, as UNISONO_BACKEND_FALLBACK allows\n",
        )
        self.assertNotIn("backend", asked.stdout)


if __name__ == "__main__":
    unittest.main()
