#!/usr/bin/env python3
"""Runs the tests that the torch wheel brings for its own backends on backend "unisono".

Every test of DistributedTest is run with the processes of a job; those that only MPI is asked to
pass on CPU (all_to_all) too. A test that fails is run again on Gloo: where Gloo passes it, or does
not come to it, this run fails, but for KNOWN.

--engine gloo: operations are those of PyTorch's Gloo, asked for by unisono.Options. --transport:
each rank is a node of its own, and they reach each other by that.
"""

from __future__ import annotations

import argparse
import collections
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

OURS = "unisono"
# Only backends that the torch wheel contains can pass these tests.
KNOWN = {
    "test_ddp_logging_data_cpu": "expects backend_name 'gloo' of what torch calls 'custom'",
}
# A lower number means that the suite skips more tests, not that the backend has improved.
MIN_EXECUTED = {2: 100, 3: 100, 4: 103}
# The classes that carry out the operations of groups.
CLASSES = {
    "native": "unisono._C.Backend",
    "gloo": "torch.distributed.distributed_c10d.ProcessGroupGloo",
}
LIMIT_SECONDS = 60


class Name(str):
    """A backend's name that the suite's gates also take for Gloo's."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


def prepare_environment(folder: Path, world_size: int) -> None:
    for name in ("barrier", "test_dir", "init_dir"):
        (folder / name).mkdir()
    # The suite does not delete its rendezvous files.
    tempfile.tempdir = str(folder)
    os.environ.update(
        BACKEND="gloo",  # Until the suite is imported.
        WORLD_SIZE=str(world_size),
        TEMP_DIR=str(folder),
        INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
        MASTER_ADDR="127.0.0.1",
        GLOO_SOCKET_IFNAME="lo",
        OMP_NUM_THREADS="1",
        DISTRIBUTED_TESTS_DEFAULT_TIMEOUT=str(LIMIT_SECONDS),
    )


def import_suite(engine: str):
    """The suite's module, with the gates of all_to_all and monitored_barrier open."""
    from torch.testing._internal import common_distributed, common_utils

    closed = common_utils.skip_but_pass_in_sandcastle_if

    def gate(condition, reason):
        return closed(condition and not reason.startswith("Only MPI supports"), reason)

    common_utils.skip_but_pass_in_sandcastle_if = gate
    from torch.testing._internal.distributed import distributed_test
    from unisono._startup._unisono_alias import give_monitored_barrier

    give_monitored_barrier(distributed_test.dist)
    for backends in common_distributed.DistTestCases.backend_feature.values():
        backends.add(OURS)
    # A profile shows Gloo's operations under Gloo's name, not under the name of the group's
    # backend.
    if engine == "native":
        distributed_test.PROFILING_SUPPORTED_BACKENDS.append(OURS)
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS.append(OURS)
    return distributed_test


def choose_engine(suite, name: str) -> None:
    """Has every group that says nothing of it use this engine."""
    import unisono

    def choosing(make):
        def make_group(*arguments, **options):
            backend = str(options.get("backend") or suite.BACKEND)
            if backend == OURS and options.get("pg_options") is None:
                options["pg_options"] = unisono.Options(engine=name)
            return make(*arguments, **options)

        return make_group

    suite.dist.init_process_group = choosing(suite.dist.init_process_group)
    suite.dist.new_group = choosing(suite.dist.new_group)


def choose_transport(suite, name: str) -> None:
    """Gives each rank a node of its own."""
    os.environ["UNISONO_TRANSPORT"] = name
    init = suite.dist.init_process_group

    def init_on_node(*arguments, **options):
        os.environ["UNISONO_NODE_ID"] = f"node{options['rank']}"
        return init(*arguments, **options)

    suite.dist.init_process_group = init_on_node


def note_backends(log: Path) -> None:
    """Writes the class of every backend that a group gets to the file, in forked ranks too."""
    from torch._C._distributed_c10d import ProcessGroup

    register = ProcessGroup._register_backend

    def noting(group, device, kind, backend=None):
        inner = getattr(backend, "wrapped_pg", backend)
        with log.open("a") as file:
            file.write(f"{type(inner).__module__}.{type(inner).__name__}\n")
        return register(group, device, kind, backend)

    ProcessGroup._register_backend = noting


