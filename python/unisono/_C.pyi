from collections.abc import Callable
from datetime import timedelta
from types import TracebackType

import torch
import torch.distributed as dist

def _hold_waiting_threads() -> None: ...

class Options(dist.Backend.Options):
    """Options of a group: pg_options of init_process_group() and new_group()."""

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
    @staticmethod
    def _leave_all(backends: list[Backend], has_failed: bool) -> None: ...

class _GlooBackend(dist.Backend):
    """PyTorch's Gloo, for tensors of any strides."""

    def __init__(self, gloo: dist.Backend) -> None: ...
    @property
    def wrapped_pg(self) -> dist.Backend: ...

def _empty(backend: Backend, sizes: list[int], dtype: torch.dtype) -> torch.Tensor: ...
def _is_symmetric(backend: Backend, tensor: torch.Tensor) -> bool: ...
def _move_buckets(
    backend: Backend, reducer: dist.Reducer, leaves_gradients_there: bool
) -> tuple[int, int, str]: ...

class _Quantizer:
    def __init__(self, backend: Backend, type: str) -> None: ...
    def average(self, bucket: dist.GradBucket) -> None: ...

class Store(dist.Store):
    """A key-value service for the rendezvous of processes, like TCPStore. If there is a secret,
    clients and server authenticate each other with it.

    `secret` defaults to the job's secret (UNISONO_SECRET, UNISONO_SECRET_FILE); on loopback none is
    required. With secret="" the store also works with TCPStore's servers and clients. `tls`
    defaults to UNISONO_TLS. The master serves until its process has released the store.

    Raises DistStoreError if a wait times out, with the names of the missing keys, DistNetworkError
    if the store can't be reached or its connection is lost, and ValueError. Thread-safe.
    """

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    def __init__(
        self,
        host_name: str,
        port: int,
        world_size: int | None = None,
        is_master: bool = False,
        timeout: timedelta = ...,
        wait_for_workers: bool = True,
        *,
        secret: str | None = None,
        tls: bool | None = None,
    ) -> None: ...
    def watch(self, key: str, on_change: Callable[[bytes | None, bytes | None], object]) -> Watch:
        """Calls the function with the key's value before and after each change, on a thread of the
        store, until the watch is closed or garbage-collected."""

class Watch:
    """A key under observation."""

    def close(self) -> None:
        """Ends the calls: none runs after close() returns. The function must not call it."""

    def __enter__(self) -> Watch: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

class SlurmJob:
    """The Slurm variables of a task and its step, under the names of `idr_torch`."""

    @property
    def hostnames(self) -> list[str]:
        """Nodes of the step; the first task's node comes first."""

    @property
    def size(self) -> int:
        """Number of tasks."""

    @property
    def rank(self) -> int: ...
    @property
    def local_rank(self) -> int:
        """Rank of the task among the tasks of its node."""

    @property
    def cpus_per_task(self) -> int:
        """Requested cores per task; without a request, this node's cores divided by its tasks."""

    @property
    def ntasks_per_node(self) -> int:
        """Requested tasks per node; else the tasks of this node; else tasks divided by nodes."""

    @property
    def tasks_of_nodes(self) -> list[int]:
        """Tasks of each node, in the order of `hostnames`; empty if Slurm does not set them."""

    @property
    def gpu_ids(self) -> list[int]:
        """GPUs of the job on this node; empty without GPUs."""

    @property
    def master_addr(self) -> str:
        """Address of the rendezvous: `MASTER_ADDR`, or the first node."""

    @property
    def master_port(self) -> int:
        """Port of the rendezvous: `MASTER_PORT`, or one derived from the job and step numbers."""

def slurm_job() -> SlurmJob:
    """Reads the variables of a task of srun, or of a batch script. Raises ValueError with the names
    of all missing or invalid variables."""

class _RankMeeting:
    """Rank and store of a process. Keeps alive what other ranks need during the rendezvous."""

    @property
    def store(self) -> Store: ...
    @property
    def rank(self) -> int: ...
    @property
    def world_size(self) -> int: ...

def _meet_ranks(method: str, rank: int, world_size: int, timeout: timedelta) -> _RankMeeting: ...
def _launcher_name() -> str: ...
def _describe_host_fault(host: str) -> str: ...
def _elastic_launcher() -> str: ...
def _has_agent_store() -> bool: ...
def _close_watches() -> None: ...

class _AtomicFile:
    """A file that is written completely or not at all. For `with`: at its end the file is
    discarded unless commit() was called."""

    def __init__(self, path: str) -> None: ...
    def __enter__(self) -> _AtomicFile: ...
    def __exit__(self, *exception: object) -> None: ...
    def write(self, bytes: bytes | memoryview) -> None: ...
    def commit(self) -> None: ...

def _hash_bytes(bytes: bytes | memoryview, seed: int) -> int: ...
def _format_hash(hash: int) -> str: ...
def _share_outcome(backend: Backend, problem: str | None) -> None: ...
def _check_same_value(backend: Backend, who: str, what: str, value: str) -> None: ...
def _check_same_tensors(
    backend: Backend, who: str, tensors: list[tuple[str, torch.Tensor]]
) -> None: ...
def _save_state(path: str, state: dict[str, torch.Tensor]) -> None: ...
def _load_state(path: str, backend: Backend | None) -> dict[str, torch.Tensor]: ...
def _latest_checkpoint(folder: str, allow_older: bool, backend: Backend | None) -> str | None: ...

class _CheckpointSaver:
    def __init__(self, backend: Backend, folder: str, keep_last: int) -> None: ...
    def save(
        self,
        step: int,
        state: dict[str, torch.Tensor],
        own: dict[str, torch.Tensor],
        problem: str | None,
    ) -> str: ...
    def save_async(
        self,
        step: int,
        state: dict[str, torch.Tensor],
        own: dict[str, torch.Tensor],
        problem: str | None,
    ) -> None: ...
    def wait(self) -> None: ...
    def close(self) -> None: ...

class _Progress:
    def __init__(
        self,
        *,
        rank: int,
        world_size: int,
        total: int,
        start: int,
        unit: str,
        title: str,
        format: str,
        interval: timedelta,
        fd: int,
        json_file: str,
        tensorboard: str,
        record_every: int,
        all_ranks: bool,
    ) -> None: ...
    def step(self, values: list[tuple[str, float]], n_samples: int) -> None: ...
    def record(self, values: list[tuple[str, float]]) -> None: ...
    def set_title(self, title: str) -> None: ...
    def print(self, line: str) -> None: ...
    def clear(self) -> None: ...
    def n_steps(self) -> int: ...
    def finish(self) -> None: ...

class _SamplerState:
    epoch: int
    n_consumed: int
    dataset_size: int
    seed: int
    shuffle: bool

    def __init__(
        self, *, epoch: int, n_consumed: int, dataset_size: int, seed: int, shuffle: bool
    ) -> None: ...

class _ResumableSampler:
    def __init__(
        self,
        dataset_size: int,
        num_replicas: int,
        rank: int,
        shuffle: bool,
        seed: int,
        drop_last: bool,
    ) -> None: ...
    @property
    def epoch(self) -> int: ...
    @property
    def state(self) -> _SamplerState: ...
    def load_state(self, state: _SamplerState) -> None: ...
    def set_epoch(self, epoch: int) -> None: ...
    def advance(self, n_samples: int) -> None: ...
    def indices(self) -> list[int]: ...
    def num_samples(self) -> int: ...
