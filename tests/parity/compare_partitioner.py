"""Compares our DataPartitioner with that of PyTorch's tutorial, on this Python's random.Random.

python compare_partitioner.py PATH_OF_PARTITION_INDICES
"""

import subprocess
import sys
from random import Random

SIZES = [0, 1, 2, 10, 1000, 60_000]
SEEDS = [1234, 0, -7, 2**31, 2**32, 2**40 + 17, 2**63 - 1, -(2**63)]
FRACTIONS = [[0.7, 0.2, 0.1], [0.5, 0.5], [1 / 7] * 7, [0.25, 0.1]]


def ours(program, size, seed, fractions):
    words = [size, seed, *map(repr, fractions)]
    done = subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, timeout=60, check=True
    )
    return [[int(word) for word in line.split()] for line in done.stdout.splitlines()]


def pythons(size, seed, fractions):
    rng = Random()
    rng.seed(seed)
    indexes = list(range(size))
    rng.shuffle(indexes)
    parts = []
    for fraction in fractions:
        part_len = int(fraction * size)
        parts.append(indexes[:part_len])
        indexes = indexes[part_len:]
    return parts


def main():
    program = sys.argv[1]
    cases = [(size, seed, FRACTIONS[0]) for size in SIZES for seed in SEEDS]
    cases += [(size, SEEDS[0], fractions) for size in SIZES for fractions in FRACTIONS[1:]]
    different = [case for case in cases if ours(program, *case) != pythons(*case)]
    for case in different:
        print(f"different: size, seed, fractions = {case}")
    print(f"{len(cases)} cases, {len(different)} different")
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
