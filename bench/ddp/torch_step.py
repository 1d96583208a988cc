"""What ddp_bench measures, by PyTorch's DistributedDataParallel over Gloo or the Python package.

Needs RANK and WORLD_SIZE, save for --alone. Rank 0 prints one line of JSON.
"""

import argparse
import contextlib
import json
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

BLOCK_STEPS = 5
WEIGHT_SEED = 1
BATCH_SEED = 100


def loss_of(scores, labels):
    return functional.nll_loss(functional.log_softmax(scores, 1), labels)


class Layers(nn.Module):
    """Linear layers of one width."""

    def __init__(self, n_layers, width, bias):
        super().__init__()
        self.width = width
        self.layers = nn.ModuleList(nn.Linear(width, width, bias) for _ in range(n_layers))

    def draw_batch(self, batch_size):
        self.input = torch.randn(batch_size, self.width)
        self.labels = torch.randint(self.width, (batch_size,))

    def forward(self):
        x = self.input
        for layer in self.layers:
            x = torch.relu(layer(x))
        return loss_of(x, self.labels)


class Cnn(nn.Module):
    """The net of examples/02_mnist_ddp without dropout."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3)
        self.conv2 = nn.Conv2d(32, 64, 3)
        self.fc1 = nn.Linear(9216, 128)
        self.fc2 = nn.Linear(128, 10)
        for conv in (self.conv1, self.conv2):
            conv.weight.data = conv.weight.detach().contiguous(memory_format=torch.channels_last)

    def draw_batch(self, batch_size):
        images = torch.randn(batch_size, 1, 28, 28)
        self.images = images.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(10, (batch_size,))

    def forward(self):
        x = torch.relu(self.conv1(self.images))
        x = torch.relu(functional.max_pool2d(self.conv2(x), 2))
        return loss_of(self.fc2(torch.relu(self.fc1(torch.flatten(x, 1)))), self.labels)


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10000, 128)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, dim_feedforward=512, dropout=0) for _ in range(2)
        )
        self.head = nn.Linear(128, 2)

    def draw_batch(self, batch_size):
        self.tokens = torch.randint(10000, (64, batch_size))
        self.labels = torch.randint(2, (batch_size,))

    def forward(self):
        x = self.embedding(self.tokens)
        for layer in self.layers:
            x = layer(x)
        return loss_of(self.head(x.mean(0)), self.labels)


MODELS = {
    "mlp": lambda: Layers(4, 2048, bias=False),
    "cnn": Cnn,
    "transformer": Transformer,
    "many": lambda: Layers(1000, 32, bias=True),
}


def time_step(model, optimizer, n_batches=1):
    start = time.perf_counter()
    optimizer.zero_grad()
    for _ in range(n_batches):
        loss = model()
        (loss if n_batches == 1 else loss / n_batches).backward()
    optimizer.step()
    return time.perf_counter() - start


def time_block(model, optimizer, times, n_batches=1):
    # The first step of a block is not counted because it includes the after-effects of the previous
    # block.
    time_step(model, optimizer, n_batches)
    times.extend(time_step(model, optimizer, n_batches) for _ in range(BLOCK_STEPS))


def measure_alone(model, n_steps, n_batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    times = []
    while len(times) < BLOCK_STEPS + n_steps:
        time_block(model, optimizer, times, n_batches)
    return sorted(times[BLOCK_STEPS : BLOCK_STEPS + n_steps])


def run_alone(options):
    """On CPUs nn.DataParallel makes one call of the module for the whole batch, whose operators
    have the threads."""
    n_replicas = options.data_parallel
    torch.set_num_threads(n_replicas)
    torch.manual_seed(WEIGHT_SEED)
    net = MODELS[options.model]()
    torch.manual_seed(BATCH_SEED)
    net.draw_batch(n_replicas * batch_size_of(options))
    model = nn.DataParallel(net) if n_replicas > 1 else net
    step = measure_alone(model, options.steps, options.accumulate)
    print(json.dumps({"ranks": 1, "step": quantiles(step)}), flush=True)


def measure(model, n_steps):
    """Seconds of the slowest rank in each step: (synchronized, under no_sync())."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    kinds = ([], contextlib.nullcontext), ([], model.no_sync)
    while len(kinds[-1][0]) < BLOCK_STEPS + n_steps:
        for times, context in kinds:
            dist.barrier()
            with context():
                time_block(model, optimizer, times)
    results = []
    for times, _ in kinds:
        slowest = torch.tensor(times[BLOCK_STEPS : BLOCK_STEPS + n_steps], dtype=torch.float64)
        dist.all_reduce(slowest, dist.ReduceOp.MAX)
        results.append(sorted(slowest.tolist()))
    return results


def quantiles(times):
    last = len(times) - 1
    return {"min": times[0], "median": times[int(0.5 * last)], "p99": times[int(0.99 * last)]}


def batch_size_of(options):
    return options.batch or (32 if options.model == "transformer" else 64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", choices=MODELS, default="cnn")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--alone", action="store_true", help="one process without a group")
    parser.add_argument("--data-parallel", type=int, default=1, help="alone, so many batches")
    parser.add_argument("--accumulate", type=int, default=1, help="alone, so many batches a step")
    parser.add_argument("--rendezvous", help="a file that is not there yet")
    parser.add_argument("--bucket-views", action="store_true", help="gradient_as_bucket_view=True")
    parser.add_argument("--backend", choices=["gloo", "unisono"], default="gloo")
    parser.add_argument("--symmetric", action="store_true", help="with unisono.ddp.enable()")
    options = parser.parse_args()
    if options.alone:
        run_alone(options)
        return
    if options.rendezvous is None:
        parser.error("--rendezvous is missing; or say --alone")
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if options.backend == "unisono":
        import unisono
    dist.init_process_group(
        options.backend,
        init_method=f"file://{options.rendezvous}",
        rank=rank,
        world_size=int(os.environ["WORLD_SIZE"]),
    )
    torch.manual_seed(WEIGHT_SEED)
    net = MODELS[options.model]()
    torch.manual_seed(BATCH_SEED + rank)
    net.draw_batch(batch_size_of(options))
    model = DistributedDataParallel(net, gradient_as_bucket_view=options.bucket_views)
    if options.symmetric:
        unisono.ddp.enable(model)
    step, step_without_sync = measure(model, options.steps)
    if rank == 0:
        result = {
            "ranks": dist.get_world_size(),
            "step": quantiles(step),
            "step_without_sync": quantiles(step_without_sync),
        }
        print(json.dumps(result), flush=True)
    dist.barrier()
    # Gloo's threads may hold tensors during the interpreter's exit, which then sometimes aborts.
    os._exit(0)


if __name__ == "__main__":
    main()
