#!/usr/bin/env python3
"""Our optimizers and averages of weights against PyTorch's: compare_optimizers.py PROGRAM."""

import subprocess
import sys
import unittest

import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

PROGRAM = sys.argv.pop(1)
N_ELEMS = 1030
N_STEPS = 20
NUMBERS = torch.arange(1, N_ELEMS + 1, dtype=torch.float64)


class Lamb:
    """The paper's formula around the direction that torch.optim.Adam takes."""

    def __init__(self, parameter, lr, weight_decay):
        self.parameter, self.lr, self.weight_decay = parameter, lr, weight_decay
        self.mirror = torch.nn.Parameter(torch.zeros_like(parameter, dtype=torch.float64))
        self.adam = torch.optim.Adam([self.mirror], lr=1, eps=1e-6)

    def step(self):
        before = self.mirror.detach().clone()
        self.mirror.grad = self.parameter.grad.double()
        self.adam.step()
        with torch.no_grad():
            direction = before - self.mirror + self.weight_decay * self.parameter
            trust = self.parameter.double().norm() / direction.norm()
            self.parameter -= self.lr * trust * direction


class Lars(torch.optim.SGD):
    """The paper's formula around torch.optim.SGD."""

    def __init__(self, parameter, lr, weight_decay, trust_coefficient):
        super().__init__([parameter], lr, momentum=0.9)
        self.parameter, self.decay, self.trust = parameter, weight_decay, trust_coefficient

    def step(self):
        with torch.no_grad():
            gradient, norm = self.parameter.grad, self.parameter.norm()
            ratio = self.trust * norm / (gradient.norm() + self.decay * norm + 1e-8)
            self.parameter.grad = ratio * (gradient + self.decay * self.parameter)
        super().step()


OPTIMIZERS = {
    "adam": lambda parameter: torch.optim.Adam([parameter], lr=0.01),
    "adadelta": lambda parameter: torch.optim.Adadelta([parameter], lr=0.9, weight_decay=0.1),
    "adamw": lambda parameter: torch.optim.AdamW([parameter]),
    "adamw_fast": lambda parameter: torch.optim.AdamW(
        [parameter], lr=0.1, betas=(0.8, 0.95), eps=1e-3, weight_decay=0.2
    ),
    "lamb": lambda parameter: Lamb(parameter, lr=0.02, weight_decay=0.05),
    "lars": lambda parameter: Lars(parameter, lr=0.5, weight_decay=0.05, trust_coefficient=0.1),
    "lars_plain": lambda parameter: torch.optim.SGD([parameter], lr=0.01, momentum=0.9),
    "sgd": lambda parameter: torch.optim.SGD([parameter], lr=0.05, momentum=0.9),
}


class Model(torch.nn.Module):
    def __init__(self, dtype):
        super().__init__()
        self.parameter = torch.nn.Parameter(NUMBERS.sin().to(dtype))


def steps(make, dtype):
    """What is left of the parameter, of its exponential average and of its mean."""
    model = Model(dtype)
    parameter = model.parameter
    optimizer = make(parameter)
    exponential = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    uniform = AveragedModel(model)
    for step in range(N_STEPS):
        wave = (NUMBERS * (0.3 * step)).cos() * 0.1
        parameter.grad = parameter.detach() * 0.5 + wave.to(dtype)
        optimizer.step()
        exponential.update_parameters(model)
        uniform.update_parameters(model)
    return {
        "": parameter,
        "/exponential": exponential.module.parameter,
        "/uniform": uniform.module.parameter,
    }


def our_values():
    lines = subprocess.run(
        [PROGRAM], check=True, capture_output=True, text=True, timeout=60
    ).stdout.splitlines()
    return {
        name: torch.tensor(list(map(float, values)), dtype=torch.float64)
        for name, *values in (line.split() for line in lines)
    }


class OptimizersEqualPyTorchs(unittest.TestCase):
    def test_twenty_steps(self):
        ours = our_values()
        forms = {"float32": torch.float32, "float64": torch.float64}
        forms["float32/strided"] = torch.float32
        n_compared = 0
        for name, make in OPTIMIZERS.items():
            for form, dtype in forms.items():
                for what, expected in steps(make, dtype).items():
                    case = f"{name}/{form}{what}"
                    with self.subTest(case):
                        difference = (ours[case] - expected.detach().double()).abs().max()
                        tolerance = 1e-6 if dtype == torch.float32 else 1e-13
                        self.assertLessEqual(difference, tolerance * expected.abs().max())
                        moved = (NUMBERS.sin() - expected.detach().double()).abs().max()
                        self.assertGreater(moved, 1e-3, "the optimizer hardly moves")
                    n_compared += 1
        self.assertEqual(n_compared, len(ours))


if __name__ == "__main__":
    unittest.main()
