"""Runs the programs of examples/ that follow a document's, and expects what the document says.

python test_programs.py FOLDER_OF_THE_PROGRAMS DATA [TEST...]

UNISONO_TEST_DATA_DIR names another folder of real data than DATA.
"""

import gzip
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAMS = Path(sys.argv.pop(1)).resolve()
DATA = Path(os.environ.get("UNISONO_TEST_DATA_DIR", sys.argv.pop(1)))
MAKE_LISTS = Path(__file__).parents[2] / "examples/09_speaker_identification/make_lists.py"
MNIST = "train-images-idx3-ubyte.gz"
CIFAR = "cifar10_jpeg_subset_{}.bin.gz"
SOUNDS = "fsdd_recordings.tar.gz"
RUN_TIMEOUT_S = 500
SKIPPED = 77
MNIST_LOSS = r"Rank  (\d) , epoch  (\d+) :  (\d+\.\d+)"
CIFAR_LOSS = r"Rank (\d), epoch (\d+): loss (\d+\.\d+)"
SPEAKER_LOSS = r"worker (\d) of \d, epoch (\d+): loss (\d+\.\d+), test accuracy .*%"
OURS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "UNISONO_")


def needs(name):
    return unittest.skipUnless(
        (DATA / name).exists(),
        f"{DATA / name} is not there; UNISONO_TEST_DATA_DIR can name its folder",
    )


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*words):
    """A run to its end, of a program and its arguments; launchers may stand before it."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(OURS)}
    command = [str(PROGRAMS / word) if (PROGRAMS / word).is_file() else word for word in words]
    return subprocess.run(
        command,
        env=environment | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_TIMEOUT_S,
        check=False,
    )


class Programs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="unisono-programs-")
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)

    def lines(self, *words):
        """What a program that succeeds prints; it says nothing on stderr."""
        done = run(*words)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout.splitlines()

    def check_error(self, message, *words, exit_code=1):
        """Its one line of an error."""
        done = run(*words)
        self.assertEqual(done.returncode, exit_code, done.stdout + done.stderr)
        self.assertIn(message, done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)

    def losses(self, lines, pattern, n_epochs, n_ranks=2):
        """The losses of each rank by a pattern of rank, epoch and loss; they fall."""
        found = [match.groups() for line in lines if (match := re.fullmatch(pattern, line))]
        self.assertEqual(len(found), n_ranks * n_epochs, lines)
        by_rank = []
        for rank in range(n_ranks):
            mine = [(int(epoch), float(loss)) for who, epoch, loss in found if int(who) == rank]
            self.assertEqual([epoch for epoch, _ in mine], list(range(n_epochs)), lines)
            by_rank.append([loss for _, loss in mine])
            self.assertLess(by_rank[-1][-1], by_rank[-1][0], lines)
        return by_rank

    def accuracy(self, lines):
        """Every rank's; they are equal."""
        found = set(re.findall(r"test accuracy (\d+\.\d+)%", "\n".join(lines)))
        self.assertEqual(len(found), 1, lines)
        return float(found.pop())

    def unpack_sounds(self, every=1):
        """And leaves every so many of them in the lists."""
        folder = self.folder / "sounds"
        command = [sys.executable, str(MAKE_LISTS), str(DATA / SOUNDS), str(folder)]
        subprocess.run(command, check=True, timeout=RUN_TIMEOUT_S, stdout=subprocess.DEVNULL)
        for part, count in (("train", 2700), ("test", 300)):
            file = folder / f"{part}_list.txt"
            lines = file.read_text().splitlines(keepends=True)
            self.assertEqual(len(lines), count)
            file.write_text("".join(lines[::every]))

    def check_steps(self, file, n_steps):
        """Of a program's JSON lines."""
        steps = [json.loads(line) for line in file.read_text().splitlines()]
        self.assertEqual([step["step"] for step in steps], list(range(1, n_steps + 1)))
        self.assertTrue(all(step["values"]["loss"] > 0 for step in steps))


