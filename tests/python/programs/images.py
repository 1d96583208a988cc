"""Images and labels of MNIST's files (IDX), normalized as is usual for MNIST."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import torch

FOLDER = Path(os.environ.get("IMAGES", "/usr/share/datasets/fashion-mnist"))


def read_idx(path: Path, count: int) -> torch.Tensor:
    """The first `count` entries of a file, as bytes."""
    with gzip.open(path) as file:
        magic = file.read(4)
        if len(magic) < 4 or magic[:3] != b"\0\0\x08":
            raise ValueError(f"{path}: no IDX file of bytes: it begins with {magic.hex()}")
        total, *shape = struct.unpack(f">{magic[3]}I", file.read(4 * magic[3]))
        if count > total:
            raise ValueError(f"{path}: {count} entries wanted, but it has {total}")
        data = torch.frombuffer(
            bytearray(file.read(count * torch.Size(shape).numel())), dtype=torch.uint8
        )
    return data.view(count, *shape)


def normalize(pixels: torch.Tensor) -> torch.Tensor:
    return (pixels / 255 - 0.1307) / 0.3081


def load(count: int) -> torch.utils.data.TensorDataset:
    """The first images for training, each 1 x 28 x 28, with their labels."""
    pixels = read_idx(FOLDER / "train-images-idx3-ubyte.gz", count)
    labels = read_idx(FOLDER / "train-labels-idx1-ubyte.gz", count)
    return torch.utils.data.TensorDataset(normalize(pixels).unsqueeze(1), labels.long())
