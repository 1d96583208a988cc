#!/usr/bin/env python3
"""checkpoint_bench prints what it measures: test_checkpoint_bench.py LAUNCHER PROGRAM."""

import json
import subprocess
import sys
import tempfile
import unittest
import zlib
from pathlib import Path


def run(ranks, *words):
    command = [LAUNCHER, "run", "-n", str(ranks), PROGRAM, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def correct_sums(path, name, content):
    """Writes into a checkpoint's manifest the sums that a shard of this content has."""
    manifest = json.loads(path.read_text())["manifest"]
    (shard,) = (shard for shard in manifest["shards"] if shard["file"] == name)
    size = manifest["block_bytes"]
    blocks = [content[begin : begin + size] for begin in range(0, len(content), size)]
    shard.update(crc32=zlib.crc32(content), block_crc32s=[zlib.crc32(block) for block in blocks])
    text = json.dumps(manifest, separators=(",", ":"), sort_keys=True)
    sum_of_text = f"{zlib.crc32(text.encode()):08x}"
    path.write_text(json.dumps({"manifest": manifest, "crc32": sum_of_text}))


class CheckpointBench(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "checkpoints"

    def measured(self, ranks, operation):
        done = run(ranks, operation, self.folder, "--mib", 32, "--times", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(len(result["seconds"]), 3)
        self.assertTrue(all(seconds > 0 for seconds in result["seconds"]))
        return result

    def test_each_operation(self):
        for ranks, operation in ((2, "copy"), (3, "save"), (3, "load"), (2, "load")):
            with self.subTest(operation=operation, ranks=ranks):
                self.measured(ranks, operation)
        self.measured(2, "save_async")
        self.assertTrue((self.folder / "step-00000003" / "manifest.json").exists())

    # Simulates a checkpoint with other tensor bytes and correct checksums.
    def test_what_was_loaded_is_compared(self):
        self.measured(2, "save")
        (file,) = self.folder.glob("step-*/shard-00002-*")
        content = bytearray(file.read_bytes())
        content[-1] ^= 1
        file.write_bytes(content)
        correct_sums(file.parent / "manifest.json", file.name, bytes(content))
        done = run(2, "load", self.folder, "--mib", 32)
        self.assertEqual(done.returncode, 1)
        self.assertIn("was loaded wrongly", done.stderr)

    def test_wrong_sizes(self):
        done = run(1, "save", self.folder, "--mib", 17)
        self.assertEqual(done.returncode, 1)
        self.assertIn("--mib must be a multiple of 16", done.stderr)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(2)
    LAUNCHER = sys.argv.pop(1)
    unittest.main()
