"""Our event files, read by TensorBoard: python test_tensorboard.py PATH_OF_WRITE_EVENTS"""

import math
import resource
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
    from tensorboard.compat.proto.event_pb2 import Event
except ImportError as error:
    print(f"skipped: {error}; `make test-deps` installs the package tensorboard")
    sys.exit(77)

WRITE_EVENTS = sys.argv.pop(1)


def start_small():
    """The process's files can grow to 400 bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))


class EventFiles(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name) / "runs" / "first"

    def write(self, *words, **options):
        done = subprocess.run(
            [WRITE_EVENTS, self.folder, *map(str, words)],
            capture_output=True,
            text=True,
            timeout=60,
            **options,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stderr

    def accumulated(self):
        events = EventAccumulator(str(self.folder), size_guidance={"scalars": 0, "tensors": 0})
        return events.Reload()

    def steps(self, tag="loss"):
        return [event.step for event in self.accumulated().Scalars(tag)]

    def only_file(self):
        (path,) = self.folder.glob("events.out.tfevents.*")
        return path

    def records(self, path):
        return list(RawEventFileLoader(str(path)).Load())

    def steps_of(self, path):
        return [Event.FromString(record).step for record in self.records(path)]

    def test_scalars(self):
        before = time.time()
        warning = self.write("train", 0, 4)
        self.assertEqual(warning, "[unisono rank 0] warning: loss is NaN at step 3\n")
        events = self.accumulated()
        self.assertEqual(set(events.Tags()["scalars"]), {"loss", "größe/norm", "accuracy"})
        loss = events.Scalars("loss")
        self.assertEqual([event.step for event in loss], [1, 2, 3, 4])
        self.assertEqual([event.value for event in loss[:2]], [1, 0.5])
        self.assertTrue(math.isnan(loss[2].value))
        self.assertEqual(loss[3].value, 0.25)
        self.assertEqual({e.value for e in events.Scalars("größe/norm")}, {-math.inf})
        (accuracy,) = events.Scalars("accuracy")
        self.assertEqual((accuracy.step, accuracy.value), (4, 0.75))
        self.assertTrue(before - 1 < loss[0].wall_time <= loss[3].wall_time < time.time() + 1)
        self.assertEqual(len(self.records(self.only_file())), 6)

    def test_text_and_two_writers_of_one_folder(self):
        self.write("text")
        self.assertEqual(len(list(self.folder.iterdir())), 2)
        events = self.accumulated()
        self.assertEqual(events.SummaryMetadata("report").plugin_data.plugin_name, "text")
        (text,) = events.Tensors("report")
        self.assertEqual(text.step, 7)
        self.assertEqual(text.tensor_proto.string_val[0], b"| a | b |\n|---|---|\n")
        self.assertEqual(self.steps("x"), [2**63 - 1])

    def test_a_training_that_goes_on_replaces_what_came_after_its_checkpoint(self):
        self.write("train", 0, 12)
        time.sleep(1)  # The name of a file has its second.
        self.write("train", 10, 15)
        self.assertEqual(self.steps(), list(range(1, 16)))

    def test_a_file_that_ends_anywhere_is_read_up_to_there(self):
        self.write("train", 0, 3)
        path = self.only_file()
        whole = path.read_bytes()
        self.assertEqual(len(self.records(path)), 5)
        ends = [0]
        while ends[-1] < len(whole):
            ends.append(ends[-1] + 16 + int.from_bytes(whole[ends[-1] : ends[-1] + 8], "little"))
        for n_bytes in range(len(whole) + 1):
            path.write_bytes(whole[:n_bytes])
            n_whole = sum(end <= n_bytes for end in ends[1:])
            self.assertEqual(len(self.records(path)), n_whole, f"{n_bytes} bytes")

    def test_killed_in_the_middle_of_a_write(self):
        for moment in range(10):
            with self.subTest(moment=moment):
                child = subprocess.Popen([WRITE_EVENTS, self.folder, "forever"])
                deadline = time.monotonic() + 60
                pattern = f"events.out.tfevents.*.{child.pid}.*"
                while not any(p.stat().st_size > 1_000_000 for p in self.folder.glob(pattern)):
                    self.assertLess(time.monotonic(), deadline)
                    self.assertIsNone(child.poll())
                time.sleep(moment / 1000)
                child.kill()
                child.wait()
                (path,) = self.folder.glob(pattern)
                steps = self.steps_of(path)
                self.assertEqual(steps, list(range(len(steps))))
                self.assertGreater(len(steps), 2)
                path.unlink()

    def test_on_a_full_disk_what_fits_can_be_read(self):
        message = self.write("train", 0, 20, preexec_fn=start_small)
        self.assertIn("; the training goes on, and what can't be written is left out", message)
        self.assertEqual(message.count("File too large"), 1)
        steps = self.steps()
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        self.assertTrue(3 <= len(steps) < 20, steps)
        # A record that did not fit leaves no bytes behind the last complete record.
        path = self.only_file()
        size = path.stat().st_size
        records = self.records(path)
        self.assertEqual(len(records), len(steps) + 1)
        self.assertEqual(size, sum(len(record) + 16 for record in records))


if __name__ == "__main__":
    unittest.main()
