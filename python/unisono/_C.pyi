from datetime import timedelta

import torch.distributed as dist

def _hold_waiting_threads() -> None: ...

class Options(dist.Backend.Options):
    """What may be chosen for a group: pg_options of init_process_group() and new_group()."""

    algorithm: str

    def __init__(self, *, timeout: timedelta = ..., algorithm: str = "auto") -> None: ...

class Backend(dist.Backend):
    """A process group; torch.distributed makes it."""

    @property
    def options(self) -> Options: ...
    def __init__(
        self,
        *,
        store: dist.Store,
        rank: int,
        size: int,
        timeout: timedelta,
        options: Options,
        parent_ranks: list[int] = [],
        parent: Backend | None = None,
    ) -> None: ...
    def _give_up(self) -> None: ...
    def _leave(self) -> None: ...
