"""`unisono devices` and `unisono run -n gpu`, as people start them.

What a machine without a driver says is tried as it is. Where there is to be a driver, it is the
test's own libcuda.so.1 (fake_libcuda.cpp, in the folder FAKE_CUDA).

python test_devices.py PATH_OF_UNISONO
"""

import ctypes
import os
import subprocess
import sys
import unittest

PROGRAM = sys.argv.pop(1)
OTHERS = {"LOCAL_RANK", "CUDA_VISIBLE_DEVICES", "PET_NPROC_PER_NODE"}


def has_driver() -> bool:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def run(*words, **variables):
    environment = {k: v for k, v in os.environ.items() if k not in OTHERS} | variables
    return subprocess.run(
        [PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60, env=environment
    )


def run_with_gpus(n_gpus, *words, **variables):
    return run(
        *words, LD_LIBRARY_PATH=os.environ["FAKE_CUDA"], FAKE_CUDA_GPUS=str(n_gpus), **variables
    )


class Devices(unittest.TestCase):
    def expect(self, done, out, err=""):
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, out)
        self.assertRegex(done.stderr, err or "^$")

    @unittest.skipIf(has_driver(), "there is a driver of NVIDIA here")
    def test_without_a_driver_there_is_none(self):
        self.expect(run("devices"), r"^no GPU visible: there is no NVIDIA driver \(libcuda.so.1")
        self.expect(
            run("devices", CUDA_VISIBLE_DEVICES="0,1"),
            r"^no GPU visible: CUDA_VISIBLE_DEVICES=0,1 names GPUs, but there is no NVIDIA driver",
        )
        self.expect(
            run("devices", CUDA_VISIBLE_DEVICES="0,x"), r'CUDA_VISIBLE_DEVICES=0,x .*"x" is neither'
        )

    def test_an_empty_list_hides_all(self):
        for done in (
            run("devices", CUDA_VISIBLE_DEVICES=""),
            run_with_gpus(2, "devices", CUDA_VISIBLE_DEVICES=""),
        ):
            self.expect(done, r'^no GPU visible: CUDA_VISIBLE_DEVICES="" hides all\n$')

    @unittest.skipIf(has_driver(), "there is a driver of NVIDIA here")
    def test_ranks_without_gpus_are_on_the_cpu(self):
        done = run("devices", "-n", 8)
        ranks = [line for line in done.stdout.splitlines() if line.startswith("local rank")]
        self.assertEqual(ranks, [f"local rank {rank}: cpu" for rank in range(8)])
        self.assertEqual(done.stderr, "")

    def test_gpus_are_listed(self):
        self.expect(
            run_with_gpus(2, "devices"),
            r"^cuda:0  Test GPU 0  80\.0 GiB  GPU-12345678-9abc-def0-0000-000000000000\n"
            r"cuda:1  Test GPU 1  80\.0 GiB  GPU-12345678-9abc-def0-0000-000000000001\n$",
        )
        self.expect(
            run_with_gpus(4, "devices", CUDA_VISIBLE_DEVICES="3"),
            r"^cuda:0  Test GPU 3  80\.0 GiB  GPU-.*03\n$",
        )

    def test_a_list_that_is_wrong_is_explained(self):
        self.expect(
            run_with_gpus(2, "devices", CUDA_VISIBLE_DEVICES="0,7"),
            r"^cuda:0  Test GPU 0 .*\n$",
            "warning: CUDA_VISIBLE_DEVICES=0,7 names 2 GPUs, CUDA shows 1",
        )
        self.expect(
            run_with_gpus(2, "devices", CUDA_VISIBLE_DEVICES="1,one"),
            r"^cuda:0  Test GPU 1 .*\n$",
            'warning: CUDA_VISIBLE_DEVICES=1,one: "one" is neither .*; CUDA shows 1 GPU\n',
        )

    def test_a_driver_without_gpus_says_why(self):
        self.expect(
            run_with_gpus(0, "devices"), "^no GPU visible: NVIDIA's driver .*, but shows no GPU\n$"
        )
        self.expect(
            run_with_gpus(2, "devices", FAKE_CUDA_ERROR="100"),
            r"^no GPU visible: .* does not start: no CUDA-capable device is detected \(error 100\)",
        )

    def test_ranks_that_share_a_gpu_are_named(self):
        self.expect(
            run_with_gpus(2, "devices", "-n", 3, LOCAL_RANK="2"),
            r"local rank 1: cuda:1\nlocal rank 2: cuda:0\nthis is local rank 2: cuda:0\n$",
            "warning: local ranks 0 and 2 both use cuda:0: there are 3 ranks for 2 GPUs",
        )

    def test_a_local_rank_that_is_none_is_an_error(self):
        done = run("devices", LOCAL_RANK="abc")
        self.assertEqual(done.returncode, 2)
        self.assertIn('LOCAL_RANK="abc"', done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_job_may_have_a_rank_per_gpu(self):
        done = run_with_gpus(3, "run", "-n", "gpu", "sh", "-c", "echo $LOCAL_RANK of $WORLD_SIZE")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(done.stdout.splitlines()), ["0 of 3", "1 of 3", "2 of 3"])
        hidden = run_with_gpus(3, "run", "--nproc_per_node=gpu", "true", CUDA_VISIBLE_DEVICES="2")
        self.assertEqual(hidden.returncode, 0, hidden.stderr)

    def test_a_job_with_a_rank_per_gpu_needs_one(self):
        done = run_with_gpus(0, "run", "-n", "gpu", "echo", "started")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertRegex(done.stderr, 'number of ranks "gpu": no GPU is visible: .*"cpu" starts')

    def test_each_host_counts_its_own(self):
        hosts = ["--hosts", "localhost", "-n", "gpu"]
        done = run_with_gpus(2, "run", *hosts, "sh", "-c", "echo $RANK")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(done.stdout.splitlines()), 2, done.stdout)


if __name__ == "__main__":
    unittest.main()
