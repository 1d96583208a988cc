"""DistributedDataParallel with gradients in memory that the ranks of a node share, or with
compressed gradients between nodes."""

# Annotations must not be strings here: torch compares the annotations of a communication hook with
# types.

import warnings
from typing import Any

import torch
import torch.distributed as dist
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
    """Moves the buckets again if torch has created new ones: after the first backward pass, and
    for another process group. A forward hook, because no bucket is being reduced then."""

    def __init__(self, model: DistributedDataParallel, gradient_as_bucket_view: bool) -> None:
        self.gradient_as_bucket_view = gradient_as_bucket_view
        self._move(model)

    def _move(self, model: DistributedDataParallel) -> None:
        # torch keeps the old gradients of parameters that no rank used; these gradients must not
        # move.
        uses_all = not (model.find_unused_parameters or model.static_graph)
        # Views that torch creates need no further handling.
        _move_buckets(
            model, self.gradient_as_bucket_view and uses_all and not model.gradient_as_bucket_view
        )
        self._reducer = id(model.reducer)
        self._has_rebuilt = model._has_rebuilt_buckets

    # torch.compile() of the model would trace this function and fail. torch.compiler.disable() has
    # the same effect, but makes `import unisono` seconds slower.
    @torch._disable_dynamo
    def __call__(self, model: DistributedDataParallel, *_: Any) -> None:
        if id(model.reducer) != self._reducer:
            # The model is a copy with a new reducer, but with the flag of the old reducer.
            model._has_rebuilt_buckets = False
        elif model._has_rebuilt_buckets == self._has_rebuilt:
            return
        self._move(model)


def enable(
    model: DistributedDataParallel, *, gradient_as_bucket_view: bool = True
) -> DistributedDataParallel:
    """Moves the model's gradient buckets into symmetric memory, which makes their reduction several
    times faster, with the same bits; returns the model.

    Call it after wrapping the model, and not between its forward and its backward pass. The
    gradients stay in the buckets, similar to gradient_as_bucket_view=True: the next backward pass
    overwrites them even if the program keeps references to them, they outlive the group, but a
    child of fork() can't access them. The gradients stay as the model was wrapped in three cases:
    gradient_as_bucket_view=False, a communication hook that reduces another tensor than the
    bucket, and a model with parameters that a step may not use (find_unused_parameters,
    static_graph). Buckets for which the arena has no room stay in private memory, with a warning.
    Raises TypeError or ValueError unless this package's backend reduces the model's gradients.
    """
    if not isinstance(model, DistributedDataParallel):
        raise TypeError(
            f"{_WHO}: it takes a DistributedDataParallel, not a {type(model).__name__}: wrap the "
            "model before"
        )
    if not hasattr(model, "reducer"):
        raise ValueError(f"{_WHO}: the model delays all gradients and therefore has no buckets")
    movers = [hook for hook in model._forward_hooks.values() if isinstance(hook, _Mover)]
    if not movers:
        model.register_forward_hook(_Mover(model, gradient_as_bucket_view))
    elif movers[0].gradient_as_bucket_view != gradient_as_bucket_view:
        raise ValueError(f"{_WHO}: the model is enabled already, with the other choice of views")
    return model


class QuantizeState:
    """State of quantize_hook() between passes, for one model.

    `type` is the number format of gradients between nodes: "bfloat16" takes half the bytes, "int8"
    and "fp8" take a quarter. If a node of several has more than one rank, the state owns a group of
    this node's ranks. A collective call of the group's ranks. Raises ValueError for another type,
    and for a group of another backend.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None, type: str = "fp8") -> None:
        backend = backend_for(process_group, "unisono.ddp.QuantizeState")
        self._quantizer = _C._Quantizer(backend, type)
        self._averages: list[tuple[torch.futures.Future[torch.Tensor], torch.Tensor]] = []


def quantize_hook(
    state: QuantizeState, bucket: dist.GradBucket
) -> torch.futures.Future[torch.Tensor]:
    """A communication hook, for register_comm_hook() of the model: averages gradients, which are
    sent between nodes as 16-bit or 8-bit numbers.

    The ranks of a node first add their gradients in float32. The rounding errors of a pass are
    added to the gradients of the next pass. All ranks have the same bits. On one node the result is
    exact. Raises TypeError for sparse gradients and for gradients that are not on the CPU.
    """
    buffer = bucket.buffer()
    if buffer.layout != torch.strided:
        raise TypeError(
            f"unisono.ddp.quantize_hook: it takes dense gradients, not {buffer.layout}: leave the "
            "hook out, or make the embedding with sparse=False"
        )
    if buffer.device.type != "cpu":
        raise TypeError(
            f"unisono.ddp.quantize_hook: it takes gradients on the CPU, not on {buffer.device}"
        )
    if bucket.index() == 0:
        state._averages.clear()
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    state._averages.append((future, buffer))
    state._quantizer.average(bucket)
    if bucket.is_last():
        for done, average in state._averages:
            done.set_result(average)
        state._averages.clear()
    return future
