#!/usr/bin/env python3
"""Measures imdb_layout in all layouts: tasks x parts x batch x chunks.

    bench/parallel/imdb_grid/grid.py --ranks 2 4 --output grid
    bench/parallel/imdb_grid/grid.py --ranks 8 --output grid --sbatch -- --nlayers 8 --d-model 512

Writes grid.csv and, for each number of ranks, throughput_N_ranks.svg into the folder. Impossible
cells are blank in the table, with the reason. A second start measures the cells that are missing or
have failed. Arguments after -- go to the program. In a job of Slurm, srun starts the ranks; with
--sbatch the grid submits itself as such a job.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import figure
from cells import (
    FAILED,
    Cell,
    Limits,
    all_cells,
    cell_of,
    divisors,
    is_failed,
    read_rows,
    row_of,
    why_impossible,
    write_rows,
)

BIN = Path(__file__).resolve().parents[3] / "build" / "release" / "bin"
# Seconds that a launcher needs to end its ranks; `unisono run` allows 30 s.
GRACE_S = 40


def parse_arguments(words: list[str]) -> argparse.Namespace:
    own, more = words, []
    if "--" in words:
        own, more = words[: words.index("--")], words[words.index("--") + 1 :]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def add_numbers(name: str, default: list[int] | None, what: str) -> None:
        parser.add_argument(name, type=int, nargs="+", default=default, help=what)

    add_numbers("--ranks", [2], "numbers of ranks to compare layouts of")
    add_numbers("--tasks", None, "replicas; by default all that divide the ranks")
    add_numbers("--parts", None, "ranks of a replica; by default likewise")
    add_numbers("--batch", [32, 64, 128, 256], "reviews of each replica's step")
    add_numbers("--chunks", [1, 2, 4, 8, 16, 32], "parts of a batch")
    parser.add_argument("--schedule", default="1f1b")
    parser.add_argument("--steps", type=int, default=5, help="of each cell")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for each cell")
    parser.add_argument("--output", type=Path, default=Path("grid"), help="folder of the results")
    parser.add_argument("--program", default=str(BIN / "imdb_layout"))
    parser.add_argument("--launcher", default=str(BIN / "unisono"))
    parser.add_argument("--sbatch", action="store_true", help="submit this as a job of Slurm")
    parser.add_argument(
        "--sbatch-options", default="", help="as in --sbatch-options='-p gpu -t 60'"
    )
    options = parser.parse_args(own)
    options.ranks = tuple(options.ranks)
    options.more = more
    counts = ("ranks", "tasks", "parts", "batch", "chunks")
    if any(number < 1 for name in counts for number in getattr(options, name) or [1]):
        parser.error(f"{', '.join('--' + name for name in counts)} are numbers from 1")
    return options


def layers_of(more: list[str]) -> int:
    """Returns the program's --nlayers, or its default."""
    reader = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    reader.add_argument("--nlayers", type=int, default=2)
    return reader.parse_known_args(more)[0].nlayers


def submit(options: argparse.Namespace, words: list[str]) -> int:
    """Submits the same command as a job whose batch script is the grid itself."""
    again = [word for word in words if word != "--sbatch"]
    script = Path(__file__).resolve()
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
    """Asks the launcher to end its ranks: an srun that is killed at once leaves them running."""
    process.terminate()
    try:
        process.communicate(timeout=GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def measure(options: argparse.Namespace, cell: Cell) -> tuple[dict | None, str]:
    """Returns the result, or None and the reason."""
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
        return None, f"{FAILED}took longer than {options.timeout:g} s"
    except BaseException:
        end(process)
        raise
    if process.returncode == 0 and result.exists():
        measured = json.loads(result.read_text(encoding="utf-8"))
        result.unlink()
        return measured, ""
    said = [line for line in errors.splitlines() if line.strip()]
    return None, f"{FAILED}status {process.returncode}: {said[0] if said else 'no message'}"


def describe(row: dict[str, str]) -> str:
    if row["reason"]:
        return row["reason"]
    bubble = 100 * float(row["bubble"])
    return f"{float(row['reviews_per_s']):.0f} reviews/s, bubble {bubble:.0f} %"


def run(options: argparse.Namespace) -> list[dict[str, str]]:
    """Measures the missing cells, and writes each into the file at once. Returns all rows."""
    options.output.mkdir(parents=True, exist_ok=True)
    path = options.output / "grid.csv"
    settings = shlex.join(["--schedule", options.schedule, *options.more])
    known = {(cell_of(row), row["settings"]): row for row in read_rows(path) if not is_failed(row)}
    limits = Limits(options.ranks, layers_of(options.more), options.schedule)
    tasks = options.tasks or divisors(options.ranks)
    parts = options.parts or divisors(options.ranks)
    cells = all_cells(tasks, parts, options.batch, options.chunks)
    for cell in cells:
        reason = why_impossible(cell, limits)
        if reason:
            known[cell, settings] = row_of(cell, settings, None, reason)
    missing = [cell for cell in cells if (cell, settings) not in known]
    print(f"{len(cells)} cells, {len(missing)} of them to measure")
    start = time.monotonic()
    for number, cell in enumerate(missing):
        row = row_of(cell, settings, *measure(options, cell))
        known[cell, settings] = row
        write_rows(path, list(known.values()))
        left = (time.monotonic() - start) / (number + 1) * (len(missing) - number - 1)
        print(
            f"{number + 1}/{len(missing)}  {cell}: {describe(row)}; {left:.0f} s left", flush=True
        )
    write_rows(path, list(known.values()))
    return [known[cell, settings] for cell in cells]


def draw(options: argparse.Namespace, rows: list[dict[str, str]]) -> None:
    for ranks in options.ranks:
        throughputs = {
            cell_of(row): float(row["reviews_per_s"])
            for row in rows
            if not row["reason"] and row["ranks"] == str(ranks)
        }
        if throughputs:
            title = (
                f"IMDB transformer on {ranks} rank{'' if ranks == 1 else 's'}, {options.schedule}"
            )
            path = options.output / f"throughput_{ranks}_ranks.svg"
            path.write_text(figure.draw(title, throughputs), encoding="utf-8")
            print(f"wrote {path}")


def main() -> int:
    words = sys.argv[1:]
    options = parse_arguments(words)
    if options.sbatch:
        return submit(options, words)
    try:
        rows = run(options)
        draw(options, rows)
    except ValueError as error:
        sys.exit(f"grid: {error}")
    except KeyboardInterrupt:
        print("stopped; the same command goes on", file=sys.stderr)
        return 130
    failed = [row for row in rows if is_failed(row)]
    if failed:
        print(f"{len(failed)} cells failed; the same command tries them again", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
