"""A sum over all ranks, made of messages to the right neighbour."""

import torch
import torch.distributed as dist
from output import say
from start import start


def all_reduce(send: torch.Tensor, recv: torch.Tensor) -> None:
    """Whole tensors go round: size - 1 steps."""
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    outgoing, incoming, total = send.clone(), torch.empty_like(send), send.clone()
    for _ in range(size - 1):
        request = dist.isend(outgoing, right)
        dist.recv(incoming, left)
        request.wait()
        total += incoming
        outgoing, incoming = incoming, outgoing
    recv.copy_(total)


def all_reduce_as_printed(send: torch.Tensor, recv: torch.Tensor) -> None:
    """As tutorials print it, which is wrong: what comes round is zeros, and is never added."""
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    outgoing, incoming, total = torch.zeros_like(send), torch.zeros_like(send), send.clone()
    for step in range(size - 1):
        request = dist.isend(outgoing, right)
        dist.recv(incoming, left)
        total += recv if step % 2 == 0 else send
        request.wait()
        outgoing, incoming = incoming, outgoing
    recv.copy_(total)


def chunked_all_reduce(tensor: torch.Tensor) -> None:
    """A chunk for each rank goes round twice: first its sum grows, then all copy it."""
    rank, size = dist.get_rank(), dist.get_world_size()
    left, right = (rank - 1) % size, (rank + 1) % size
    chunks = list(tensor.tensor_split(size))
    for step in range(2 * (size - 1)):
        request = dist.isend(chunks[(rank - step) % size], right)
        mine = chunks[(rank - step - 1) % size]
        incoming = torch.empty_like(mine)
        dist.recv(incoming, left)
        request.wait()
        mine.copy_(mine + incoming if step < size - 1 else incoming)


def run(rank: int, size: int) -> None:
    tensor = torch.full((10,), rank + 1.0)
    total, wrong = torch.zeros(10), tensor.clone()
    all_reduce(tensor, total)
    all_reduce_as_printed(tensor, wrong)
    chunked_all_reduce(tensor)
    results = [set(one.tolist()) for one in (total, tensor, wrong)]
    say(f"Rank {rank} of {size}: {results}")


if __name__ == "__main__":
    start(run)
