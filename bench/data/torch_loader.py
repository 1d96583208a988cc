"""Measures how fast PyTorch's DataLoader brings the images that `unisono-data-bench` loads.

python torch_loader.py mnist FOLDER | jpeg FOLDER

There is no torchvision in it: Pillow decodes, torch's own operations crop, flip and normalize. A
sample is a torch.Tensor, as torchvision's data sets with transforms have it. Prints a line of JSON:
the samples a second for each number of workers.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

PADDING = 4


class Mnist(Dataset):
    def __init__(self, folder):
        pixels, labels = (
            gzip.decompress((Path(folder) / f"train-{name}-ubyte.gz").read_bytes())
            for name in ("images-idx3", "labels-idx1")
        )
        self.pixels = torch.frombuffer(bytearray(pixels[16:]), dtype=torch.uint8).view(-1, 28, 28)
        self.labels = list(labels[8:])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        # The fastest equivalent of torchvision's ToTensor() and Normalize().
        image = self.pixels[index].unsqueeze(0).to(torch.float32)
        return image.div_(255).sub_(0.1307).div_(0.3081), self.labels[index]


class JpegFolder(Dataset):
    """ImageFolder with RandomCrop(32, padding=4) and RandomHorizontalFlip()."""

    def __init__(self, folder):
        classes = sorted(path for path in Path(folder).iterdir() if path.is_dir())
        self.files = [
            (str(path), label)
            for label, each in enumerate(classes)
            for path in sorted(each.glob("*.jpg"))
        ]

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        path, label = self.files[index]
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))
        height, width, channels = pixels.shape
        padded = np.zeros((height + 2 * PADDING, width + 2 * PADDING, channels), dtype=np.uint8)
        padded[PADDING:-PADDING, PADDING:-PADDING] = pixels
        top, left, is_flipped = torch.randint(0, 2 * PADDING + 1, (3,)).tolist()
        cropped = padded[top : top + height, left : left + width]
        if is_flipped % 2:
            cropped = cropped[:, ::-1]
        image = torch.from_numpy(np.ascontiguousarray(cropped.transpose(2, 0, 1)))
        return image.to(torch.float32).div_(255).sub_(0.5).div_(0.25), label


DATASETS = {"mnist": Mnist, "jpeg": JpegFolder}


def samples_per_second(dataset, workers, options):
    """The workers have started when time begins to count."""
    loader = DataLoader(
        dataset,
        batch_size=options.batch_size,
        shuffle=True,
        num_workers=workers,
        persistent_workers=workers > 0,
    )
    batches = iter(loader)
    next(batches)
    start = time.perf_counter()
    n_samples = 0
    while time.perf_counter() - start < options.seconds:
        try:
            images, _ = next(batches)
        except StopIteration:
            batches = iter(loader)
            continue
        n_samples += len(images)
    return n_samples / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset", choices=DATASETS)
    parser.add_argument("folder")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--max-workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dataset = DATASETS[options.dataset](options.folder)
    workers = range(options.max_workers + 1)
    print(json.dumps({n: samples_per_second(dataset, n, options) for n in workers}))


if __name__ == "__main__":
    main()
