#!/usr/bin/env python3
"""Groups that meet in a unisono.Store."""

import signal
import time
import unittest

import torch
import torch.distributed as dist
from stores import HOST, LONG, script, serve, server
from support import hear, run, tell

import unisono


def groups_in_our_store(rank: int, world: int) -> None:
    """Groups of ours and of Gloo's in a store of ours, below prefixes too."""
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        store = serve()
        tell("port", str(store.port))
    else:
        store = unisono.Store(HOST, int(hear("port")), secret="one", timeout=LONG)
    parts = [store, dist.PrefixStore("a", dist.PrefixStore("b", store)), store.clone()]
    for backend in ("unisono", "gloo"):
        for i, part in enumerate(parts):
            part = dist.PrefixStore(f"{backend} {i}", part)
            dist.init_process_group(backend, store=part, rank=rank, world_size=world)
            for group in (dist.group.WORLD, dist.new_group([0, 1])):
                tensor = torch.ones(2)
                dist.all_reduce(tensor, group=group)
                assert tensor.tolist() == [world, world]
            dist.destroy_process_group()
    # The server ends with the store of rank 0.
    store.barrier("all", world)
    keys = store.list_keys() if rank == 0 else ["unisono 1/a"]
    wanted = "b/a/unisono 1/"
    assert rank != 0 or any(key.startswith(wanted) for key in keys), keys
    store.barrier("end", world)


ALONE = """
import sys, torch.distributed as dist, unisono
from datetime import timedelta
port = int(sys.stdin.readline())
store = unisono.Store("127.0.0.1", port, secret="one")
print("waits", flush=True)
dist.init_process_group("unisono", store=dist.PrefixStore("x", store), rank=1, world_size=2)
"""


class Groups(unittest.TestCase):
    def test_meet_in_it(self) -> None:
        run(groups_in_our_store, 2)

    def test_meet_in_it_directly(self) -> None:
        """Not as in a store that is torch's, which the message would say."""
        with server() as (store, port), script(ALONE) as process:
            print(port, file=process.stdin, flush=True)
            self.assertEqual(process.stdout.readline(), "waits\n")
            time.sleep(0.5)  # It waits asleep by then.
            store.kill()
            _, said = process.communicate(timeout=30)
            self.assertIn(f"DistNetworkError: store {HOST}:{port}: ", said)

    def test_ctrl_c_ends_the_meeting(self) -> None:
        store = serve()
        with script(ALONE) as process:
            print(store.port, file=process.stdin, flush=True)
            self.assertEqual(process.stdout.readline(), "waits\n")
            time.sleep(0.5)  # It waits asleep by then.
            begin = time.time()
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=30)
            self.assertIn("KeyboardInterrupt", said)
            self.assertLess(time.time() - begin, 5)  # The end of Python takes its time, too.


if __name__ == "__main__":
    unittest.main()
