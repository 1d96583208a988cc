"""Every collective operation once, and a sum in a group of some ranks."""

import torch
import torch.distributed as dist
from output import say
from start import start


def in_group(rank: int) -> None:
    group = dist.new_group([0, 1])
    if rank in (0, 1):
        tensor = torch.ones(1)
        dist.all_reduce(tensor, op=dist.ReduceOp.SUM, group=group)
        say(f"Rank  {rank}  has data  {tensor[0]!r}")


def reduce(rank: int) -> str:
    words = []
    for op in (dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MAX, dist.ReduceOp.MIN):
        tensor = torch.tensor([rank + 1, rank + 2])
        dist.all_reduce(tensor, op=op)
        words.append(str(tensor.tolist()))
    tensor = torch.tensor([rank + 1])
    dist.reduce(tensor, dst=1, op=dist.ReduceOp.SUM)
    if rank == 1:
        words.append(f"reduce {tensor.item()}")
    return " ".join(words)


def move(rank: int, size: int) -> str:
    copied = torch.tensor([rank])
    dist.broadcast(copied, src=2)
    part = torch.zeros(1, dtype=torch.int64)
    parts = [torch.tensor([10 + i]) for i in range(size)] if rank == 0 else None
    dist.scatter(part, src=0, scatter_list=parts)
    squares = [torch.zeros(1, dtype=torch.int64) for _ in range(size)] if rank == 3 else None
    dist.gather(torch.tensor([rank * rank]), dst=3, gather_list=squares)
    ranks = [torch.zeros(1, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(ranks, torch.tensor([rank]))
    words = [f"broadcast {copied.item()}", f"scatter {part.item()}"]
    if squares is not None:
        words.append(f"gather {[square.item() for square in squares]}")
    words.append(f"all_gather {[one.item() for one in ranks]}")
    return " ".join(words)


def run(rank: int, size: int) -> None:
    in_group(rank)
    dist.barrier()
    say(f"Rank {rank}: {reduce(rank)} {move(rank, size)}")


if __name__ == "__main__":
    start(run)
