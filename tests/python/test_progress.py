#!/usr/bin/env python3
"""How far a training is: lines, JSON, a terminal's bar and event files."""

import contextlib
import json
import os
import pty
import tempfile
import unittest
from pathlib import Path

import torch
import torch.distributed as dist
from support import run

import unisono


def output_of(train, **options) -> str:
    """What is written to a pipe."""
    reader, writer = os.pipe()
    progress = unisono.Progress(fd=writer, interval=0, **options)
    train(progress)
    progress.finish()
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        return file.read()


def two_steps(progress: unisono.Progress) -> None:
    progress.step({"loss": torch.tensor(0.5)}, samples=64)
    progress.step({"loss": 0.25}, samples=64)


def in_group(rank: int, world: int, folder: str) -> int:
    path = Path(folder) / f"rank{rank}.json"
    with unisono.Progress(total=1, format="none", json_file=path) as progress:
        progress.step({"loss": rank + 1.0})
    return dist.get_world_size() if path.exists() else 0


class Progress(unittest.TestCase):
    def test_lines(self) -> None:
        text = output_of(two_steps, total=4, start=1, title="epoch 1/2")
        lines = text.splitlines()
        self.assertEqual(len(lines), 3, text)
        self.assertRegex(lines[0], r"^epoch 1/2: step 2 of 4 .*loss 0\.5$")
        self.assertRegex(lines[1], r"step 3 of 4 .*loss 0\.25$")

    def test_json(self) -> None:
        lines = [json.loads(line) for line in output_of(two_steps, format="json").splitlines()]
        self.assertEqual([line["values"]["loss"] for line in lines[:2]], [0.5, 0.25])
        self.assertEqual((lines[0]["step"], lines[1]["samples"]), (1, 128))

    def test_lines_of_ones_own_titles_and_records(self) -> None:
        def train(progress: unisono.Progress) -> None:
            progress.print("a line of its own")
            progress.set_title("later")
            progress.step()
            progress.record({"accuracy": 0.75})
            self.assertEqual(progress.n_steps, 1)

        text = output_of(train)
        self.assertIn("a line of its own\n", text)
        self.assertRegex(text, "later.*1")
        self.assertRegex(text, r"accuracy 0\.75")

    def test_a_bar_on_a_terminal(self) -> None:
        ours, terminal = pty.openpty()
        with unisono.Progress(total=2, fd=terminal) as progress:
            two_steps(progress)
        os.close(terminal)
        text = ""
        # The output may arrive in parts. After the last part, the closed terminal raises OSError.
        with contextlib.suppress(OSError):
            while part := os.read(ours, 1 << 16):
                text += part.decode(errors="replace")
        self.assertIn("\r", text)
        self.assertIn("1/2", text)
        self.assertIn("2 of 2 steps", text)
        os.close(ours)

    def test_files(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "steps.json"
            with unisono.Progress(
                format="none", json_file=path, tensorboard=folder, record_every=2
            ) as progress:
                two_steps(progress)
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            steps = [(line["step"], line["values"]["loss"]) for line in lines]
            self.assertEqual(steps, [(2, 0.25)])
            (events,) = Path(folder).glob("events.out.tfevents.*")
            self.assertIn(b"loss", events.read_bytes())

    def test_rank_0_alone_reports(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run(in_group, 2, folder), [2, 0])

    def test_wrong_options_are_named(self) -> None:
        for options, text in (
            ({"total": -1}, "total is -1"),
            ({"format": "xml"}, "format is 'xml'; it may be auto, lines, json or none"),
            ({"record_every": 0}, "record_every is 0"),
            ({"json_file": "/nowhere/steps.json"}, "/nowhere/steps.json"),
        ):
            with self.assertRaisesRegex(RuntimeError, text):
                unisono.Progress(**options)
        with (
            unisono.Progress(format="none") as progress,
            self.assertRaisesRegex(RuntimeError, "-1 samples"),
        ):
            progress.step(samples=-1)


if __name__ == "__main__":
    unittest.main()
