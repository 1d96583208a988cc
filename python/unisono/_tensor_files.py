"""Tensors in safetensors files: one file, or checkpoints of a file per rank."""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping
from types import TracebackType

import torch
import torch.distributed as dist

from ._C import Backend, _CheckpointSaver, _latest_checkpoint, _load_state, _save_state
from ._checkpoint import _group_of

_State = Mapping[str, "torch.Tensor | int | float"]


def _tensors(who: str, state: _State) -> dict[str, torch.Tensor]:
    """Returns the state as tensors in CPU memory; numbers become tensors without axes."""
    tensors = {}
    for name, value in state.items():
        if isinstance(value, (bool, int, float)):
            kind = torch.float64 if isinstance(value, float) else None
            value = torch.tensor(value, dtype=kind)
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise TypeError(
                f"{who}: {name!r} is a {type(value).__name__}; a state has tensors and numbers "
                "under names. get_state_dict() of torch.distributed.checkpoint.state_dict makes "
                "one of an optimizer, too, with "
                "StateDictOptions(flatten_optimizer_state_dict=True)"
            )
        if hasattr(value, "full_tensor"):
            raise TypeError(
                f"{who}: {name!r} is split between ranks (a DTensor); pass its full_tensor(), or "
                "save it by torch.distributed.checkpoint"
            )
        tensors[name] = value.detach().cpu()
    return tensors


def _to_save(
    who: str, step: int, state: _State, own: _State | None
) -> tuple[int, dict[str, torch.Tensor], dict[str, torch.Tensor], str | None]:
    """Returns the arguments, and their problem, which is shared with the waiting other ranks."""
    try:
        return operator.index(step), _tensors(who, state), _tensors(who, own or {}), None
    except Exception as error:
        problem = str(error)
        if not problem.startswith(who):
            problem = f"{who}: {type(error).__name__}: {problem}"
        return 0, {}, {}, problem


def save_state(state: _State, path: str | os.PathLike[str]) -> None:
    """Writes a state_dict atomically into one safetensors file.

    A local call. Raises RuntimeError for tensors that the format does not support,
    DistBackendError if the file can't be written.
    """
    _save_state(os.fsdecode(path), _tensors("save_state", state))


def load_state(
    path: str | os.PathLike[str], group: dist.ProcessGroup | None = None
) -> dict[str, torch.Tensor]:
    """Returns all tensors of a safetensors file, of a checkpoint's folder, written by this library
    or by torch.distributed.checkpoint's HuggingFaceStorageWriter, or of latest_checkpoint() in a
    folder.

    The number of ranks may differ from the one that saved. With a group it is a collective
    operation: all ranks load the checkpoint that rank 0 finds. Without a group it is a local call.
    Raises DistBackendError, which names the file, if it is missing, truncated or damaged.
    """
    return _load_state(os.fsdecode(path), _optional_group("load_state", group))


def latest_checkpoint(
    folder: str | os.PathLike[str],
    allow_older: bool = True,
    group: dist.ProcessGroup | None = None,
) -> str | None:
    """Returns the folder of a CheckpointSaver's latest checkpoint in `folder`; None without one.

    If the latest one is incomplete, returns the newest complete one, and logs the skipped ones with
    the reasons; with `allow_older=False` this is an error. Reads all bytes of the checkpoint. With
    a group it is a collective operation: the ranks share the work, and all return the same folder.
    Raises DistBackendError if there are checkpoints and none is complete.
    """
    backend = _optional_group("latest_checkpoint", group)
    return _latest_checkpoint(os.fsdecode(folder), allow_older, backend)


def _optional_group(who: str, group: dist.ProcessGroup | None) -> Backend | None:
    """Returns the group's backend; None for a local call."""
    return None if group is None else _group_of(who, group)


class CheckpointSaver:
    """Saves checkpoints of a training in one folder that all ranks can access: a file per rank, in
    a folder that is created atomically. PyTorch's HuggingFaceStorageReader can load them.

    The constructor and the members are collective operations of the group, on a group of their own.
    Close it, or use it in a `with`, before the group is destroyed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep_last: int = 3,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """`keep_last`: number of checkpoints to keep, up to the new one's step; 0: all."""
        backend = _group_of("CheckpointSaver", group)
        if backend is None:
            raise RuntimeError(
                "CheckpointSaver: there is no process group; call unisono.init_process_group() "
                "first, or save_state() for one process"
            )
        self._saver = _CheckpointSaver(backend, os.fsdecode(folder), keep_last)

    def save(self, step: int, state: _State, own: _State | None = None) -> str:
        """Saves `state`, which must be equal on all ranks and is written in parts by all of them,
        and each rank's `own`, whose names differ between ranks. Returns the checkpoint's folder
        when it is on the disk.

        Raises the same RuntimeError or DistBackendError on every rank, with the rank and the
        reason; earlier checkpoints are then unchanged, and the group stays usable.
        """
        return self._saver.save(*_to_save("CheckpointSaver.save", step, state, own))

    def save_async(self, step: int, state: _State, own: _State | None = None) -> None:
        """Copies the tensors and returns; a thread saves them. First waits for the previous save,
        and raises its error. Raises at once for values that are not tensors."""
        self._saver.save_async(*_to_save("CheckpointSaver.save_async", step, state, own))

    def wait(self) -> None:
        """Waits until the checkpoint of save_async() is on the disk, or raises its error."""
        self._saver.wait()

    def close(self) -> None:
        """Calls wait() a last time. A second call does nothing."""
        self._saver.close()

    def __enter__(self) -> CheckpointSaver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
