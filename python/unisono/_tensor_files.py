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
    """The state as tensors in CPU memory; numbers become tensors of no axes."""
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
    """The arguments, and what is wrong with them: the other ranks wait, and are told, too."""
    try:
        return operator.index(step), _tensors(who, state), _tensors(who, own or {}), None
    except Exception as error:
        problem = str(error)
        if not problem.startswith(who):
            problem = f"{who}: {type(error).__name__}: {problem}"
        return 0, {}, {}, problem


def save_state(state: _State, path: str | os.PathLike[str]) -> None:
    """Writes a state_dict into one safetensors file, which is there whole or not at all.

    A call of this process alone. Raises RuntimeError for tensors that the format lacks,
    DistBackendError where the file can't be written.
    """
    _save_state(os.fsdecode(path), _tensors("save_state", state))


def load_state(
    path: str | os.PathLike[str], group: dist.ProcessGroup | None = None
) -> dict[str, torch.Tensor]:
    """All tensors of a safetensors file, of the folder of a checkpoint, this library's or of
    torch.distributed.checkpoint's HuggingFaceStorageWriter, or of latest_checkpoint() in a folder.

    Any number of ranks load what any number has saved. With a group it is a collective operation:
    all ranks load the checkpoint that rank 0 finds. Without a group it is a call of this process
    alone. Raises DistBackendError, which names the file, for what is missing, truncated or damaged.
    """
    return _load_state(os.fsdecode(path), _optional_group("load_state", group))


def latest_checkpoint(
    folder: str | os.PathLike[str],
    allow_older: bool = True,
    group: dist.ProcessGroup | None = None,
) -> str | None:
    """The folder of the latest checkpoint that a CheckpointSaver has saved there; None before.

    If the latest one is not whole, the newest whole one is taken, and a line of the log names
    those that were passed over and why; with `allow_older=False` this is an error. Reads all bytes
    of the checkpoint. With a group it is a collective operation: the ranks share that work, and
    all return the same folder. Raises DistBackendError if there are checkpoints and none is whole.
    """
    backend = _optional_group("latest_checkpoint", group)
    return _latest_checkpoint(os.fsdecode(folder), allow_older, backend)


def _optional_group(who: str, group: dist.ProcessGroup | None) -> Backend | None:
    """The group's backend; None for a call of this process alone."""
    return None if group is None else _group_of(who, group)


class CheckpointSaver:
    """Saves checkpoints of a training in one folder, which all ranks reach: a file per rank, in a
    folder that appears whole or not at all. PyTorch's HuggingFaceStorageReader loads them, too.

    Making one, and its members, are collective operations of the group, on a group of their own.
    Close it, or use it in a `with`, before the group is destroyed.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        keep_last: int = 3,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """`keep_last`: so many checkpoints up to the new one's step stay; 0: all."""
        backend = _group_of("CheckpointSaver", group)
        if backend is None:
            raise RuntimeError(
                "CheckpointSaver: there is no process group; call unisono.init_process_group() "
                "first, or save_state() for one process"
            )
        self._saver = _CheckpointSaver(backend, os.fsdecode(folder), keep_last)

    def save(self, step: int, state: _State, own: _State | None = None) -> str:
        """Saves `state`, which all ranks have alike and share the work of, and each rank's `own`,
        whose names differ between ranks. Returns the checkpoint's folder when it is on the disk.

        Raises RuntimeError or DistBackendError, on every rank the same, which names the rank and
        the reason; then the checkpoints before are as they were, and the group is of use.
        """
        return self._saver.save(*_to_save("CheckpointSaver.save", step, state, own))

    def save_async(self, step: int, state: _State, own: _State | None = None) -> None:
        """Copies the tensors and returns; a thread saves them. Waits for the one before first, and
        raises what it failed with. What can't be saved, as it is no tensor, it raises at once."""
        self._saver.save_async(*_to_save("CheckpointSaver.save_async", step, state, own))

    def wait(self) -> None:
        """Returns when what save_async() began is on the disk, or raises why it is not."""
        self._saver.wait()

    def close(self) -> None:
        """wait(), for the last time. A second call does nothing."""
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
