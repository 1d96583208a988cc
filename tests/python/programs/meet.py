"""Meets, as OPTIONS has it, says where, and leaves again, TIMES times.

Each time it leaves when there is the file UNTIL, if that is set.
"""

import os
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import unisono

options = eval(os.environ.get("OPTIONS", "{}"))
begin = dist.init_process_group if "backend" in options else unisono.init_process_group
for _time in range(int(os.environ.get("TIMES", 1))):
    begin(timeout=timedelta(seconds=float(os.environ.get("TIMEOUT", 30))), **options)
    tensor = torch.ones(1)
    dist.all_reduce(tensor)
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    place = f"({dist.get_rank()},{dist.get_world_size()}) {tensor.item():g}"
    # Uses one write, which output of other processes does not interrupt.
    os.write(1, f"{place} {dist.get_backend()} {type(store).__module__}\n".encode())
    while "UNTIL" in os.environ and not Path(os.environ["UNTIL"]).exists():
        time.sleep(0.005)
    del store
    dist.destroy_process_group()
