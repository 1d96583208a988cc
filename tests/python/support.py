"""Runs a function on the ranks of a job, in forked processes, and brings back what they return."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import unisono  # noqa: F401 - registers the backend, once for all ranks

_FORK = multiprocessing.get_context("fork")


def init(rank: int, world_size: int, folder: str, **options: Any) -> None:
    """The default group of backend "unisono", which meets in a file of the folder."""
    options.setdefault("timeout", timedelta(seconds=60))
    dist.init_process_group(
        "unisono",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=world_size,
        **options,
    )


def init_again(
    rank: int,
    world_size: int,
    name: str,
    environment: dict[str, str] | None = None,
    **options: Any,
) -> None:
    """On a rank: another default group instead, which meets in a folder of that name."""
    dist.destroy_process_group()
    os.environ.update(environment or {})
    folder = Path.cwd() / name
    folder.mkdir(exist_ok=True)
    init(rank, world_size, str(folder), **options)


def _wait_for(file: Path, limit: float) -> None:
    end = time.monotonic() + limit
    while not file.exists():
        if time.monotonic() > end:
            raise AssertionError(f"no rank has come to '{file.name}' in {limit} s")
        time.sleep(0.005)  # Files come without a call.


@dataclass
class Job:
    """Ranks that have been started."""

    folder: tempfile.TemporaryDirectory
    processes: list[Any] = field(default_factory=list)
    pipes: list[Any] = field(default_factory=list)

    def kill(self, rank: int, number: int = signal.SIGKILL) -> None:
        os.kill(self.processes[rank].pid, number)

    def wait_for(self, name: str, limit: float = 30) -> None:
        """Until a rank has told `name`."""
        _wait_for(Path(self.folder.name) / name, limit)

    def results(self, limit: float = 60) -> list[Any]:
        """What the ranks returned; None for one that was killed. Raises what a rank raised."""
        end = time.monotonic() + limit
        results, problems = [], []
        for rank, pipe in enumerate(self.pipes):
            try:
                if pipe.poll(max(0.0, end - time.monotonic())):
                    result, problem = pipe.recv()
                    results.append(result)
                    if problem:
                        problems.append(f"rank {rank}:\n{problem}")
                else:
                    problems.append(f"rank {rank} has not ended within {limit} s")
            except EOFError:
                results.append(None)
        for process in self.processes:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                problems.append(f"process {process.pid} has not ended within {limit} s")
                process.kill()
                process.join()
        self.folder.cleanup()
        if problems:
            raise AssertionError("\n".join(problems))
        return results


def _rank_main(body, rank, world_size, folder, pipe, arguments, options) -> None:
    torch.set_num_threads(1)
    try:
        os.chdir(folder)
        init(rank, world_size, folder, **options)
        result = body(rank, world_size, *arguments)
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send((result, None))
    except BaseException:
        pipe.send((None, traceback.format_exc()))


def start(body: Callable[..., Any], world_size: int, *arguments: Any, **options: Any) -> Job:
    """Starts body(rank, world_size, *arguments) on each rank, in the job's folder; `options` are
    those of init_process_group()."""
    job = Job(tempfile.TemporaryDirectory(prefix="unisono-python-"))
    for rank in range(world_size):
        ours, theirs = _FORK.Pipe(duplex=False)
        process = _FORK.Process(
            target=_rank_main,
            args=(body, rank, world_size, job.folder.name, theirs, arguments, options),
        )
        process.start()
        theirs.close()
        job.processes.append(process)
        job.pipes.append(ours)
    return job


def run(body: Callable[..., Any], world_size: int, *arguments: Any, **options: Any) -> list[Any]:
    """What body(rank, world_size, *arguments) returns on each rank."""
    return start(body, world_size, *arguments, **options).results()


def tell(name: str, text: str = "") -> None:
    """On a rank: lets Job.wait_for() and hear() go on."""
    unfinished = Path(f"{name}.new")
    unfinished.write_text(text)
    unfinished.rename(name)


def hear(name: str, limit: float = 30) -> str:
    """On a rank: the text that another has told, as soon as it has."""
    _wait_for(Path(name), limit)
    return Path(name).read_text()


def message_of(kind: type[Exception], call: Callable[[], object]) -> str:
    """What the call's exception says, which is of just that type."""
    try:
        call()
    except Exception as error:
        assert type(error) is kind, repr(error)
        return str(error)
    raise AssertionError("nothing was raised")