class CommandLines(Programs):
    """What the programs' options have in common."""

    TRAININGS = ("mnist", "mnist_modelpath", "cifar10_ddp", "speaker_identification")
    ON_REVIEWS = ("imdb_transformer", "imdb_hybrid")

    def test_agree_and_may_have_underscores(self):
        words = ["--epochs=1", "--batch-size=2", "--batch_size=2"]
        words += ["--model-path=x", "--model_path=x"]
        for program in self.TRAININGS + self.ON_REVIEWS:
            for word in words:
                if (program, word[2:7]) == ("mnist_modelpath", "batch"):
                    continue  # it has a global batch
                if (program, word[2:7]) == ("speaker_identification", "model"):
                    continue  # it saves none
                with self.subTest(program=program, word=word):
                    done = run(program, word, "--help")
                    self.assertEqual(done.returncode, 0, done.stderr)

    def test_take_the_spellings_of_before(self):
        for words in (
            ("mnist", "--save=x"),
            ("mnist_modelpath", "--modelpath=x"),
            ("cifar10_ddp", "--num_epochs=1", "--save=x", "--local_rank=0"),
            ("speaker_identification", "--max_epoch=1", "--train_path=x", "--nDataLoaderThread=1"),
            ("imdb_transformer", "--d_model=8", "--n_head=2", "--model_path=x", "--load_model"),
        ):
            done = run(*words, "--help")
            self.assertEqual(done.returncode, 0, done.stderr)

    def test_name_the_option_that_is_meant(self):
        for program in (*self.TRAININGS, *self.ON_REVIEWS, "partitioned_mnist"):
            done = run(program, "--epoch", "3")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("there is no option --epoch; did you mean --epochs?", done.stderr)
        done = run("mnist", "--btach_size=3")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("--btach-size=3; did you mean --batch-size?", done.stderr)
        self.assertNotIn("mean", run("ring_all_reduce", "--unlike-all").stderr)

    def test_refuse_wrong_values(self):
        for program in (*self.TRAININGS, *self.ON_REVIEWS, "partitioned_mnist"):
            done = run(program, "--epochs", "none")
            self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
            self.assertIn("--epochs", done.stderr)
        self.assertEqual(run("ring_all_reduce", "--size", "0").returncode, 2)
        self.assertEqual(run("point_to_point", "backwards").returncode, 2)


class Messages(Programs):
    def of_rank(self, rank, lines):
        return [line for line in lines if re.match(rf"Rank +{rank}\b", line)]

    def test_blocking(self):
        lines = self.lines("point_to_point", "blocking")
        self.assertEqual(sorted(lines), [f"Rank  {rank}  has data  1.0" for rank in range(2)])

    def test_immediate(self):
        lines = self.lines("point_to_point", "immediate")
        for rank, word in ((0, "sending"), (1, "receiving")):
            self.assertEqual(
                self.of_rank(rank, lines),
                [f"Rank {rank} started {word}", f"Rank  {rank}  has data  1.0"],
            )

    def test_all_reduce(self):
        lines = self.lines("point_to_point", "all_reduce")
        self.assertEqual(sorted(lines), [f"Rank  {rank}  has data  2.0" for rank in range(2)])

    def test_all_three_and_no_other(self):
        lines = self.lines("point_to_point")
        self.assertEqual(len(lines), 8, lines)
        self.assertEqual(self.of_rank(1, lines)[-1], "Rank  1  has data  2.0")
        self.check_error(
            "no function scatter; there are blocking, immediate, all_reduce",
            "point_to_point",
            "scatter",
            exit_code=2,
        )


