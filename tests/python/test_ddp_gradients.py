#!/usr/bin/env python3
"""Where the gradients of an enabled DistributedDataParallel lie, and whose they are."""

import gc
import unittest
import weakref

import torch
import torch.distributed as dist
from ddp_net import WIDTH, backward, wrap
from support import run
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import unisono


def where_gradients_are(rank: int, world: int) -> None:
    """Without a hook."""
    views = {"gradient_as_bucket_view": True}
    rare = {"find_unused_parameters": True, "has_rare_layer": True}
    for options, enable, are_symmetric in (
        (views, None, False),
        (views, {"gradient_as_bucket_view": False}, True),
        ({}, {}, True),
        ({}, {"gradient_as_bucket_view": False}, False),
        ({"static_graph": True}, {}, False),
        (rare, {}, False),
    ):
        model = wrap(False, **options)
        if enable is not None:
            unisono.ddp.enable(model, **enable)
        for step in range(4):
            model.zero_grad(set_to_none=step != 2)
            backward(model, rank, step)
            for parameter in model.parameters():
                if parameter.grad is not None:
                    seen = unisono.is_symmetric(parameter.grad)
                    assert seen == are_symmetric, f"{options}, {enable}, step {step}"


def stays_as_it_was(rank: int, world: int) -> None:
    """A gradient that somebody keeps, where none are left in the buckets."""
    model = unisono.ddp.enable(wrap(False), gradient_as_bucket_view=False)
    kept = []
    for step in range(4):
        model.zero_grad()
        backward(model, rank, step)
        kept += [(p.grad, p.grad.clone()) for p in model.parameters()]
    for gradient, copied_then in kept:
        assert torch.equal(gradient, copied_then)


def own_gradients(rank: int, world: int) -> None:
    """What the user put in place of a gradient is nobody else's to replace."""
    model = wrap(True)
    for step in range(2):
        backward(model, rank, step)
    weight, bias = model.module.last.weight, model.module.last.bias
    own = torch.full_like(bias, rank)
    bias.grad = own
    dist.all_reduce(weight.grad)
    assert bias.grad is own and own.eq(rank).all()


def layouts(rank: int, world: int) -> None:
    results = []
    for is_enabled in (False, True):
        torch.manual_seed(3)
        net = nn.Sequential(nn.Conv2d(3, 5, 3), nn.Flatten(), nn.Linear(5 * 6 * 6, 2))
        model = DistributedDataParallel(net.to(memory_format=torch.channels_last))
        if is_enabled:
            unisono.ddp.enable(model)
        for step in range(3):
            model.zero_grad()
            torch.manual_seed(10 * step + rank)
            images = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
            model(images).square().mean().backward()
        assert all(p.grad.stride() == p.stride() for p in model.parameters())
        results.append([p.grad for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def frozen(rank: int, world: int) -> None:
    """Parameters that are frozen after wrapping, and while torch makes new buckets."""
    results = []
    for is_enabled in (False, True):
        model = wrap(False)
        model.requires_grad_(False)
        if is_enabled:
            unisono.ddp.enable(model)
        model.requires_grad_(True)
        backward(model, rank, 0)
        model.requires_grad_(False)
        images = torch.randn(2, WIDTH, requires_grad=True)
        model(images, 1).sum().backward()
        model.requires_grad_(True)
        for step in range(2, 5):
            model.zero_grad()
            backward(model, rank, step)
        results.append([p.grad for p in model.parameters()])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def models_end(rank: int, world: int) -> None:
    model = wrap(True)
    for step in range(2):
        backward(model, rank, step)
    parameter = weakref.ref(next(model.parameters()))
    del model
    gc.collect()
    assert parameter() is None


class Gradients(unittest.TestCase):
    def test_gradients_lie_in_the_buckets(self) -> None:
        run(where_gradients_are, 2)

    def test_kept_gradients_stay_as_they_were(self) -> None:
        run(stays_as_it_was, 2)

    def test_gradients_of_the_user_are_not_replaced(self) -> None:
        run(own_gradients, 2)

    def test_gradients_have_the_layout_of_their_parameters(self) -> None:
        run(layouts, 2)

    def test_frozen_parameters(self) -> None:
        run(frozen, 2)

    def test_models_are_not_kept_alive(self) -> None:
        run(models_end, 2)


if __name__ == "__main__":
    unittest.main()
