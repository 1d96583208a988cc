"""`unisono backends`, and what a program is told whose backend the machine can't have.

A machine without a driver is tried as it is. The other tests use libraries that stand for
NVIDIA's: the variables FAKE_CUDA and FAKE_NCCL name the folders of complete libraries, OLD_CUDA and
PARTIAL_NCCL the folders of libraries that lack functions.

python test_backends.py PATH_OF_UNISONO
"""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
NO_GLOO = (
    "backend gloo can't be used here: Gloo is a library inside of PyTorch; use backend unisono, "
    "the default of InitOptions::backend, whose native engine has all of Gloo's operations on "
    "CPUs, by shared memory inside a node and tcp between nodes (in Python, "
    'unisono.Options(engine="gloo") takes PyTorch\'s Gloo)'
)
INSTALL_NCCL = (
    r"; install NCCL 2\.14\.0 or newer \(pip install nvidia-nccl-cu13, apt-get install libnccl2\) "
    r"and name its folder in LD_LIBRARY_PATH, or copy tensors to the CPU and use backend unisono$"
)


def is_loadable(library):
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def run(*words, program=PROGRAM, **variables):
    environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"} | variables
    return subprocess.run(
        [program, *words], capture_output=True, text=True, timeout=60, env=environment
    )


def gpus(*folders, **variables):
    """The variables of a machine with two GPUs and with libraries in folders."""
    path = ":".join(os.environ.get(folder, folder) for folder in folders)
    return {"LD_LIBRARY_PATH": path, "FAKE_CUDA_GPUS": "2", **variables}


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

    def test_without_gpu(self):
        self.expect_no_nccl(
            'it needs a GPU, and CUDA_VISIBLE_DEVICES="" hides all',
            **gpus("FAKE_CUDA", "FAKE_NCCL", CUDA_VISIBLE_DEVICES=""),
        )

    def test_driver_that_does_not_start(self):
        self.expect_no_nccl(
            r"it needs a GPU, and NVIDIA's driver does not start: .* \(error 803\)",
            **gpus("FAKE_CUDA", "FAKE_NCCL", FAKE_CUDA_ERROR="803"),
        )

    def test_driver_that_is_too_old(self):
        self.expect_no_nccl(
            r"NVIDIA's driver is too old: /.*/libcuda\.so\.1 has no cuDevicePrimaryCtxRetain and "
            r"supports CUDA 10\.2; install a driver for CUDA 11\.0 or newer \(release 450",
            **gpus("OLD_CUDA", FAKE_CUDA_VERSION="10020"),
        )

    @unittest.skipIf(is_loadable("libnccl.so.2"), "this machine has NVIDIA's NCCL")
    def test_without_library(self):
        self.expect_no_nccl(
            r"NVIDIA's NCCL can't be loaded: libnccl\.so\.2: cannot open[^;]*" + INSTALL_NCCL,
            **gpus("FAKE_CUDA"),
        )

    def test_library_that_is_too_old(self):
        for version, name in (("21304", r"2\.13\.4"), ("2804", r"2\.8\.4")):
            self.expect_no_nccl(
                rf"can't be loaded: {os.environ['FAKE_NCCL']}/libnccl\.so\.2 is NCCL {name}"
                + INSTALL_NCCL,
                **gpus("FAKE_CUDA", "FAKE_NCCL", FAKE_NCCL_VERSION=version),
            )

    def test_library_without_a_function(self):
        self.expect_no_nccl(
            rf"can't be loaded: {os.environ['PARTIAL_NCCL']}/libnccl\.so\.2 has no ncclGetUniqueId "
            r"and is NCCL 2\.27\.3" + INSTALL_NCCL,
            **gpus("FAKE_CUDA", "PARTIAL_NCCL"),
        )

    def expect_nccl(self, program=PROGRAM, **variables):
        listed = run("backends", program=program, **variables)
        self.assertEqual(listed.returncode, 0, listed.stderr)
        self.assertRegex(listed.stdout, r"(?m)^all_reduce .* yes +yes$")

    def test_library_on_the_path(self):
        self.expect_nccl(**gpus("FAKE_CUDA", "FAKE_NCCL"))

    def test_library_in_a_wheel(self):
        """The wheel's folder is beside the package torch or unisono; a file on the path that does
        not fit is passed over."""
        nccl = Path(os.environ["FAKE_NCCL"], "libnccl.so.2")
        partial = Path(os.environ["PARTIAL_NCCL"], "libnccl.so.2")
        with tempfile.TemporaryDirectory() as folder:
            packages = Path(folder)
            for source, target in (
                (nccl, "nvidia/nccl/lib/libnccl.so.2"),
                (partial, "torch/lib/libc10.so"),
                (Path(PROGRAM), "unisono/bin/unisono"),
            ):
                (packages / target).parent.mkdir(parents=True)
                shutil.copy(source, packages / target)
            torch = {"LD_PRELOAD": str(packages / "torch/lib/libc10.so")}
            self.expect_no_nccl("libnccl", **gpus("FAKE_CUDA"))
            self.expect_nccl(**gpus("FAKE_CUDA"), **torch)
            self.expect_nccl(**gpus("FAKE_CUDA", "PARTIAL_NCCL"), **torch)
            self.expect_nccl(packages / "unisono/bin/unisono", **gpus("FAKE_CUDA"))

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
