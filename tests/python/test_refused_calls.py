#!/usr/bin/env python3
"""Calls with wrong arguments: what they say, and what ranks that wait for them are told."""

from __future__ import annotations

import re
import unittest
from datetime import timedelta

import torch
import torch.distributed as dist
from support import hear, run, tell
from test_failures import caught

BAND = dist.ReduceOp.BAND


def refused(call: str, problem: str, function, group: str = "") -> None:
    """The call is refused for the problem, by this rank, in Python's words."""
    me = f"{dist.get_rank()}/{dist.get_world_size()}"
    text = caught(RuntimeError, problem, function)
    start = rf"\[rank {me}{group}\] {call}: "
    assert re.match(start, text), f"{text} does not start with {start}"


def names(rank: int, world: int) -> None:
    t, out = torch.ones(2), torch.empty(2 * world)
    band = "band is not defined for elements of f32; it is for integers and bool"
    refused("all_reduce", band, lambda: dist.all_reduce(t, BAND))
    refused("all_reduce", band, lambda: dist.all_reduce(t, BAND, async_op=True))
    refused("reduce", band, lambda: dist.reduce(t, 0, BAND))
    refused("reduce_scatter", band, lambda: dist.reduce_scatter(torch.empty(2), [t] * world, BAND))
    refused("reduce_scatter_tensor", band, lambda: dist.reduce_scatter_tensor(t, out, BAND))
    refused("reduce_scatter_tensor", "same size", lambda: dist.reduce_scatter_tensor(t, t))
    refused("all_gather_into_tensor", "size", lambda: dist.all_gather_into_tensor(t, t))
    overlap = "overlap; give each memory of its own"
    whole = torch.ones(2 * world)
    refused("all_gather", overlap, lambda: dist.all_gather([t] * world, torch.ones(2)))
    refused(
        "all_gather_into_tensor", overlap, lambda: dist.all_gather_into_tensor(whole, whole[1:3])
    )
    refused("all_to_all_single", "plit sizes", lambda: dist.all_to_all_single(t, t, [1, 2], [1, 1]))
    refused("all_to_all", overlap, lambda: dist.all_to_all([t] * world, [t] * world))
    refused("send", "the tag is -1", lambda: dist.send(t, 1 - rank, tag=-1))
    refused("recv", "memory location", lambda: dist.recv(t[:1].expand(2), 1 - rank))
    float8 = "do not support tensors of type Float8_e4m3fn; convert them with .to(dtype)"
    refused("all_reduce", float8, lambda: dist.all_reduce(t.to(torch.float8_e4m3fn)))
    group = dist.new_group([1, 0])
    place = rf", {rank}/2 in group \d+\.\d+"
    refused("all_reduce", band, lambda: dist.all_reduce(t, BAND, group=group), place)
    dist.all_reduce(t)  # Nothing was sent.
    assert t.tolist() == [world, world]


def wait_for_refused(rank: int, world: int) -> None:
    t = torch.ones(2)
    dist.all_reduce(t)
    if rank == 1:
        refused("reduce_scatter_tensor", "", lambda: dist.reduce_scatter_tensor(t, t))
        tell("refused")
        hear("done")
        return
    hear("refused")
    dist.group.WORLD._get_backend(torch.device("cpu")).set_timeout(timedelta(milliseconds=300))
    text = caught(dist.DistBackendError, "rank 1", lambda: dist.all_reduce(t))
    assert 'refused a call for wrong arguments: "reduce_scatter_tensor: input' in text, text
    tell("done")


def leave_after_refused(rank: int, world: int) -> None:
    t = torch.ones(2)
    if rank == 1:
        refused("reduce_scatter_tensor", "", lambda: dist.reduce_scatter_tensor(t, t))
        return
    text = caught(dist.DistNetworkError, "left the group", lambda: dist.all_reduce(t))
    assert 'refused a call for wrong arguments: "reduce_scatter_tensor: ' in text, text


def batch_with_a_refused_message(rank: int, world: int) -> None:
    t = torch.ones(2)
    wrong = torch.ones(1).expand(2)
    batch = [
        dist.P2POp(dist.isend, t, 1 - rank),
        dist.P2POp(dist.irecv, wrong, 1 - rank),
    ]
    caught(RuntimeError, "memory location", lambda: dist.batch_isend_irecv(batch))
    received = torch.zeros(2)
    batch = [dist.P2POp(dist.irecv, received, 1 - rank)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    assert received.tolist() == [1, 1]
    dist.all_reduce(t)
    assert t.tolist() == [world, world]


class RefusedCalls(unittest.TestCase):
    def test_name_rank_call_and_group(self) -> None:
        run(names, 2)

    def test_are_named_by_a_rank_that_waits(self) -> None:
        run(wait_for_refused, 2)

    def test_are_named_when_the_rank_has_left(self) -> None:
        run(leave_after_refused, 2)

    def test_leave_the_group_whole_within_a_batch(self) -> None:
        run(batch_with_a_refused_message, 2)


if __name__ == "__main__":
    unittest.main()
