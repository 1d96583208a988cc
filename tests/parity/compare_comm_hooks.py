#!/usr/bin/env python3
"""Our communication hooks against PyTorch's, on two ranks: compare_comm_hooks.py PROGRAM."""

import os
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks as hooks
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook as local
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.nn.parallel import DistributedDataParallel

N_STEPS = 7


def power_sgd(rank=1, start=2, rate=0.5, **options):
    def register(model):
        state = power.PowerSGDState(None, rank, start, rate, **options)
        model.register_comm_hook(state, power.powerSGD_hook)

    return register


def plain(hook):
    # The hook has another name because PyTorch rejects bf16_compress_hook on CPUs, although the
    # hook works there.
    def run_hook(state, bucket):
        return hook(state, bucket)

    return lambda model: model.register_comm_hook(None, run_hook)


def post_local_sgd(model):
    state = local.PostLocalSGDState(None, None, 2, post_local_gradient_allreduce=False)
    model.register_comm_hook(state, local.post_localSGD_hook)


COLD = {"use_error_feedback": False, "random_seed": 5}
CASES = {
    "allreduce": plain(hooks.allreduce_hook),
    "fp16": plain(hooks.fp16_compress_hook),
    "bf16": plain(hooks.bf16_compress_hook),
    "power1": power_sgd(),
    "power2": power_sgd(2),
    "power4": power_sgd(4),
    "power4_without_error": power_sgd(4, **COLD),
    "power4_cold": power_sgd(4, **COLD, warm_start=False),
    "power1_by_default_rate": power_sgd(start=3, rate=2),
    "post_local_sgd": post_local_sgd,
}


def make_net():
    net = torch.nn.Sequential(torch.nn.Linear(24, 16), torch.nn.Tanh(), torch.nn.Linear(16, 8))
    with torch.no_grad():
        for parameter in net.parameters():
            numbers = torch.arange(1, parameter.numel() + 1)
            parameter.copy_(numbers.sin().view_as(parameter) * 0.3)
    return net


def make_input(step, rank):
    numbers = torch.arange(1, 10 * 24 + 1, dtype=torch.float32)
    return (numbers * (0.37 * (step + 1) + 0.11 * rank)).cos().view(10, 24)


def train(name, rank):
    model = DistributedDataParallel(make_net())
    CASES[name](model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    averager = PeriodicModelAverager(period=2, warmup_steps=2)
    gradients = []
    for step in range(N_STEPS):
        optimizer.zero_grad()
        x = make_input(step, rank)
        torch.nn.functional.mse_loss(model(x), x[:, :8]).backward()
        gradients += [parameter.grad.flatten().clone() for parameter in model.parameters()]
        optimizer.step()
        if name == "post_local_sgd":
            averager.average_parameters(model.parameters())
    return torch.cat(gradients)


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=2,
        timeout=timedelta(seconds=60),
    )
    result = {name: train(name, rank) for name in CASES}
    if rank == 0:
        torch.save(result, Path(folder) / "gradients.pt")
    dist.destroy_process_group()
    # Callbacks of Gloo's threads that need the interpreter would abort the process during its exit.
    os._exit(0)


def their_gradients():
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(run_rank, (folder,), nprocs=2)
        return torch.load(Path(folder) / "gradients.pt")


def our_gradients():
    lines = subprocess.run(
        [PROGRAM], check=True, capture_output=True, text=True, timeout=120
    ).stdout.splitlines()
    return {
        name: torch.tensor(list(map(float, numbers)))
        for name, *numbers in (line.split() for line in lines)
    }


class CommHooksEqualPyTorchs(unittest.TestCase):
    def test_gradients_of_all_steps(self):
        ours, theirs = our_gradients(), their_gradients()
        self.assertEqual(ours.keys(), theirs.keys())
        for name, expected in theirs.items():
            with self.subTest(name):
                difference = (ours[name] - expected).abs().max() / expected.abs().max()
                print(f"{name}: differ by {difference:.1e} of the largest gradient")
                self.assertLessEqual(difference, 1e-5)
                if name != "allreduce":
                    self.assertGreater((expected - theirs["allreduce"]).abs().max(), 1e-4)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    unittest.main()
