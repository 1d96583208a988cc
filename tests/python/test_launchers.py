#!/usr/bin/env python3
"""Programs with DistributedDataParallel that know nothing of Unisono, under each launcher."""

from __future__ import annotations

import tempfile
import unittest
from pathlib import Path

import references
from jobs import launch, program, torchrun, unisono_run

LAUNCHERS = (unisono_run, launch, torchrun)


class Launchers(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="unisono-python-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def test_one_layer(self) -> None:
        losses, state = references.linear()
        expected = [f"Rank {rank}, local {rank}: {loss}" for rank, loss in enumerate(losses)]
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher.__name__):
                file = self.folder / f"{launcher.__name__}.ckpt"
                lines = program(launcher, "ddp_linear", "--save", str(file))
                self.assertEqual(sorted(lines), expected)
                references.check_saved(file, state)

    @references.needs_images
    def test_images_by_a_sampler(self) -> None:
        expected = [
            f"Rank {rank}, epoch {epoch}: {losses[rank]}"
            for rank in range(2)
            for epoch, losses in enumerate(references.sampled_images())
        ]
        for launcher in LAUNCHERS:
            with self.subTest(launcher=launcher.__name__):
                self.assertEqual(sorted(program(launcher, "ddp_images")), expected)


if __name__ == "__main__":
    unittest.main()
