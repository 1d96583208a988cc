"""Maps names of torch.distributed's backends to Unisono, as set by UNISONO_BACKEND_ALIAS.

Imports neither torch nor unisono: torch is patched after a program imported it, and unisono is
imported when a group is created.
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
    """Returns the names in "gloo=unisono,nccl=unisono", by the rules of the program `unisono`."""
    pairs = [pair.partition("=") for pair in text.split(",")]
    names = {name for name, _, _ in pairs}
    is_good = all(
        target == "unisono" and name != "unisono" and re.fullmatch("[a-z0-9_]+", name)
        for name, _, target in pairs
    )
    if not is_good or len(names) < len(pairs):
        raise ValueError(
            f'{VARIABLE}="{text}" is not a list of backends that select unisono, each once, '
            "like gloo=unisono,nccl=unisono"
        )
    return names


def import_unisono() -> None:
    """Registers the backend: from the package on Python's path, else from this file's package."""
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
    """Enables the one operation that requires the name Gloo for groups of Unisono."""
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
    """Patches torch.distributed after its import."""
    c10d = dist.distributed_c10d
    plain_new = dist.Backend.__new__
    plain_set_pg_timeout = c10d._set_pg_timeout
    ours = {"unisono", *names}

    # All backend names pass through this function, including lists such as "cpu:gloo,cuda:nccl".
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

    # torch's function searches for the classes of Gloo and NCCL, and warns if neither is found.
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
    """Finds torch.distributed by the other finders, and patches it after its import."""

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
    """Installs a finder that patches torch.distributed when a program imports it."""
    sys.meta_path.insert(0, _Finder())
