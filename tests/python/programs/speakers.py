"""Who speaks? A trainer in the manner of voxceleb_trainer, which spawns a worker for each device.

Takes the recordings of the Free Spoken Digit Dataset, in the archive that --train_path names.
"""

from __future__ import annotations

import argparse
import io
import os
import tarfile
import wave

import torch
import torch.distributed as dist
from output import say
from torch import multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
EVERY, N_SAMPLES, N_FFT = 5, 4000, 256


def features(file: bytes) -> torch.Tensor:
    """The logarithm of the power of half a second, [frequencies, frames]."""
    with wave.open(io.BytesIO(file)) as sound:
        samples = torch.frombuffer(bytearray(sound.readframes(N_SAMPLES)), dtype=torch.int16)
    samples = (samples / 32768).repeat(-(-N_SAMPLES // len(samples)))[:N_SAMPLES]
    window = torch.hann_window(N_FFT)
    return torch.stft(samples, N_FFT, window=window, return_complex=True).abs().square().log1p()


def load(archive: str) -> TensorDataset:
    """Every so many recordings, each with its speaker's number."""
    sounds, speakers = [], []
    with tarfile.open(archive) as members:
        names = sorted(member.name for member in members if member.name.endswith(".wav"))
        for name in names[::EVERY]:
            sounds.append(features(members.extractfile(name).read()))
            speakers.append(SPEAKERS.index(name.split("_")[1]))
    return TensorDataset(torch.stack(sounds), torch.tensor(speakers))


def make_net() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(N_FFT // 2 + 1, 64, 5),
        nn.BatchNorm1d(64),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(64, len(SPEAKERS)),
    )


def main_worker(gpu: int, ngpus_per_node: int, args: argparse.Namespace) -> None:
    args.gpu = gpu
    torch.manual_seed(1)
    torch.set_num_threads(1)
    device = torch.device("cuda", args.gpu) if torch.cuda.is_available() else torch.device("cpu")
    s = make_net().to(device)
    if args.distributed:
        os.environ["MASTER_ADDR"] = "localhost"
        os.environ["MASTER_PORT"] = str(args.port)
        dist.init_process_group(backend="nccl", world_size=ngpus_per_node, rank=args.gpu)
        if args.syncBN:
            s = nn.SyncBatchNorm.convert_sync_batchnorm(s)
            say("----syncBN----")
        ids = [args.gpu] if device.type == "cuda" else None
        s = DistributedDataParallel(s, device_ids=ids, find_unused_parameters=False)
        say(f"Loaded the model on GPU {args.gpu}")

    dataset = load(args.train_path)
    sampler = DistributedSampler(dataset, ngpus_per_node, args.gpu)
    batches = BatchSampler(sampler, args.batch_size, drop_last=True)
    loader = DataLoader(dataset, batch_sampler=batches, num_workers=args.nDataLoaderThread)
    optimizer = torch.optim.Adam(s.parameters(), lr=3e-3)
    for epoch in range(args.max_epoch):
        sampler.set_epoch(epoch)
        total = 0.0
        for data, speakers in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(s(data.to(device)), speakers.to(device))
            loss.backward()
            optimizer.step()
            total += loss.item()
        say(f"worker {args.gpu}, epoch {epoch}: loss {total / len(loader)}")
    weights = sum(parameter.double().sum().item() for parameter in s.parameters())
    say(f"worker {args.gpu}: weights {weights}")
    if args.distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--distributed", action="store_true")
    parser.add_argument("--port", type=int, default=8888)
    parser.add_argument("--syncBN", action="store_true")
    parser.add_argument("--batch_size", type=int, default=30)
    parser.add_argument("--nDataLoaderThread", type=int, default=0)
    parser.add_argument("--max_epoch", type=int, default=4)
    parser.add_argument("--train_path", required=True)
    arguments = parser.parse_args()
    n_gpus = 2 if arguments.distributed else 1
    if arguments.distributed:
        mp.spawn(main_worker, nprocs=n_gpus, args=(n_gpus, arguments))
    else:
        main_worker(0, 1, arguments)
