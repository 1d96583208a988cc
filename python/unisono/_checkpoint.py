"""Checkpoints shared by all ranks, and checks that ranks hold equal values."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any, BinaryIO

import torch
import torch.distributed as dist

from ._backend import _backend_of, _describe_backend
from ._C import (
    Backend,
    _AtomicFile,
    _check_same_tensors,
    _check_same_value,
    _format_hash,
    _hash_bytes,
    _share_outcome,
)

_CHUNK_BYTES = 1 << 24
_Tensors = torch.nn.Module | Mapping[str, torch.Tensor] | Iterable[torch.Tensor]


class _Writer(io.RawIOBase):
    """An _AtomicFile as a file object for torch.save()."""

    def __init__(self, file: _AtomicFile) -> None:
        self._file = file

    def write(self, data: Any) -> int:
        self._file.write(data)
        return memoryview(data).nbytes


def _group_of(who: str, group: dist.ProcessGroup | None) -> Backend | None:
    """Returns the group's backend, or None if this process is a job by itself."""
    if group is None and not (dist.is_available() and dist.is_initialized()):
        return None
    if group is dist.GroupMember.NON_GROUP_MEMBER:
        raise RuntimeError(f"{who}: this rank is not in the group; call it on the group's ranks")
    if group is None:
        group = dist.group.WORLD
    backend = _backend_of(group)
    if backend is None:
        raise RuntimeError(
            f"{who}: the group's backend is {_describe_backend(group)}; pass one whose backend "
            'for CPU tensors is "unisono", as unisono.init_process_group() and '
            'new_group(backend="unisono") make'
        )
    return backend


def _share(backend: Backend | None, problem: str | None) -> None:
    """Raises RuntimeError on every rank if rank 0 passes a problem."""
    if backend is not None:
        _share_outcome(backend, problem)
    elif problem is not None:
        raise RuntimeError(problem)


def _save_on_rank_0(
    backend: Backend | None, path: str | os.PathLike[str], save: Callable[[str], None]
) -> None:
    """Calls save(path) on rank 0, and raises its error on every rank."""
    if backend is None or backend.rank() == 0:
        try:
            save(os.fsdecode(path))
        except BaseException as error:
            # The other ranks wait for the outcome, so every exception must be shared.
            text = str(error) or type(error).__name__
            is_named = path is not None and str(path) in text
            try:
                _share(backend, text if is_named else f"save {path}: {text}")
            except RuntimeError as shared:
                if isinstance(error, Exception):
                    raise shared from error
            raise
    _share(backend, None)


def save_checkpoint(
    obj: object, path: str | os.PathLike[str], group: dist.ProcessGroup | None = None
) -> None:
    """Writes rank 0's object by torch.save(), atomically: the file replaces an older one only when
    it is complete and on the disk.

    A collective operation of the group, or of this process alone without a group; `obj` of other
    ranks is ignored. The file exists when the call returns. Raises the same RuntimeError on every
    rank, with the path and the reason; then no partial file is left. Other ranks wait for rank 0 at
    most until the group's timeout.
    """

    def save(path: str) -> None:
        with _AtomicFile(path) as file:
            torch.save(obj, _Writer(file))
            file.commit()

    _save_on_rank_0(_group_of("save_checkpoint", group), path, save)


def check_can_save(path: str | os.PathLike[str], group: dist.ProcessGroup | None = None) -> None:
    """Raises an error on every rank if save_checkpoint() would fail: the folder is missing or can't
    be written. A collective operation; leaves no file."""

    def try_it(path: str) -> None:
        with _AtomicFile(path):
            pass

    _save_on_rank_0(_group_of("check_can_save", group), path, try_it)


def _describe(file: BinaryIO) -> str:
    """Returns the size of the file and its hash, as text."""
    n_bytes, value = 0, 0
    while chunk := file.read(_CHUNK_BYTES):
        n_bytes += len(chunk)
        value = _hash_bytes(chunk, value)
    file.seek(0)
    return f"{n_bytes} bytes with hash {_format_hash(value)}"


def load_checkpoint(
    path: str | os.PathLike[str],
    map_location: Any = None,
    weights_only: bool = True,
    group: dist.ProcessGroup | None = None,
) -> Any:
    """Loads the file by torch.load() on every rank, and checks that all ranks read the same bytes.

    A collective operation of the group, or of this process alone without a group. Raises
    DistBackendError on every rank if files differ, or if some ranks can't read theirs, with their
    names; the error of open() if all ranks fail alike. Reads the file twice: for the hash, then to
    load it.
    """
    backend = _group_of("load_checkpoint", group)
    if backend is None:
        return torch.load(os.fsdecode(path), map_location=map_location, weights_only=weights_only)
    problem = None
    with contextlib.ExitStack() as stack:
        try:
            # An open file keeps its contents even if the path is replaced in the meantime.
            file = stack.enter_context(open(os.fsdecode(path), "rb"))
            value = _describe(file)
        except (OSError, TypeError) as error:
            # The other ranks wait for the comparison, so this rank takes part with the failure as
            # its value.
            reason = getattr(error, "strerror", None) or error
            problem, value = error, f"unreadable ({reason})"
        _check_same_value(backend, f"load_checkpoint {path}", "the file", value)
        if problem is not None:
            raise problem
        return torch.load(file, map_location=map_location, weights_only=weights_only)


def _named_tensors(tensors: _Tensors) -> list[tuple[str, torch.Tensor]]:
    if isinstance(tensors, torch.nn.Module):
        return [*tensors.named_parameters(), *tensors.named_buffers()]
    if isinstance(tensors, torch.Tensor):
        tensors = [tensors]
    if not isinstance(tensors, Mapping):
        tensors = dict(enumerate(tensors))
    named = [(str(name), tensor) for name, tensor in tensors.items()]
    for name, tensor in named:
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(
                f"check_consistent: {name!r} is a {type(tensor).__name__}; only tensors are "
                "compared"
            )
    return named


def check_consistent(tensors: _Tensors, group: dist.ProcessGroup | None = None) -> None:
    """Checks that all ranks have the same parameters and buffers, or tensors, bit for bit.

    If not, raises DistBackendError on every rank, with the name, types, shapes and hashes of the
    first tensor that differs from rank 0's, and the two ranks. A collective operation of the group;
    a single process always passes. Takes a module, tensors under names, or tensors, all dense and
    in CPU memory. Other values raise TypeError or RuntimeError if all ranks pass them, and count as
    a difference otherwise. Cost: a pass over the bytes, and 16 bytes sent.
    """
    who = "check_consistent"
    backend = _group_of(who, group)
    try:
        named = _named_tensors(tensors)
    except Exception as error:
        # The other ranks wait for the comparison, so this rank takes part with the failure as its
        # value.
        if backend is not None:
            reason = str(error).removeprefix(f"{who}: ") or type(error).__name__
            _check_same_value(backend, who, "no tensors", reason)
        raise
    if backend is not None:
        _check_same_tensors(backend, who, named)
