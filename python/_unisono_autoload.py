"""Makes the backend "unisono" known where a program names it without importing unisono.

torch loads it by the package's entry points: register() at the end of `import torch`, and
import_unisono(), from torch 2.14 on, where a backend is asked for that it does not know.
"""

from __future__ import annotations

import importlib
from typing import Any


def import_unisono() -> None:
    """Registers the backend and the ways to meet."""
    importlib.import_module("unisono")


def register() -> None:
    """Has unisono imported as soon as its name comes up.

    That is before the ranks meet. What torch does of itself comes later, and they would not meet in
    unisono's ways.
    """
    import torch.distributed as dist

    if not dist.is_available():
        return
    plain_new = dist.Backend.__new__

    # Every name of a backend comes through here, also that of several: "cpu:unisono,cuda:nccl".
    def new(cls: type, name: Any) -> str:
        value = plain_new(cls, name)
        if any(part.rpartition(":")[2] == "unisono" for part in value.split(",")):
            import_unisono()
        return value

    dist.Backend.__new__ = staticmethod(new)
    dist.is_unisono_available = lambda: True  # What dist.is_backend_available() asks.
