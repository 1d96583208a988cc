"""Expects a program on reviews of movies to learn what they think, from the reviews themselves.

python imdb_reviews.py UNISONO RANKS PROGRAM [ARGUMENTS...]

With --generated among the arguments, from reviews that the program makes up.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SKIPPED = 77
TIMEOUT_S = 1000
LOWEST_ACCURACY = 80
EPOCH = re.compile(r"^epoch (\d+)/(\d+)  loss (\S+)  test accuracy (\S+)%", re.MULTILINE)


def main():
    unisono, ranks, *program = sys.argv[1:]
    if "--generated" not in program:
        data = Path(os.environ.get("UNISONO_TEST_DATA_DIR", ROOT / "../shared/data"))
        if not (data / "imdb_subset_train_5000.tsv.gz").exists():
            print(f"skipped: {data} has no reviews; UNISONO_TEST_DATA_DIR can name their folder")
            return SKIPPED
        program += ["--data", str(data)]
    command = [unisono, "run", "-n", ranks, *program]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
    )
    print(done.stdout)
    epochs = EPOCH.findall(done.stdout)
    if done.returncode != 0 or not epochs or epochs[-1][0] != epochs[-1][1]:
        print(f"{' '.join(command)} ended with status {done.returncode}, before its last epoch")
        return 1
    if float(epochs[-1][2]) >= float(epochs[0][2]):
        print("the loss did not fall")
        return 1
    if float(epochs[-1][3]) < LOWEST_ACCURACY:
        print(f"of the test reviews {LOWEST_ACCURACY} % at least should be understood")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
