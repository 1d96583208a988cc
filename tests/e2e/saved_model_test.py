"""Trains the MNIST example on two ranks, then classifies the test images with what it saved.

python saved_model_test.py UNISONO MNIST
"""

import gzip
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from torch.nn import functional

DATA = pathlib.Path("/usr/share/datasets/fashion-mnist")
N_IMAGES = 1000
SKIPPED = 77


def train(unisono, mnist, path):
    """The test accuracy in percent that the example prints."""
    options = ["--epochs", "2", "--limit", str(N_IMAGES), "--save", str(path)]
    command = [unisono, "run", "-n", "2", mnist, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\033" not in done.stdout, "no colors and no bar where there is no terminal"
    return float(re.findall(r"test accuracy (\d+\.\d+)%", done.stdout)[-1])


def read_idx(name, header_bytes):
    with gzip.open(DATA / name) as file:
        return torch.frombuffer(bytearray(file.read()[header_bytes:]), dtype=torch.uint8)


def classify(state, images):
    x = (images / 255 - 0.1307) / 0.3081
    x = functional.relu(functional.conv2d(x, state["conv1.weight"], state["conv1.bias"]))
    x = functional.relu(functional.conv2d(x, state["conv2.weight"], state["conv2.bias"]))
    x = functional.max_pool2d(x, 2).flatten(1)
    x = functional.relu(functional.linear(x, state["fc1.weight"], state["fc1.bias"]))
    return functional.linear(x, state["fc2.weight"], state["fc2.bias"]).argmax(1)


def main():
    unisono, mnist = sys.argv[1:]
    if not DATA.is_dir():
        print(f"skipped: the package dataset-fashion-mnist is not installed: no {DATA}")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.pt"
        printed = train(unisono, mnist, path)
        state = torch.jit.load(str(path)).state_dict()
    layers = ("conv1", "conv2", "fc1", "fc2")
    names = sorted(f"{layer}.{kind}" for layer in layers for kind in ("weight", "bias"))
    assert sorted(state) == names, sorted(state)
    images = read_idx("t10k-images-idx3-ubyte.gz", 16).view(-1, 1, 28, 28)[:N_IMAGES]
    labels = read_idx("t10k-labels-idx1-ubyte.gz", 8)[:N_IMAGES]
    with torch.no_grad():
        correct = (classify(state, images) == labels).sum().item()
    # Rounding may change the class of an image, and the line shows two digits.
    assert abs(100 * correct / N_IMAGES - printed) <= 100 / N_IMAGES + 0.01, (correct, printed)


if __name__ == "__main__":
    main()
