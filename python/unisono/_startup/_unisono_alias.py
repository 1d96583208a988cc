"""Makes names of torch.distributed's backends mean Unisono, as UNISONO_BACKEND_ALIAS says.

Imports neither torch nor unisono: the first is changed after a program imported it, the second
comes when a group is made.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

VARIABLE = "UNISONO_BACKEND_ALIAS"
PACKAGE = Path(__file__).resolve().parents[1]


def parse(text: str) -> set[str]:
    """The names in "gloo=unisono,nccl=unisono". The program `unisono` has the same rules."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = {name for name, _, _ in pairs}
    is_good = all(
        target == "unisono" and name != "unisono" and re.fullmatch("[a-z0-9_]+", name)
        for name, _, target in pairs
    )
    if not is_good or len(names) < len(pairs):
        raise ValueError(
            f'{VARIABLE}="{text}" is not names of backends, each once, that are to mean unisono, '
            "like gloo=unisono,nccl=unisono"
        )
    return names


def import_unisono() -> None:
    """Registers the backend: the package on Python's path, else the one this file belongs to."""
    if "unisono" in sys.modules:
        return
    found = importlib.util.find_spec("unisono")
    if found is not None and found.origin is not None:  # No mere folder of that name.
        importlib.import_module("unisono")
        return
    spec = importlib.util.spec_from_file_location("unisono", PACKAGE / "__init__.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["unisono"] = module
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        del sys.modules["unisono"]
        raise ImportError(
            f"{VARIABLE} is set, but there is no unisono for {sys.executable}, and the one in "
            f"{PACKAGE} was built for another Python ({error}): install unisono there"
        ) from error


def give_monitored_barrier(dist: ModuleType) -> None:
    """Lets groups of ours have the one operation that asks for Gloo's name."""
    c10d = dist.distributed_c10d
    plain = dist.monitored_barrier

    def monitored_barrier(
        group: Any = None, timeout: Any = None, wait_all_ranks: bool = False
    ) -> None:
        if c10d._rank_not_in_group(group) or dist.get_backend(group) != "unisono":
            return plain(group, timeout, wait_all_ranks)
        limit = c10d.default_pg_timeout if timeout is None else timeout
        (group or dist.group.WORLD).monitored_barrier(limit, wait_all_ranks=wait_all_ranks)

    dist.monitored_barrier = monitored_barrier


def patch(dist: ModuleType, names: set[str]) -> None:
    """Changes torch.distributed, which has just been imported."""
    c10d = dist.distributed_c10d
    plain_new = dist.Backend.__new__
    plain_set_pg_timeout = c10d._set_pg_timeout
    ours = {"unisono", *names}

    # Every name of a backend comes through here, also that of several: "cpu:gloo,cuda:nccl".
    def new(cls: type, name: str) -> str:
        value = plain_new(cls, name)
        if value == dist.Backend.UNDEFINED:
            device = c10d.torch._C._get_accelerator().type
            default = dist.Backend.default_device_backend_map.get(device)
            value = default if default in names else value
        if ours.issuperset(part.rpartition(":")[2] for part in value.split(",")):
            import_unisono()
            return "unisono"
        return value

    # It looks for the classes of Gloo and NCCL, and warns where it finds neither.
    def set_pg_timeout(timeout: Any, group: Any = None) -> None:
        if c10d._rank_not_in_group(group) or dist.get_backend(group) != "unisono":
            return plain_set_pg_timeout(timeout, group)
        cpu = c10d.torch.device("cpu")
        (group or dist.group.WORLD)._get_backend(cpu).set_timeout(timeout)

    dist.Backend.__new__ = staticmethod(new)
    c10d._set_pg_timeout = set_pg_timeout
    for name in names:
        setattr(dist, f"is_{name}_available", lambda: True)
    if "gloo" in names:
        give_monitored_barrier(dist)


class _Finder:
    """Finds torch.distributed as all others do, and has it patched once it is there."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch.distributed":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.is_available():
                patch(module, parse(os.environ[VARIABLE]))

        spec.loader.exec_module = exec_module
        return spec


def patch_when_imported() -> None:
    """Has torch.distributed patched as soon as a program has imported it."""
    sys.meta_path.insert(0, _Finder())
