"""How the grid starts itself and its cells: by `unisono run`, or as a job of Slurm."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import table
from cells import Cell

# How long a launcher that is to end may take to end its ranks, to which it gives 30 s.
GRACE_S = 40


def submit(options: argparse.Namespace, words: list[str]) -> int:
    """The same command as a job: the grid itself is its batch script."""
    again = [word for word in words if word != "--sbatch"]
    script = Path(__file__).resolve().with_name("grid.py")
    options.output.mkdir(parents=True, exist_ok=True)
    command = [
        *("sbatch", "--job-name=grid", f"--ntasks={max(options.ranks)}"),
        f"--output={options.output}/slurm-%j.out",
        *shlex.split(options.sbatch_options),
        f"--wrap={shlex.join([sys.executable, str(script), *again])}",
    ]
    try:
        return subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.exit("grid: there is no sbatch here: --sbatch is for machines with Slurm")


def launch(options: argparse.Namespace, ranks: int) -> list[str]:
    if "SLURM_JOB_ID" in os.environ:
        return ["srun", f"--ntasks={ranks}"]
    return [options.launcher, "run", "-n", str(ranks)]


def end(process: subprocess.Popen[str]) -> None:
    """Asks the launcher to end its ranks: srun, killed at once, would leave them running."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(options: argparse.Namespace, cell: Cell) -> tuple[dict | None, str]:
    """The result, or why there is none."""
    result = options.output / "cell.json"
    result.unlink(missing_ok=True)
    command = [
        *launch(options, cell.ranks),
        *(options.program, "--parts", str(cell.parts), "--batch-size", str(cell.batch)),
        *("--chunks", str(cell.chunks), "--schedule", options.schedule),
        *("--steps", str(options.steps), "--json", str(result), *options.more),
    ]
    try:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    except OSError as error:
        sys.exit(f"grid: can't start {command[0]}: {error.strerror}")
    try:
        _, errors = process.communicate(timeout=options.timeout)
    except subprocess.TimeoutExpired:
        end(process)
        return None, f"{table.FAILED}took longer than {options.timeout:g} s"
    except BaseException:
        end(process)
        raise
    if process.returncode == 0 and result.exists():
        measured = json.loads(result.read_text(encoding="utf-8"))
        result.unlink()
        return measured, ""
    said = [line for line in errors.splitlines() if line.strip()]
    return None, f"{table.FAILED}status {process.returncode}: {said[0] if said else 'no message'}"
