"""What pipeline_bench measures, by PyTorch's torch.distributed.pipelining over Gloo.

Needs RANK and WORLD_SIZE. Rank 0 prints one line of JSON.
"""

import argparse
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import pipelining

WARM_UP = 3
# PyTorch's schedules and the number of stages per rank, by the names of unisono::pipeline.
SCHEDULES = {
    "fill_drain": (pipelining.ScheduleGPipe, 1),
    "1f1b": (pipelining.Schedule1F1B, 1),
    "interleaved_1f1b": (pipelining.ScheduleInterleaved1F1B, 2),
    "interleaved_zero_bubble": (pipelining.ScheduleInterleavedZeroBubble, 2),
    "v_zb": (pipelining.ScheduleZBVZeroBubble, 2),
    "dual_pipe_v": (pipelining.ScheduleDualPipeV, 2),
}
V_SHAPED = {"v_zb", "dual_pipe_v"}


def make_schedule(options, rank, n_ranks):
    """The schedule, and whether the first and the last stage are this rank's."""
    make, n_own = SCHEDULES[options.schedule]
    n_stages = n_own * n_ranks
    if options.layers % n_stages:
        raise SystemExit(f"{options.layers} layers can't be divided into {n_stages} stages")
    torch.manual_seed(1)
    pairs = [
        nn.Sequential(nn.Linear(options.width, options.width), nn.ReLU())
        for _ in range(options.layers)
    ]
    size = options.layers // n_stages
    own = [rank + i * n_ranks for i in range(n_own)]
    if options.schedule in V_SHAPED:
        own = [rank, n_stages - 1 - rank]
    stages = [
        pipelining.PipelineStage(
            nn.Sequential(*pairs[i * size : (i + 1) * size]), i, n_stages, torch.device("cpu")
        )
        for i in own
    ]
    schedule = make(
        stages if n_own > 1 else stages[0], options.chunks, loss_fn=nn.functional.mse_loss
    )
    return schedule, stages, 0 in own, n_stages - 1 in own


def measure(options, rank, n_ranks):
    """Milliseconds of the slowest rank in each step."""
    schedule, stages, has_first, has_last = make_schedule(options, rank, n_ranks)
    shape = (options.batch, options.width)
    inputs = (torch.randn(shape),) if has_first else ()
    targets = {"target": torch.randn(shape), "losses": []} if has_last else {}
    times = []
    for _ in range(1 + WARM_UP + options.steps):
        dist.barrier()
        start = time.perf_counter()
        for stage in stages:
            stage.submod.zero_grad()
        schedule.step(*inputs, **targets)
        if has_last:
            targets["losses"].clear()
        times.append(1e3 * (time.perf_counter() - start))
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return slowest.tolist()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedule", choices=SCHEDULES, default="1f1b")
    parser.add_argument("--chunks", type=int, default=4)
    parser.add_argument("--width", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--rendezvous", required=True, help="a file that is not there yet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rank, n_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "gloo", init_method=f"file://{options.rendezvous}", rank=rank, world_size=n_ranks
    )
    times = measure(options, rank, n_ranks)
    if rank == 0:
        result = {
            "schedule": options.schedule,
            "chunks": options.chunks,
            "step_ms_median": statistics.median(times[1 + WARM_UP :]),
            "first_step_ms": times[0],
        }
        print(json.dumps(result), flush=True)
    dist.barrier()
    # Gloo's threads may hold tensors during the interpreter's exit, which then sometimes aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
