"""How ranks meet: the scheme unisono://, and what torch's own schemes leave out."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

from ._C import _elastic_launcher, _launcher_name, _meet_ranks

_Places = Iterator[tuple[dist.Store, int, int]]


def _number(url: str, name: str, values: dict[str, list[str]]) -> int:
    """Takes the number out of a query; -1 where it is not given."""
    text = values.pop(name, ["-1"])[0]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'init_method "{url}": {name}={text} is no whole number') from None


def _method(parts: SplitResult) -> str:
    """The core's name of the scheme that the parts of a unisono:// stand for."""
    if parts.scheme != "unisono":
        return parts.scheme
    if parts.netloc:
        return "tcp"
    return "file" if parts.path else "env"


def _meet(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> _Places:
    """The place that the core finds."""
    parts = urlsplit(url)
    values = parse_qs(parts.query, keep_blank_values=True)
    rank, world_size = (_number(url, name, values) for name in ("rank", "world_size"))
    rest = "&".join(item for item in parts.query.split("&") if item.partition("=")[0] in values)
    method = f"{_method(parts)}://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
    meeting = _meet_ranks(method=method, rank=rank, world_size=world_size, timeout=timeout)
    # What the other ranks need lives as long as the meeting: until torch has made the group.
    yield meeting.store, meeting.rank, meeting.world_size
    raise RuntimeError(f"ranks can't meet again at {url}: call init_process_group() again")


# Whether unisono.spawn() started this process.
is_spawned = False


def _is_store_plain() -> bool:
    """Whether torchrun or unisono.spawn() serves the store, to torch's own clients."""
    has_agent_store = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    return has_agent_store and (is_spawned or _elastic_launcher() == "torchrun")


def _unisono(url: str, **options: Any) -> _Places:
    parts = urlsplit(url)
    if _method(parts) == "env" and _is_store_plain():
        yield from _TORCHS["env"](url, **options)
    else:
        yield from _meet(url, **options)


def _names(url: str) -> set[str]:
    return set(parse_qs(urlsplit(url).query, keep_blank_values=True))


def _has_env_all(url: str) -> bool:
    """Whether variables of torchrun's say all; or no launcher has set others."""
    given = _names(url) | {name.lower() for name, value in os.environ.items() if value}
    is_complete = {"rank", "world_size", "master_addr", "master_port"} <= given
    return is_complete or not _launcher_name()


def _is_at_host(url: str) -> bool:
    """Whether rank 0 is at the address, and no multicast group."""
    try:
        return not ipaddress.ip_address(urlsplit(url).hostname or "").is_multicast
    except ValueError:
        return True


def _has_file_rank(url: str) -> bool:
    names = _names(url)
    return "rank" in names and "group_name" not in names


_TORCHS = dict(_rendezvous_handlers)
_SUFFICES = {"env": _has_env_all, "tcp": _is_at_host, "file": _has_file_rank}


def _extended(scheme: str, suffices: Callable[[str], bool]) -> Callable[..., _Places]:
    """torch's own way, where that suffices, and the core's elsewhere."""

    def handler(url: str, **options: Any) -> _Places:
        yield from (_TORCHS[scheme] if suffices(url) else _meet)(url, **options)

    return handler


def register() -> None:
    """Makes these ways known to torch; once."""
    for scheme, suffices in _SUFFICES.items():
        _rendezvous_handlers[scheme] = _extended(scheme, suffices)
    register_rendezvous_handler("unisono", _unisono)
