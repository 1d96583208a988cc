"""Runs `unisono-data-bench`: python test_data_bench.py PATH_OF_PROGRAM"""

import re
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from zlib import compress, crc32

PROGRAM = sys.argv.pop(1)
DIGITS = Path(__file__).resolve().parents[2] / "tests" / "data" / "synthetic_digits"


def bench(*words):
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True, timeout=60)


def gray_png(side):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", crc32(kind + data))

    rows = (b"\0" + bytes(range(side))) * side
    header = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", compress(rows))
        + chunk(b"IEND", b"")
    )


class Bench(unittest.TestCase):
    def check(self, folder, title):
        done = bench(folder, "--max-workers", 2, "--seconds", 0.01)
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

    def test_an_image_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cat", "dog"):
                (Path(folder) / name).mkdir()
                for number, side in enumerate((8, 8, 11)):
                    (Path(folder) / name / f"{number}.png").write_bytes(gray_png(side))
            self.check(
                folder,
                "images of 2 classes, decoded to 8 x 8 pixels (height x width), cropped and "
                "flipped: 6 samples",
            )
            (Path(folder) / "dog" / "0.png").write_bytes(gray_png(8)[:50])
            done = bench(folder, "--seconds", 0.01)
            self.assertEqual(done.returncode, 1)
            self.assertIn("dog/0.png: the PNG image can't be decoded", done.stderr)

    def test_what_systems_leave_behind_is_no_class(self):
        with tempfile.TemporaryDirectory() as folder:
            for name in ("cat", "dog", ".ipynb_checkpoints", "__MACOSX"):
                (Path(folder) / name).mkdir()
                (Path(folder) / name / "1.png").write_bytes(gray_png(8))
            (Path(folder) / "cat" / "._1.png").write_bytes(b"AppleDouble")
            done = bench(folder, "--max-workers", 0, "--seconds", 0.01)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("images of 2 classes", done.stdout)
            self.assertIn(": 2 samples in batches", done.stdout)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn("entries left out: 3 of systems and tools (", done.stderr)

    def test_a_folder_without_data_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = bench(folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn(f'"{folder}": has no folders in it', done.stderr)
            self.assertIn("(MNIST and CIFAR are not there either)", done.stderr)

    def test_wrong_usage_is_named(self):
        for words, problem in (
            ([], "folder is required"),
            ([".", "--max-workers", -1], "--max-workers"),
            ([".", "--minutes", 1], "--minutes"),
        ):
            with self.subTest(words=words):
                done = bench(*words)
                self.assertEqual(done.returncode, 2)
                self.assertIn(problem, done.stderr)
                self.assertTrue(done.stderr.endswith("; see unisono-data-bench --help\n"))

    def test_damaged_data_are_not_passed_over(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "train.bin").write_bytes(b"x")
            done = bench(folder)
            self.assertEqual(done.returncode, 1)
            self.assertIn("record 0, at offset 0: ends early", done.stderr)


if __name__ == "__main__":
    unittest.main()
