#!/usr/bin/env python3
"""Training under our DistributedDataParallel against PyTorch's, on two ranks, in float64:
compare_training.py PROGRAM."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

WORLD_SIZE = 2
N_STEPS = 20
BATCH_SIZE = 6
TOLERANCE = 1e-9  # of each tensor's maximum
TYPES = {"F64": torch.float64, "I64": torch.int64}


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3)
        self.head = nn.Linear(100, 10)

    def forward(self, x):
        return self.head(torch.max_pool2d(torch.relu(self.conv(x)), 2).flatten(1))


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(24, 32)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.tanh(self.hidden(x)))


class TextNet(nn.Module):
    def __init__(self, is_sparse=False):
        super().__init__()
        self.words = nn.Embedding(50, 8, sparse=is_sparse)
        self.even, self.odd, self.spare = (nn.Linear(8, 8) for _ in range(3))
        self.head = nn.Linear(8, 10)

    def forward(self, text):
        x = self.words(text).mean(1)
        return self.head(torch.tanh(self.odd(x) if text[0, 0] % 2 == 1 else self.even(x)))


class SparseTextNet(TextNet):
    def __init__(self):
        super().__init__(is_sparse=True)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.first, self.second = (nn.TransformerEncoderLayer(16, 4, 32, 0) for _ in range(2))
        self.head = nn.Linear(16, 10)

    def forward(self, text):
        return self.head(self.second(self.first(self.words(text.t()))).mean(0))


def images():
    return torch.randn(N_STEPS, BATCH_SIZE, 1, 12, 12, dtype=torch.float64)


def vectors():
    return torch.randn(N_STEPS, BATCH_SIZE, 24, dtype=torch.float64)


def texts():
    text = torch.randint(50, (WORLD_SIZE, N_STEPS, BATCH_SIZE, 7))
    text[0, :, 0, 0] = torch.arange(N_STEPS)
    text[1, :, 0, 0] = 1
    return text


SMALL_BUCKETS = {"bucket_cap_mb": 1e-3}
UNUSED = {"find_unused_parameters": True}
MODELS = {  # The model, its input, the wrapper's options, and the momentum.
    "conv_net": (ConvNet, images, {}, 0.9),
    "conv_net_in_small_buckets": (ConvNet, images, SMALL_BUCKETS, 0.9),
    "mlp": (Mlp, vectors, {}, 0.9),
    "text_net": (TextNet, texts, UNUSED, 0.9),
    "sparse_text_net": (SparseTextNet, texts, UNUSED, 0),
    "transformer": (Transformer, texts, {}, 0.9),
}


def write_tensors(path, tensors):
    """A safetensors file."""
    header, parts, begin = {}, [], 0
    for name, tensor in tensors.items():
        data = tensor.contiguous().numpy().tobytes()
        (dtype,) = (key for key, value in TYPES.items() if value == tensor.dtype)
        header[name] = {
            "dtype": dtype,
            "shape": list(tensor.shape),
            "data_offsets": [begin, begin + len(data)],
        }
        parts.append(data)
        begin += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(parts))


def read_tensors(path):
    data = path.read_bytes()
    start = 8 + int.from_bytes(data[:8], "little")
    tensors = {}
    for name, entry in json.loads(data[8:start]).items():
        if name != "__metadata__":
            begin, end = (start + offset for offset in entry["data_offsets"])
            flat = torch.frombuffer(bytearray(data[begin:end]), dtype=TYPES[entry["dtype"]])
            tensors[name] = flat.view(entry["shape"])
    return tensors


def make_input():
    torch.manual_seed(20)
    tensors = {}
    for name, (make, make_x, *_) in MODELS.items():
        for key, value in make().double().state_dict().items():
            tensors[f"{name}.start.{key}"] = value
        x = make_x() if make_x is texts else [make_x() for _ in range(WORLD_SIZE)]
        for rank in range(WORLD_SIZE):
            tensors[f"{name}.x.{rank}"] = x[rank]
            tensors[f"{name}.labels.{rank}"] = torch.randint(10, (N_STEPS, BATCH_SIZE))
    return tensors


def train(name, given, rank):
    make, _, options, momentum = MODELS[name]
    net = make().double()
    if rank == 0:
        net.load_state_dict({key: given[f"{name}.start.{key}"] for key in net.state_dict()})
    model = DistributedDataParallel(net, **options)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)
    kept = {}
    for step in range(N_STEPS):
        optimizer.zero_grad()
        result = model(given[f"{name}.x.{rank}"][step])
        kept[f"{name}.result.{step}.{rank}"] = result.detach().clone()
        cross_entropy(result, given[f"{name}.labels.{rank}"][step]).backward()
        for key, parameter in net.named_parameters():
            if parameter.grad is not None:
                gradient = parameter.grad.to_dense().clone()
                kept[f"{name}.gradient.{step}.{rank}.{key}"] = gradient
        optimizer.step()
    for key, value in net.state_dict().items():
        kept[f"{name}.end.{rank}.{key}"] = value.clone()
    return kept


def run_rank(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=WORLD_SIZE,
        timeout=timedelta(seconds=60),
    )
    given = read_tensors(Path(folder) / "input")
    kept = {}
    for name in MODELS:
        kept.update(train(name, given, rank))
    torch.save(kept, Path(folder) / f"kept{rank}")
    dist.destroy_process_group()
    # Callbacks of Gloo's threads that need the interpreter would abort the process during its exit.
    os._exit(0)


class TrainingEqualsPyTorchs(unittest.TestCase):
    def test_twenty_steps(self):
        with tempfile.TemporaryDirectory() as folder:
            given, output = Path(folder) / "input", Path(folder) / "output"
            start = make_input()
            write_tensors(given, start)
            subprocess.run([PROGRAM, given, output], check=True, timeout=120)
            ours = read_tensors(output)
            mp.spawn(run_rank, (folder,), nprocs=WORLD_SIZE)
            theirs = {}
            for rank in range(WORLD_SIZE):
                theirs.update(torch.load(Path(folder) / f"kept{rank}"))
        self.assertFalse(ours.keys() ^ theirs.keys(), "only one side has these")
        worst = dict.fromkeys(MODELS, 0.0)
        for name, expected in theirs.items():
            with self.subTest(name):
                difference = (ours[name] - expected).abs().max().item()
                self.assertLessEqual(difference, TOLERANCE * expected.abs().max())
                share = difference / max(expected.abs().max().item(), 1e-300)
                model = name.split(".")[0]
                worst[model] = max(worst[model], share)
        for model, share in worst.items():
            print(f"{model}: differ by {share:.1e} of a tensor's maximum")
        self.check_that_it_trained(start, theirs)

    def check_that_it_trained(self, start, end):
        for name, value in end.items():
            model, what, rank, *key = name.split(".", 3)
            if what == "end" and not key[0].startswith("spare."):
                moved = (value - start[f"{model}.start.{key[0]}"]).abs().max()
                self.assertGreater(moved, 1e-3, f"rank {rank}'s {model} hardly moves")
        self.assertFalse([name for name in end if ".gradient." in name and "spare" in name])


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    unittest.main()
