#!/usr/bin/env python3
"""GradScaler against PyTorch's: compare_grad_scaler.py PROGRAM."""

import math
import random
import subprocess
import sys
import unittest

import torch


def theirs(overflows):
    parameter = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=1e36, growth_factor=3.0, backoff_factor=0.3, growth_interval=3
    )
    for overflow in overflows:
        optimizer.zero_grad()
        scaler.scale((parameter * (math.inf if overflow == "1" else 0.25)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        yield scaler.get_scale(), scaler._get_growth_tracker(), parameter.item()


def ours(overflows):
    lines = subprocess.run(
        [PROGRAM, overflows], check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    for line in lines:
        scale, tracker, parameter = line.split()
        yield float(scale), int(tracker), float(parameter)


def as_float32(states):
    return [(torch.tensor(a).item(), b, torch.tensor(c).item()) for a, b, c in states]


class GradScalerEqualsPyTorchs(unittest.TestCase):
    def test_scales_and_skipped_steps(self):
        # In the first case the scale grows until the next scale would be infinite.
        chance = random.Random(1)
        for overflows in ("0" * 20, *("".join(chance.choices("0001", k=60)) for _ in range(3))):
            with self.subTest(overflows):
                expected = as_float32(theirs(overflows))
                self.assertEqual(as_float32(ours(overflows)), expected)
                self.assertGreater(len({scale for scale, _, _ in expected}), 4)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
