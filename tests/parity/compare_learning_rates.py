#!/usr/bin/env python3
"""Our learning rate schedules against PyTorch's: compare_schedules.py PROGRAM."""

import subprocess
import sys
import unittest

import torch
from torch.optim import lr_scheduler as lr

PROGRAM = sys.argv.pop(1)
BASE_LR = 0.05
N_STEPS = 40
TOLERANCE = 1e-12


def chained(sgd):
    return lr.ChainedScheduler([lr.LinearLR(sgd, 0.1, 1.0, 6), lr.ExponentialLR(sgd, 0.9)])


def warm_up_then_cosine(sgd):
    parts = [lr.LinearLR(sgd, 0.1, 1.0, 5), lr.CosineAnnealingLR(sgd, 20, 1e-4)]
    return lr.SequentialLR(sgd, parts, [5])


def three_in_sequence(sgd):
    parts = [
        lr.ConstantLR(sgd, 0.1, 100),
        lr.ExponentialLR(sgd, 0.9),
        lr.CosineAnnealingWarmRestarts(sgd, 4, 2),
    ]
    return lr.SequentialLR(sgd, parts, [4, 12])


def one_cycle(sgd, **options):
    return lr.OneCycleLR(sgd, 0.2, N_STEPS, cycle_momentum=False, **options)


def cyclic(sgd, *args, **options):
    return lr.CyclicLR(sgd, 0.01, 0.1, 5, *args, cycle_momentum=False, **options)


SCHEDULES = {
    "constant": lambda sgd: lr.ConstantLR(sgd, 0.5, 7),
    "constant_default": lr.ConstantLR,
    "linear": lambda sgd: lr.LinearLR(sgd, 0.25, 0.75, 9),
    "linear_default": lr.LinearLR,
    "step": lambda sgd: lr.StepLR(sgd, 3, 0.7),
    "step_default": lambda sgd: lr.StepLR(sgd, 10),
    "multi_step": lambda sgd: lr.MultiStepLR(sgd, [4, 11, 11, 20], 0.3),
    "exponential": lambda sgd: lr.ExponentialLR(sgd, 0.93),
    "polynomial": lambda sgd: lr.PolynomialLR(sgd, 25, 1.7),
    "polynomial_default": lr.PolynomialLR,
    "lambda": lambda sgd: lr.LambdaLR(sgd, lambda step: 1 / (1 + step) ** 0.5),
    "cosine": lambda sgd: lr.CosineAnnealingLR(sgd, 13, 1e-3),
    "restarts": lambda sgd: lr.CosineAnnealingWarmRestarts(sgd, 7, 1, 1e-3),
    "growing_restarts": lambda sgd: lr.CosineAnnealingWarmRestarts(sgd, 3, 2),
    "one_cycle": one_cycle,
    "one_cycle_linear": lambda sgd: one_cycle(sgd, pct_start=0.25, anneal_strategy="linear"),
    "one_cycle_three_phases": lambda sgd: one_cycle(
        sgd, div_factor=10, final_div_factor=100, three_phase=True
    ),
    "triangular": lambda sgd: cyclic(sgd, 8),
    "triangular2": lambda sgd: cyclic(sgd, mode="triangular2"),
    "exp_range": lambda sgd: cyclic(sgd, mode="exp_range", gamma=0.97),
    "chained": chained,
    "warm_up_then_cosine": warm_up_then_cosine,
    "three_in_sequence": three_in_sequence,
}

PLATEAUS = {
    "plateau": {"patience": 2},
    "plateau_abs": {"patience": 1, "threshold": 0.3, "threshold_mode": "abs", "cooldown": 2},
    "plateau_max": {"mode": "max", "factor": 0.5, "patience": 3, "min_lr": 0.004},
    "plateau_max_abs": {
        "mode": "max",
        "factor": 0.5,
        "patience": 4,
        "threshold": 0.1,
        "threshold_mode": "abs",
        "eps": 2e-3,
    },
}

FALLING = [2.0 * 0.8**epoch for epoch in range(8)]
METRICS = [*FALLING, *(0.5 + 0.01 * (epoch % 3) for epoch in range(20)), *[0.2] * 12]


def optimizer():
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=BASE_LR)


def rates_of_schedule(make):
    sgd = optimizer()
    scheduler = make(sgd)
    rates = []
    for _ in range(N_STEPS):
        rates.append(sgd.param_groups[0]["lr"])
        sgd.step()
        if len(rates) < N_STEPS:  # one_cycle has no more steps
            scheduler.step()
    return rates


def rates_of_plateau(options):
    sgd = optimizer()
    scheduler = lr.ReduceLROnPlateau(sgd, **options)
    rates = []
    for metric in METRICS:
        sgd.step()
        scheduler.step(metric)
        rates.append(sgd.param_groups[0]["lr"])
    return rates


def our_rates(*arguments):
    lines = subprocess.run(
        [PROGRAM, *arguments], check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    return {name: list(map(float, rates)) for name, *rates in (line.split() for line in lines)}


class SchedulesEqualPyTorchs(unittest.TestCase):
    def compare(self, ours, theirs):
        self.assertEqual(ours.keys(), theirs.keys())
        for name, expected in theirs.items():
            with self.subTest(name):
                self.assertEqual(len(ours[name]), len(expected))
                for step, (ours_now, now) in enumerate(zip(ours[name], expected, strict=True)):
                    self.assertLessEqual(abs(ours_now - now), TOLERANCE * BASE_LR, f"step {step}")

    def test_schedules(self):
        theirs = {name: rates_of_schedule(make) for name, make in SCHEDULES.items()}
        self.compare(our_rates(), theirs)

    def test_plateaus(self):
        theirs = {name: rates_of_plateau(options) for name, options in PLATEAUS.items()}
        for name, rates in theirs.items():
            self.assertGreater(len(set(rates)), 2, f"{name} never reduces twice")
        self.compare(our_rates(*map(repr, METRICS)), theirs)


if __name__ == "__main__":
    unittest.main()
