"""DistributedDataParallel with its gradients in memory that the ranks of a node share."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from . import _C
from ._memory import backend_for

_WHO = "unisono.ddp.enable"


def _move_buckets(model: DistributedDataParallel, leaves_gradients_there: bool) -> None:
    n_buckets, n_symmetric, problem = _C._move_buckets(
        backend_for(model.process_group, _WHO), model.reducer, leaves_gradients_there
    )
    if n_symmetric < n_buckets:
        warnings.warn(
            f"{_WHO}: {n_buckets - n_symmetric} of {n_buckets} gradient buckets stay in private "
            f"memory, where it takes longer to reduce them: {problem}",
            stacklevel=5,  # Of who called enable().
        )


class _Mover:
    """Moves the buckets again where torch has made new ones: after the first backward pass, and
    for another process group. A forward hook, so that nobody reduces them meanwhile."""

    def __init__(self, model: DistributedDataParallel, gradient_as_bucket_view: bool) -> None:
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self._move(model)

    def _move(self, model: DistributedDataParallel) -> None:
        # torch keeps the old gradients of parameters that no rank used: those must not move.
        uses_all = not (model.find_unused_parameters or model.static_graph)
        # torch's own views need nothing from here.
        _move_buckets(
            model, self.gradient_as_bucket_view and uses_all and not model.gradient_as_bucket_view
        )
        self._reducer = id(model.reducer)
        self._has_rebuilt = model._has_rebuilt_buckets

    # torch.compile() of the model would look into it, and fail. torch.compiler.disable() does the
    # same, but makes `import unisono` seconds longer.
    @torch._disable_dynamo
    def __call__(self, model: DistributedDataParallel, *_: Any) -> None:
        if id(model.reducer) != self._reducer:
            # The model is a copy, with a new reducer and what was said of the old one.
            model._has_rebuilt_buckets = False
        elif model._has_rebuilt_buckets == self._has_rebuilt:
            return
        self._move(model)


def enable(
    model: DistributedDataParallel, *, gradient_as_bucket_view: bool = True
) -> DistributedDataParallel:
    """Puts the model's gradient buckets into symmetric memory, where they are reduced several times
    faster, to the same bits; returns the model.

    Call it after wrapping the model, and not between its forward and its backward pass. The
    gradients stay where they are reduced, about as if the model had been wrapped with
    gradient_as_bucket_view=True: the next backward pass overwrites them even where somebody kept
    them, they outlive the group, but a child of fork() can't touch them. With
    gradient_as_bucket_view=False, with a communication hook that reduces another tensor than the
    bucket, and in a model some of whose parameters may have no part in a step
    (find_unused_parameters, static_graph), that is as the model was wrapped. Buckets for which the
    arena has no room stay where they are, with a warning. Raises TypeError or ValueError for what
    is not a model whose gradients this package's backend reduces.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            f"{_WHO}: it takes a DistributedDataParallel, not a {type(model).__name__}: wrap the "
            "model before"
        )
    if not hasattr(model, "reducer"):
        raise ValueError(f"{_WHO}: the model delays all gradients, and so has no buckets")
    movers = [hook for hook in model._forward_hooks.values() if isinstance(hook, _Mover)]
    if not movers:
        model.register_forward_hook(_Mover(model, gradient_as_bucket_view))
    elif movers[0].gradient_as_bucket_view != gradient_as_bucket_view:
        raise ValueError(f"{_WHO}: the model is enabled already, with the other choice of views")
    return model
