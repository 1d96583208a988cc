"""What the scripts of the benchmarks share: where a result was measured, and tables."""

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent


def cpu_model():
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit():
    git = ["git", "-C", str(SOURCE), "describe", "--always", "--dirty", "--exclude", "*"]
    done = subprocess.run(git, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def describe_machine(load_before):
    """Where and when, in two lines; `load_before` is the load average before the measurement."""
    cores = len(os.sched_getaffinity(0))
    return (
        f"{cpu_model()}, {cores} cores, load {load_before:.1f} at the start\n"
        f"commit {commit()}, {datetime.date.today()}"
    )


def has_gloo(python):
    check = "import torch.distributed as d; raise SystemExit(not d.is_gloo_available())"
    return bool(python) and subprocess.run([python, "-c", check], check=False).returncode == 0


def check_modules(bench, python, *names):
    """Ends `bench` unless that Python has these modules."""
    check = (
        "import importlib.util, sys\n"
        "print(*(name for name in sys.argv[1:] if not importlib.util.find_spec(name)))"
    )
    command = [python, "-c", check, *names]
    missing = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    if missing:
        sys.exit(f"{bench}: {python} lacks {', '.join(missing)}: run `make test-deps`")


def output_of(bench, command, timeout_s, **variables):
    """What the program prints, with one thread per rank; ends `bench` where it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **variables}
    done = subprocess.run(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    if done.returncode != 0:
        sys.exit(f"{bench}: {' '.join(command)} ended with status {done.returncode}")
    return done.stdout


def json_of(bench, command, timeout_s, **variables):
    """The JSON that the program prints; ends `bench` where it fails, or prints something else."""
    text = output_of(bench, command, timeout_s, **variables)
    try:
        return json.loads(text)
    except ValueError:
        sys.exit(f"{bench}: {' '.join(command)} printed {text!r}, not JSON")


def print_table(columns, rows):
    """A table of Markdown."""
    widths = [max(len(r[i]) for r in [columns, *rows]) for i in range(len(columns))]
    for cells in [columns, ["-" * width for width in widths], *rows]:
        line = " | ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        print(f"| {line} |")
