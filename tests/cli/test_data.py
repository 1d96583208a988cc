"""`unisono data bench`, as people start it: python test_data.py PATH_OF_UNISONO"""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = sys.argv.pop(1)
DIGITS = Path(__file__).resolve().parents[1] / "data" / "synthetic_digits"


def unisono(*words):
    return subprocess.run(
        [PROGRAM, "data", *map(str, words)], capture_output=True, text=True, timeout=60
    )


class Bench(unittest.TestCase):
    def check(self, folder, title):
        done = unisono("bench", folder, "--max-workers", 2, "--seconds", 0.01)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(title, done.stdout)
        timed = re.findall(r"^ +(\d+) +(\d+)$", done.stdout, re.MULTILINE)
        self.assertEqual([workers for workers, _ in timed], ["0", "1", "2"])
        self.assertRegex(done.stdout, r"best: num_workers = [012]\n$")

    def test_mnist(self):
        self.check(DIGITS, "MNIST, normalized: ")

    def test_cifar(self):
        with tempfile.TemporaryDirectory() as folder:
            for number in range(1, 6):
                record = bytes([number]) + bytes(3072)
                (Path(folder) / f"data_batch_{number}.bin").write_bytes(10 * record)
            self.check(folder, "CIFAR-10, cropped and flipped: 50 samples")

    def test_a_folder_without_data_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = unisono("bench", folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'"{folder}": neither MNIST nor CIFAR is there', done.stderr)

    def test_damaged_data_are_not_passed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.bin").write_bytes(b"x")
            done = unisono("bench", folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("record 0, at offset 0: ends early", done.stderr)


if __name__ == "__main__":
    unittest.main()