def make_case(suite):
    import torch

    class TorchSuite(suite.TestDistBackend, suite.DistributedTest._DistTestBase):
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TorchSuite


class Outcomes(unittest.TestResult):
    """Prints each test's outcome, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.of: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.started = 0.0

    def startTest(self, test) -> None:
        super().startTest(test)
        self.started = time.monotonic()

    def note(self, test, outcome: str, reason: str = "") -> None:
        name = test._testMethodName
        self.of[name] = outcome
        self.reasons[name] = reason
        seconds = time.monotonic() - self.started
        if outcome != "skipped":
            print(f"{outcome:8} {seconds:6.1f} s  {name}", flush=True)

    def addSuccess(self, test) -> None:
        self.note(test, "passed")

    def addSkip(self, test, reason: str) -> None:
        self.note(test, "skipped", reason)

    def addError(self, test, err) -> None:
        self.note(test, "failed", str(err[1]))

    addFailure = addError

    def names(self, outcome: str) -> list[str]:
        return sorted(name for name, value in self.of.items() if value == outcome)


def run_tests(suite, case, names: list[str], backend: str) -> Outcomes:
    os.environ["BACKEND"] = backend
    suite.BACKEND = Name(backend)
    outcomes = Outcomes()
    unittest.TestSuite(case(name) for name in names).run(outcomes)
    return outcomes


def report(outcomes: Outcomes) -> None:
    print("\nskipped:")
    by_reason = collections.defaultdict(list)
    for name in outcomes.names("skipped"):
        by_reason[outcomes.reasons[name]].append(name)
    for reason, names in sorted(by_reason.items()):
        print(f"  {reason}: {', '.join(names)}")
    print("\nfailed:")
    for name in outcomes.names("failed"):
        print(f"  {name}: {KNOWN.get(name, outcomes.reasons[name])}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--world-size", type=int, required=True)
    parser.add_argument("--backend", default=OURS, help="gloo, to see what it passes")
    parser.add_argument("--engine", choices=CLASSES, default="native")
    parser.add_argument("--transport", choices=["tcp", "ucx"])
    parser.add_argument("names", nargs="*", help="tests; default: all")
    arguments = parser.parse_args()
    folder = tempfile.TemporaryDirectory(prefix="unisono-torch-suite-")
    prepare_environment(Path(folder.name), arguments.world_size)
    # Both imports come before the ranks are forked: optimizers need the first, and the second
    # registers the backend.
    import torch._dynamo  # noqa: F401

    import unisono  # noqa: F401

    suite = import_suite(arguments.engine)
    if arguments.engine != "native":
        choose_engine(suite, arguments.engine)
    if arguments.transport:
        choose_transport(suite, arguments.transport)
    attached = Path(folder.name) / "attached"
    attached.touch()
    note_backends(attached)
    case = make_case(suite)
    names = arguments.names or unittest.TestLoader().getTestCaseNames(case)
    outcomes = run_tests(suite, case, list(names), arguments.backend)
    report(outcomes)
    classes = collections.Counter(attached.read_text().split())

    failed = outcomes.names("failed")
    suspects = [name for name in failed if name not in KNOWN]
    problems = []
    if suspects and arguments.backend == OURS:
        print("\nthese on gloo:")
        gloo = run_tests(suite, case, suspects, "gloo")
        problems += [f"{name}: gloo passes it" for name in gloo.names("passed")]
        problems += [f"{name}: gloo skips it" for name in gloo.names("skipped")]
    n_executed = len(outcomes.names("passed")) + len(failed)
    if not arguments.names and n_executed < MIN_EXECUTED.get(arguments.world_size, 1):
        problems.append(f"only {n_executed} tests were executed")
    if arguments.backend == OURS and set(classes) != {CLASSES[arguments.engine]}:
        problems.append(f"other backends were attached: {dict(classes)}")

    print(f"\nbackends attached: {dict(classes)}")
    print(
        f"world size {arguments.world_size}: {len(outcomes.of)} collected, {n_executed} executed, "
        f"{len(outcomes.names('passed'))} passed, {len(failed)} failed"
    )
    for problem in problems:
        print(f"torch_suite: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
