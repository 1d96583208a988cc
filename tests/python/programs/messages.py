"""Messages from rank 0 to rank 1: blocking, then with handles."""

import torch
import torch.distributed as dist
from output import say
from start import start


def blocking(rank: int, size: int) -> None:
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        dist.send(tensor=tensor, dst=1)
    else:
        dist.recv(tensor=tensor, src=0)
    say(f"Rank  {rank}  has data  {tensor[0]!r}")


def immediate(rank: int, size: int) -> None:
    tensor = torch.zeros(1)
    if rank == 0:
        tensor += 1
        request = dist.isend(tensor=tensor, dst=1)
        say("Rank 0 started sending")
    else:
        request = dist.irecv(tensor=tensor, src=0)
        say("Rank 1 started receiving")
    request.wait()
    say(f"Rank  {rank}  has data  {tensor[0]!r}")


def run(rank: int, size: int) -> None:
    blocking(rank, size)
    immediate(rank, size)


if __name__ == "__main__":
    start(run)
