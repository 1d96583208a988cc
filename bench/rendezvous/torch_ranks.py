"""The same as rendezvous_load's "serve" and "meet", with PyTorch's TCPStore and its libuv server.

PyTorch's store has no rendezvous that all ranks could fetch as one value: each sets a key of its
own, the last sets "ready", for which all wait, and each gets the keys of all at once.
"""

import resource
import sys
import threading
import time
from datetime import timedelta

from torch.distributed import TCPStore

TIMEOUT = timedelta(seconds=120)
ENTRY = "x" * 200


def serve():
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    print(store.port, flush=True)
    sys.stdin.read()


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def meet_as(port, rank, world_size, go, times):
    go.wait()
    store = TCPStore("127.0.0.1", port, wait_for_workers=False, timeout=TIMEOUT)
    connected = time.monotonic()
    store.set(str(rank), ENTRY)
    if store.add("count", 1) == world_size:
        store.set("ready", "1")
    store.wait(["ready"])
    entries = store.multi_get([str(i) for i in range(world_size)])
    assert len(entries) == world_size
    times[rank] = connected, time.monotonic()


def meet(port, first, count, world_size):
    go = threading.Event()
    times = {}
    ranks = [
        threading.Thread(target=meet_as, args=(port, rank, world_size, go, times))
        for rank in range(first, first + count)
    ]
    for rank in ranks:
        rank.start()
    print("ready", flush=True)
    sys.stdin.readline()
    start = time.monotonic()
    cpu_before = cpu_seconds()
    go.set()
    for rank in ranks:
        rank.join()
    connected, met = (max(column) - start for column in zip(*times.values(), strict=True))
    print(f"{connected:.4f} {met:.4f} 4 {cpu_seconds() - cpu_before:.4f}", flush=True)


if sys.argv[1] == "serve":
    serve()
else:
    meet(*[int(word) for word in sys.argv[2:]])
