"""What `unisono bench` measures, by torch.distributed, after the rules of cli/bench_report.h.

Needs RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Rank 0 prints lines of JSON.
"""

import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist

SHORTEST_SAMPLE = 40e-6
MAX_CALLS_IN_SAMPLE = 10000
MIN_SAMPLES = 20
MAX_SAMPLES = 1000
WARM_UP_SHARE = 0.2


def all_reduce(_in, out):
    dist.all_reduce(out)


def broadcast(_in, out):
    dist.broadcast(out, 0)


def barrier(_in, _out):
    dist.barrier()


def all_gather(in_, out):
    dist.all_gather_into_tensor(out, in_.narrow(0, 0, in_.numel() // dist.get_world_size()))


def reduce_scatter(in_, out):
    dist.reduce_scatter_tensor(out.narrow(0, 0, out.numel() // dist.get_world_size()), in_)


def all_to_all(in_, out):
    dist.all_to_all_single(out, in_)


def sendrecv(in_, out):
    last = dist.get_world_size() - 1
    if dist.get_rank() == 0:
        dist.send(in_, last)
        dist.recv(out, last)
    elif dist.get_rank() == last:
        dist.recv(out, 0)
        dist.send(out, 0)


def factor_of_one(_n):
    return 1


def share_of_others(n):
    return (n - 1) / n


# Call, whether each rank has a chunk of the elements, factor of the bus bandwidth, number of
# transfers per call.
OPERATIONS = {
    "all_reduce": (all_reduce, False, lambda n: 2 * (n - 1) / n, 1),
    "broadcast": (broadcast, False, factor_of_one, 1),
    "barrier": (barrier, False, factor_of_one, 1),
    "all_gather": (all_gather, True, share_of_others, 1),
    "reduce_scatter": (reduce_scatter, True, share_of_others, 1),
    "all_to_all": (all_to_all, True, share_of_others, 1),
    "sendrecv": (sendrecv, False, factor_of_one, 2),
}


def max_of_ranks(values):
    slowest = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()


def time_calls(call, in_, out, n_calls):
    dist.barrier()
    start = time.perf_counter()
    for _ in range(n_calls):
        call(in_, out)
    return time.perf_counter() - start


def sample(call, in_, out, seconds):
    """Sorted samples in seconds."""
    total = n_total = 0
    shortest = math.inf
    n_calls = 1
    while n_calls <= 2 or total < WARM_UP_SHARE * seconds:
        block = max_of_ranks([time_calls(call, in_, out, n_calls)])[0]
        total += block
        n_total += n_calls
        shortest = min(shortest, block / n_calls)
        n_calls *= 2
    n_calls = max(1, min(math.ceil(SHORTEST_SAMPLE / shortest), MAX_CALLS_IN_SAMPLE))
    wanted = int(seconds / (n_calls * total / n_total))
    n_samples = max(MIN_SAMPLES, min(wanted, MAX_SAMPLES))
    own = [time_calls(call, in_, out, n_calls) / n_calls for _ in range(n_samples)]
    return sorted(max_of_ranks(own))


def zeros(count, memory):
    if memory == "private":
        return torch.zeros(count)
    import unisono

    return unisono.empty(count)


def measure(name, n_bytes, seconds, memory):
    call, has_chunks, bus_factor, n_transfers = OPERATIONS[name]
    world_size = dist.get_world_size()
    step = world_size if has_chunks else 1
    count = math.ceil(n_bytes // 4 / step) * step
    in_, out = zeros(count, memory), zeros(count, memory)
    samples = [time / n_transfers for time in sample(call, in_, out, seconds)]

    def quantile(q):
        return samples[max(1, math.ceil(q * len(samples))) - 1]

    bandwidth = 4 * count / quantile(0.5) / 1e9
    return {
        "op": name,
        "ranks": world_size,
        "nodes": 1,
        "bytes": 4 * count,
        "dtype": "f32",
        "memory": memory,
        "algorithm": "auto",
        "median_us": 1e6 * quantile(0.5),
        "min_us": 1e6 * samples[0],
        "p99_us": 1e6 * quantile(0.99),
        "algbw_gbps": bandwidth,
        "busbw_gbps": bandwidth * bus_factor(world_size),
        "wrong": None,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("sizes", help="bytes: 8,1024")
    parser.add_argument("seconds", type=float)
    parser.add_argument("--backend", choices=["gloo", "unisono"], default="gloo")
    parser.add_argument("--memory", choices=["private", "symmetric"], default="private")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.backend == "unisono":
        import unisono  # noqa: F401 - registers the backend
    dist.init_process_group(options.backend)
    for n_bytes in options.sizes.split(","):
        result = measure(options.operation, int(n_bytes), options.seconds, options.memory)
        if dist.get_rank() == 0:
            print(json.dumps(result), flush=True)
    dist.barrier()
    # Gloo's threads may hold tensors during the interpreter's exit, which then sometimes aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