class Ring(Programs):
    PATTERN = re.compile(r"Rank (\d+) of (\d+): (.*): ([\d. ]+) in (\d+) steps, (\d+) bytes to(.*)")

    def rings(self, n_ranks, count, *words):
        """By rank: value, steps and bytes of both rings, each sent to the right neighbour alone."""
        results = {}
        for line in self.lines(*words, "--count", str(count)):
            rank, size, what, value, steps, n_bytes, to = self.PATTERN.fullmatch(line).groups()
            self.assertEqual(int(size), n_ranks)
            self.assertEqual(to, f" rank {(int(rank) + 1) % n_ranks}", line)
            results[what, int(rank)] = value, int(steps), int(n_bytes)
        self.assertEqual(len(results), 2 * n_ranks)
        for what in ("whole buffers", "chunks"):
            yield [results[what, rank] for rank in range(n_ranks)]

    def check(self, n_ranks, count, *words):
        total = str(n_ranks * (n_ranks + 1) // 2)
        whole, chunks = self.rings(n_ranks, count, *words)
        n_bytes = 4 * count
        self.assertEqual(whole, [(total, n_ranks - 1, (n_ranks - 1) * n_bytes)] * n_ranks)
        self.assertEqual({result[:2] for result in chunks}, {(total, 2 * (n_ranks - 1))})
        sent = [result[2] for result in chunks]
        self.assertEqual(sum(sent), 2 * (n_ranks - 1) * n_bytes)
        # Chunks differ by at most one element.
        self.assertLessEqual(max(sent), 2 * (n_ranks - 1) * 4 * -(-count // n_ranks))
        if count % n_ranks == 0:
            self.assertEqual(set(sent), {2 * (n_ranks - 1) * n_bytes // n_ranks})

    def test_sums_over_ranks_of_its_own(self):
        for n_ranks in (2, 3, 4):
            for count in (10, 12, 1):
                with self.subTest(n_ranks=n_ranks, count=count):
                    self.check(n_ranks, count, "ring_all_reduce", "--size", str(n_ranks))

    def test_sums_over_ranks_of_a_launcher(self):
        self.check(3, 100_001, "unisono", "run", "-n", "3", str(PROGRAMS / "ring_all_reduce"))


class Mnist(Programs):
    HASH = r"Rank  (\d) : test accuracy .*%, parameters ([0-9a-f]{16})"

    def train(self, n_images, *words):
        """Ten lines of each rank, and equal parameters."""
        steps = self.folder / "steps.json"
        options = ["--data", str(DATA), "--limit", str(n_images), "--json-file", str(steps)]
        lines = self.lines(*words, *options)
        losses = self.losses(lines, MNIST_LOSS, n_epochs=10)
        hashes = re.findall(self.HASH, "\n".join(lines))
        self.assertEqual({rank for rank, _ in hashes}, {"0", "1"})
        self.assertEqual(len({value for _, value in hashes}), 1, lines)
        self.check_steps(steps, 10 * -(-n_images // 128))
        return losses

    @needs(MNIST)
    def test_trains_by_itself_as_under_a_launcher(self):
        spawned = self.train(1280, "partitioned_mnist", "--size", "2")
        (self.folder / "steps.json").unlink()
        program = str(PROGRAMS / "partitioned_mnist")
        launched = self.train(1280, "unisono", "run", "-n", "2", program)
        self.assertEqual(launched, spawned)


class Cifar(Programs):
    @needs(CIFAR.format("train_10000"))
    def test_trains_alike_however_it_is_started(self):
        """Under each launcher and by itself: the same losses, from 320 images."""
        images = self.folder / "images.bin"
        with gzip.open(DATA / CIFAR.format("train_10000")) as file:
            images.write_bytes(file.read(320 * 3073))
        program = str(PROGRAMS / "cifar10_ddp")
        saved = self.folder / "model.pt"
        options = ["--train", str(images), "--test", str(images), "--num_epochs", "2"]
        options += ["--save", str(saved)]
        starts = {
            "run": ["unisono", "run", "-n", "2", program],
            "launch": ["unisono", "launch", "-n", "2", program],
            "launch, by the environment": ["unisono", "launch", "-n", "2", "--use-env", program],
            "spawn": [program, "--nprocs", "2"],
        }
        losses = {}
        for name, start in starts.items():
            lines = self.lines(*start, *options)
            losses[name] = self.losses(lines, CIFAR_LOSS, n_epochs=2)
            self.accuracy(lines)
            self.assertGreater(saved.stat().st_size, 4 * 66_570)
            self.assertEqual(losses[name], losses["run"], name)
            saved.unlink()

    def test_names_a_file_that_is_missing(self):
        self.check_error("/nowhere.bin", "cifar10_ddp", "--nprocs", "1", "--train", "/nowhere.bin")


class Speakers(Programs):
    def train(self, *options, n_workers=2):
        command = ["speaker_identification", "--train_path", str(self.folder / "sounds")]
        lines = self.lines(*command, "--max_epoch", "2", *options)
        return self.losses(lines, SPEAKER_LOSS, 2, n_workers), lines

    @needs(SOUNDS)
    def test_says_how_it_is_set_up(self):
        self.unpack_sounds(every=6)
        workers = ["--distributed", "--nprocs", "2"]
        losses, lines = self.train(*workers, "--syncBN")
        self.assertEqual(lines.count("----syncBN----"), 2)
        models = [line for line in lines if line.startswith("Loaded")]
        self.assertEqual(sorted(models), [f"Loaded the model on CPU {gpu}" for gpu in range(2)])

        other, lines = self.train(*workers, "--port", str(free_port()))
        self.assertEqual(lines.count("----syncBN----"), 0)
        self.assertNotEqual(other, losses)

        _, lines = self.train("--gpu", "3", "--nDataLoaderThread", "0", n_workers=1)
        self.assertEqual(lines[0], "Loaded the model on CPU 3")

    def test_names_the_list_that_is_missing(self):
        self.check_error("train_list.txt", "speaker_identification", "--train_path", "/nowhere")


class Accuracy(Programs):
    """Of whole trainings, as the guide states it."""

    @needs(MNIST)
    def test_of_partitioned_mnist(self):
        lines = self.lines("partitioned_mnist", "--size", "2", "--data", str(DATA))
        for losses in self.losses(lines, MNIST_LOSS, n_epochs=10):
            self.assertEqual(losses, sorted(losses, reverse=True), "it falls in every epoch")
        self.assertGreaterEqual(self.accuracy(lines), 97)

    @needs(CIFAR.format("train_10000"))
    def test_of_cifar10_ddp(self):
        files = [str(DATA / CIFAR.format(part)) for part in ("train_10000", "test_2000")]
        lines = self.lines("cifar10_ddp", "--nprocs", "2", "--train", files[0], "--test", files[1])
        self.losses(lines, CIFAR_LOSS, n_epochs=10)
        self.assertGreaterEqual(self.accuracy(lines), 57)

    @needs(SOUNDS)
    def test_of_speaker_identification(self):
        self.unpack_sounds()
        options = ["--distributed", "--nprocs", "2", "--syncBN"]
        sounds = str(self.folder / "sounds")
        lines = self.lines("speaker_identification", *options, "--train_path", sounds)
        self.losses(lines, SPEAKER_LOSS, n_epochs=10)
        self.assertGreaterEqual(self.accuracy(lines[-2:]), 97)


if __name__ == "__main__":
    result = unittest.main(exit=False).result
    if result.testsRun == len(result.skipped) > 0:
        sys.exit(SKIPPED)
    sys.exit(not result.wasSuccessful())
