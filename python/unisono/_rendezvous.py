"""Rendezvous: the scheme unisono://, and additions to torch's own schemes."""

from __future__ import annotations

import inspect
import ipaddress
import os
import re
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, parse_qs, parse_qsl, urlsplit

import torch.distributed as dist
from torch.distributed.constants import default_pg_timeout
from torch.distributed.rendezvous import _rendezvous_handlers, register_rendezvous_handler

from ._C import (
    _describe_host_fault,
    _elastic_launcher,
    _has_agent_store,
    _launcher_name,
    _meet_ranks,
)

_Places = Iterator[tuple[dist.Store, int, int]]

# Port of the store that unisono.spawn() serves, if unisono.spawn() started this process.
spawned_port: str | None = None


def _number(url: str, name: str, values: dict[str, list[str]]) -> int:
    """Removes a number from a query and returns it; -1 if it is not given."""
    text = values.pop(name, ["-1"])[0]
    try:
        return int(text)
    except ValueError:
        raise ValueError(f'init_method "{url}": {name}={text} is not a whole number') from None


def _method(parts: SplitResult) -> str:
    """Returns the core's name of the scheme of a URL unisono://."""
    if parts.scheme != "unisono":
        return parts.scheme
    if parts.netloc:
        return "tcp"
    return "file" if parts.path else "env"


def _meet(url: str, timeout: timedelta = default_pg_timeout, **_: Any) -> _Places:
    """Returns store, rank and world size, as found by the core."""
    parts = urlsplit(url)
    values = parse_qs(parts.query, keep_blank_values=True)
    rank, world_size = (_number(url, name, values) for name in ("rank", "world_size"))
    values.pop("use_libuv", None)  # How torch would serve its store.
    if _method(parts) == "env" and spawned_port not in (None, os.environ.get("MASTER_PORT")):
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"  # The core looks at that.
    rest = "&".join(item for item in parts.query.split("&") if item.partition("=")[0] in values)
    method = f"{_method(parts)}://{parts.netloc}{parts.path}" + (f"?{rest}" if rest else "")
    meeting = _meet_ranks(method=method, rank=rank, world_size=world_size, timeout=timeout)
    # The meeting keeps alive the objects that other ranks need, until torch has created the group.
    yield meeting.store, meeting.rank, meeting.world_size
    raise RuntimeError(f"ranks can't meet again at {url}: call init_process_group() again")


def _torch_expects_one() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _has_launchers_store() -> bool:
    """Returns whether spawn(), `unisono run` or torchrun serves the store at MASTER_PORT."""
    if spawned_port is None:
        return _has_agent_store()
    return _torch_expects_one() and os.environ.get("MASTER_PORT") == spawned_port


def _is_store_plain() -> bool:
    """Returns whether torchrun or unisono.spawn() serves the store to torch's own clients."""
    is_torchruns = _elastic_launcher() == "torchrun"
    return _has_launchers_store() and (spawned_port is not None or is_torchruns)


def _left_to_launcher(url: str) -> str:
    """Removes rank 0 of 0, as MPI programs pass it, from the URL if a launcher sets the rank."""
    query = dict(parse_qsl(urlsplit(url).query))
    is_known = os.environ.get("WORLD_SIZE") or _launcher_name()
    if (query.get("rank"), query.get("world_size")) != ("0", "0") or not is_known:
        return url
    return url.partition("?")[0]


def _unisono(url: str, **options: Any) -> _Places:
    parts = urlsplit(url)
    if _method(parts) == "env" and _is_store_plain():
        yield from _TORCHS["env"](_left_to_launcher(url), **options)
    else:
        yield from _meet(url, **options)


def _names(url: str) -> set[str]:
    return set(parse_qs(urlsplit(url).query, keep_blank_values=True))


def _is_env_complete(url: str) -> bool:
    """Returns whether torchrun's variables are complete."""
    given = _names(url) | {name.lower() for name, value in os.environ.items() if value}
    return {"rank", "world_size", "master_addr", "master_port"} <= given


def _has_env_all(url: str) -> bool:
    """Returns whether torchrun's variables are complete, or no launcher has set others."""
    return _is_env_complete(url) or not _launcher_name()


def _is_at_host(url: str) -> bool:
    """Returns whether the address is rank 0's, not a multicast group."""
    try:
        return not ipaddress.ip_address(urlsplit(url).hostname or "").is_multicast
    except ValueError:
        return True


def _has_file_rank(url: str) -> bool:
    names = _names(url)
    return "rank" in names and "group_name" not in names


def _is_rank_below_world_size(url: str) -> bool:
    """Returns False for a rank outside the world; True also where torch reports the error."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    variables = os.environ if parts.scheme == "env" else {}
    try:
        rank, world_size = (
            int(query.get(name, variables.get(name.upper(), ""))) for name in ("rank", "world_size")
        )
    except ValueError:
        return True
    # torch passes -1 to request a store without a world size.
    return query.get("world_size") == "-1" or 0 <= rank < world_size


def _is_host_possible(url: str) -> bool:
    """Returns whether the host is valid; torch would try an invalid one until the timeout."""
    host = re.sub(r":\d*$", "", urlsplit(url).netloc) or os.environ.get("MASTER_ADDR")
    return host is None or not _describe_host_fault(host)


def _is_nobodys(url: str) -> bool:
    """Returns whether torch would wait for a launcher's store at the program's own address."""
    parts = urlsplit(url)
    is_elsewhere = parts.scheme == "tcp" and str(parts.port) != os.environ.get("MASTER_PORT")
    return _torch_expects_one() and (is_elsewhere or not _has_launchers_store())


_INIT = inspect.unwrap(dist.init_process_group).__code__


def _is_for_ours() -> bool:
    """Returns whether init_process_group() is creating a group of our backend, found in its frame:
    programs with other backends keep torch's own rendezvous."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not _INIT:
        frame = frame.f_back
    names = str(frame.f_locals.get("backend")).split(",") if frame else []
    return any(name.rpartition(":")[2] == "unisono" for name in names)


_TORCHS = dict(_rendezvous_handlers)
_SUFFICES = {"env": _has_env_all, "tcp": _is_at_host, "file": _has_file_rank}


def _extended(scheme: str, suffices: Callable[[str], bool]) -> Callable[..., _Places]:
    """Returns a handler: torch's own where that suffices, else the core's."""

    def handler(url: str, **options: Any) -> _Places:
        is_torchs = True
        if scheme != "file" and _is_for_ours():
            url = _left_to_launcher(url) if scheme == "env" else url
            is_torchs = _is_rank_below_world_size(url) and not _is_nobodys(url)
            is_torchs = is_torchs and _is_host_possible(url)
            # torch names only the first missing variable; the core names all.
            is_torchs = is_torchs and (scheme != "env" or _is_env_complete(url))
        is_torchs = is_torchs and suffices(url)
        yield from (_TORCHS[scheme] if is_torchs else _meet)(url, **options)

    return handler


def register() -> None:
    """Registers the handlers with torch. Called once."""
    for scheme, suffices in _SUFFICES.items():
        _rendezvous_handlers[scheme] = _extended(scheme, suffices)
    register_rendezvous_handler("unisono", _unisono)
