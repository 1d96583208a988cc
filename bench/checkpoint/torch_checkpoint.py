"""Measures what PyTorch and safetensors take for the state that checkpoint_bench saves and loads.

unisono run -n 2 python torch_checkpoint.py dcp_save FOLDER --mib 1024

Rank 0 prints a line of JSON: the seconds of the slowest rank, each time.
"""

import argparse
import gc
import json
import os
import shutil
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file, save_file
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

TENSOR_MIB = 16
ROWS, COLUMNS = 4096, 1024


def memory_mib(key):
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"/proc/self/status has no {key}")


def reset_peak():
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def sync(path):
    """Also the folder that has its name."""
    for each in (path, path.parent):
        descriptor = os.open(each, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def rows_of_rank(n_mib, rank, world):
    """Each tensor's rows of this rank."""
    n_elems = ROWS // world * COLUMNS
    rows = torch.arange(rank * n_elems, (rank + 1) * n_elems, dtype=torch.float32)
    rows = rows.reshape(-1, COLUMNS)
    return {f"tensor{i}": rows + i for i in range(n_mib // TENSOR_MIB)}


def as_dtensors(state, world):
    mesh = init_device_mesh("cpu", (world,))
    return {
        name: DTensor.from_local(rows, mesh, [Shard(0)], run_check=False)
        for name, rows in state.items()
    }


class Bench:
    def __init__(self, options):
        self.rank, self.world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.folder = Path(options.folder)
        self.options = options
        self.seconds = []
        self.more_memory = 0.0

    def barrier(self):
        if self.world > 1:
            dist.barrier()

    def remove_saved(self):
        self.barrier()
        if self.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()

    def measure(self, prepare, action):
        """Of all times but the first, which warms up."""
        for i in range(self.options.times + 1):
            prepare()
            self.barrier()
            start = time.perf_counter()
            action()
            if i:
                self.seconds.append(time.perf_counter() - start)

    def save(self, action):
        reset_peak()
        before = memory_mib("VmRSS:")
        self.measure(self.remove_saved, action)
        more = memory_mib("VmHWM:") - before
        self.more_memory = more * self.world / self.options.mib

    def state(self):
        return rows_of_rank(self.options.mib, self.rank, self.world)

    def torch_save(self):
        state, path = self.state(), self.folder / f"{self.rank}.pt"

        def action():
            torch.save(state, path)
            sync(path)

        self.save(action)

    def safetensors_save(self):
        state, path = self.state(), self.folder / f"{self.rank}.safetensors"

        def action():
            save_file(state, path)
            sync(path)

        self.save(action)

    def dcp_save(self):
        state = as_dtensors(self.state(), self.world)
        self.save(lambda: dcp.save(state, checkpoint_id=self.folder))

    def load(self, action):
        """Into tensors that are there, as a module's parameters are."""
        state = self.state()
        gc.collect()
        reset_peak()
        before = memory_mib("VmRSS:")
        self.measure(lambda: None, lambda: action(state))
        more = memory_mib("VmHWM:") - before
        self.more_memory = more * self.world / self.options.mib

    def safetensors_load(self):
        path = self.folder / f"{self.rank}.safetensors"

        def action(state):
            for name, tensor in load_file(path).items():
                state[name].copy_(tensor)

        self.load(action)

    def safetensors_map(self):
        """Copies nothing: mmap reads a page when it is first looked at, as each is."""
        path = self.folder / f"{self.rank}.safetensors"

        def action(_):
            for tensor in load_file(path).values():
                tensor.view(-1)[::1024].sum()

        self.load(action)

    def dcp_load(self):
        def action(state):
            dcp.load(as_dtensors(state, self.world), checkpoint_id=self.folder)

        self.load(action)

    def result(self):
        numbers = torch.tensor([*self.seconds, self.more_memory], dtype=torch.float64)
        if self.world > 1:
            dist.all_reduce(numbers, dist.ReduceOp.MAX)
        *seconds, more_memory = numbers.tolist()
        return {"seconds": seconds, "more_memory": more_memory}


OPERATIONS = [
    "torch_save",
    "safetensors_save",
    "safetensors_load",
    "safetensors_map",
    "dcp_save",
    "dcp_load",
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("operation", choices=OPERATIONS)
    parser.add_argument("folder")
    parser.add_argument("--mib", type=int, default=1024, help="of all ranks")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--rendezvous", required=True, help="a file that is not there yet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    bench = Bench(options)
    if bench.world > 1:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{options.rendezvous}",
            rank=bench.rank,
            world_size=bench.world,
        )
    getattr(bench, options.operation)()
    result = bench.result()
    if bench.rank == 0:
        print(json.dumps(result), flush=True)
    bench.barrier()
    # Gloo's threads may hold tensors during the interpreter's exit, which then sometimes aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
