"""Compares our schedules with those of torch.distributed.pipelining, each in the other's tables.

python compare_schedules.py PATH_OF_UNISONO
"""

import csv
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from torch.distributed.pipelining import schedules as torchs

UNISONO = sys.argv.pop(1)
SIZES = [(1, 4), (2, 4), (2, 6), (3, 6), (3, 7), (4, 8), (4, 12), (5, 11), (8, 16)]
NAMES = [
    *("fill_drain", "1f1b", "interleaved_1f1b", "zb_h1"),
    *("v_min", "v_half", "v_zb", "dual_pipe_v"),
]


def plan(*words):
    return subprocess.run(
        [UNISONO, "plan", "pipeline", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
    )


def bare(kind, ranks, chunks, stages_per_rank=1):
    """A schedule of torch's as far as it is needed without processes and modules."""
    schedule = kind.__new__(kind)
    schedule.pp_group_size = ranks
    schedule._num_stages = schedule.num_stages = ranks * stages_per_rank
    schedule.n_local_stages = stages_per_rank
    schedule._n_microbatches = chunks
    schedule.rank = 0
    return schedule


def in_rounds(kind, ranks, chunks, stages_per_rank):
    schedule = bare(kind, ranks, chunks, stages_per_rank)
    schedule.number_of_rounds = max(1, chunks // ranks)
    schedule.microbatches_per_round = chunks // schedule.number_of_rounds
    return by_rank(schedule) if chunks % schedule.number_of_rounds == 0 else None


def by_rank(schedule):
    schedule.pipeline_order = {
        rank: schedule._calculate_single_rank_operations(rank)
        for rank in range(schedule.pp_group_size)
    }
    return schedule


def of_one_stage(kind, ranks, chunks):
    schedule = bare(kind, ranks, chunks)
    schedule.pipeline_order = schedule._get_pipeline_order()
    return schedule


def one_f_one_b(ranks, chunks):
    """The last rank's table counts its forwards from 1; torch runs them from 0."""
    schedule = of_one_stage(torchs.Schedule1F1B, ranks, chunks)
    last = schedule.pipeline_order[ranks - 1]
    forwards = [place for place, a in enumerate(last) if a and a.computation_type == torchs.F]
    counted_from = last[forwards[0]].microbatch_index
    for place in forwards:
        chunk = last[place].microbatch_index - counted_from
        last[place] = last[place]._replace(microbatch_index=chunk)
    return schedule


def dual_pipe_v(ranks, chunks):
    enough = chunks >= 2 * ranks
    return by_rank(bare(torchs.ScheduleDualPipeV, ranks, chunks, 2)) if enough else None


SAME = [
    (["fill_drain"], lambda p, m: of_one_stage(torchs.ScheduleGPipe, p, m)),
    (["1f1b"], one_f_one_b),
    (
        ["interleaved_1f1b", "--stages-per-rank", 2],
        lambda p, m: in_rounds(torchs.ScheduleInterleaved1F1B, p, m, 2),
    ),
    (
        ["interleaved_1f1b", "--stages-per-rank", 3],
        lambda p, m: in_rounds(torchs.ScheduleInterleaved1F1B, p, m, 3),
    ),
    (["zb_h1"], lambda p, m: in_rounds(torchs.ScheduleInterleavedZeroBubble, p, m, 1)),
    (["dual_pipe_v"], dual_pipe_v),
]


def rows(path):
    with path.open(newline="") as file:
        return list(csv.reader(file))


class Tables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.theirs = Path(folder.name) / "theirs.csv"
        self.ours = Path(folder.name) / "ours.csv"

    def write_ours(self, *words):
        done = plan(*words, "--csv", self.ours)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_orders_equal_torchs(self):
        """What torch writes is read here, written again, and equals what is made here."""
        n_compared = {}
        for words, make in SAME:
            for ranks, chunks in SIZES:
                schedule = make(ranks, chunks)
                if schedule is None:
                    continue
                with self.subTest(schedule=words, ranks=ranks, chunks=chunks):
                    torchs.PipelineScheduleMulti._dump_csv(schedule, self.theirs)
                    self.write_ours("--table", self.theirs)
                    theirs = rows(self.ours)
                    self.write_ours("--schedule", *words, "--ranks", ranks, "--chunks", chunks)
                    self.assertEqual(rows(self.ours), theirs)
                    n_compared[words[0]] = n_compared.get(words[0], 0) + 1
        self.assertEqual(len(n_compared), 5)
        self.assertGreaterEqual(min(n_compared.values()), 5)

    def test_torch_accepts_ours(self):
        for name in NAMES:
            for ranks, chunks in SIZES:
                with self.subTest(schedule=name, ranks=ranks, chunks=chunks):
                    self.write_ours("--schedule", name, "--ranks", ranks, "--chunks", chunks)
                    table = rows(self.ours)
                    actions = {
                        rank: [torchs._Action.from_str(cell) for cell in row]
                        for rank, row in enumerate(table)
                    }
                    n_stages = 1 + max(a.stage_index for row in actions.values() for a in row)
                    placement = torchs._validate_schedule(actions, ranks, n_stages, chunks)
                    with_messages = torchs._add_send_recv(
                        actions, stage_to_rank=placement.__getitem__, num_stages=n_stages
                    )
                    n_computed = [
                        sum(action.is_compute_op for action in row)
                        for row in with_messages.values()
                    ]
                    self.assertEqual(n_computed, [len(row) for row in table])

    def test_zero_bubble_v_of_torch_is_no_faster(self):
        """Where all actions take the same time; neither can be below p - 1 of them."""
        for ranks, chunks in ((2, 8), (4, 8), (4, 16), (8, 24)):
            with self.subTest(ranks=ranks, chunks=chunks):
                schedule = by_rank(bare(torchs.ScheduleZBVZeroBubble, ranks, chunks, 2))
                torchs.PipelineScheduleMulti._dump_csv(schedule, self.theirs)
                of_theirs = plan("--table", self.theirs, "--forward-ms", 1)
                of_ours = plan("--schedule", "v_zb", "--ranks", ranks, "--chunks", chunks)
                self.assertLessEqual(self.step_ms(of_ours), self.step_ms(of_theirs))

    def step_ms(self, done):
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        line = next(line for line in done.stdout.splitlines() if line.startswith("step "))
        return float(line.split()[1])


if __name__ == "__main__":
    unittest.main()
