"""Compares the indices of our DistributedSampler with torch's own, replica by replica.

python compare_sampler.py PATH_OF_SAMPLER_INDICES
"""

import subprocess
import sys

from torch.utils.data.distributed import DistributedSampler

SIZES = [3, 10, 60_000, 100_003]
REPLICAS = [1, 2, 4, 7]
EPOCHS = [0, 1, 2]
# shuffle, seed, drop_last
OPTIONS = [(True, 0, False), (True, 1234, True), (True, -7, False), (False, 0, False)]


def ours(program, size, replicas, rank, option, epoch):
    shuffle, seed, drop_last = option
    words = [size, replicas, rank, int(shuffle), seed, int(drop_last), epoch]
    done = subprocess.run(
        [program, *map(str, words)], capture_output=True, text=True, timeout=60, check=True
    )
    return [int(line) for line in done.stdout.split()]


def torchs(size, replicas, rank, option, epoch):
    shuffle, seed, drop_last = option
    sampler = DistributedSampler(
        range(size),
        num_replicas=replicas,
        rank=rank,
        shuffle=shuffle,
        seed=seed,
        drop_last=drop_last,
    )
    sampler.set_epoch(epoch)
    return list(sampler)


def main():
    program = sys.argv[1]
    n_equal = 0
    n_different = 0
    for size in SIZES:
        for replicas in REPLICAS:
            for option in OPTIONS:
                for epoch in EPOCHS:
                    # The first and the last replica: the last one gets the repeated samples.
                    for rank in {0, replicas - 1}:
                        case = (size, replicas, rank, option, epoch)
                        if ours(program, *case) == torchs(*case):
                            n_equal += 1
                        else:
                            n_different += 1
                            print(f"different: size, replicas, rank, option, epoch = {case}")
    print(f"{n_equal} cases equal torch's, {n_different} do not")
    sys.exit(0 if n_equal > 0 and n_different == 0 else 1)


if __name__ == "__main__":
    main()
