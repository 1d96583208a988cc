"""Trains the MNIST example on two ranks and looks at what it prints and saves.

python mnist_e2e.py UNISONO MNIST (quick | failures | accuracy)
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile

DATA = "/usr/share/datasets/fashion-mnist"


def run(command, expected_code=0):
    done = subprocess.run(command, capture_output=True, text=True, timeout=1500)
    output = done.stdout + done.stderr
    assert (done.returncode == 0) == (expected_code == 0), f"{command}: {done.returncode}\n{output}"
    return output


def need(condition, message):
    if not condition:
        print("skipped:", message)
        sys.exit(77)


def check_lines(output, n_epochs):
    for rank in (0, 1):
        losses = re.findall(rf"Rank  {rank} , epoch  (\d+) :  (\d+\.\d+)", output)
        assert [int(epoch) for epoch, _ in losses] == list(range(n_epochs)), output
        values = [float(loss) for _, loss in losses]
        assert values == sorted(values, reverse=True), f"the loss must fall: {values}"
    hashes = re.findall(r"Rank \d parameter hash ([0-9a-f]{16})", output)
    assert len(hashes) == 2 and hashes[0] == hashes[1], f"ranks differ: {hashes}"
    assert "\033" not in output, "no colors and no bar where there is no terminal"


def accuracies(output):
    return [float(text) for text in re.findall(r"test accuracy (\d+\.\d+)%", output)]


def check_file_in_python(path, expected_accuracy, limit):
    import gzip

    import torch
    import torch.nn.functional as functional

    state = torch.jit.load(str(path)).state_dict()
    names = [
        f"{layer}.{kind}"
        for layer in ("conv1", "conv2", "fc1", "fc2")
        for kind in ("weight", "bias")
    ]
    assert sorted(state) == sorted(names), sorted(state)
    with gzip.open(f"{DATA}/t10k-images-idx3-ubyte.gz") as file:
        pixels = torch.frombuffer(bytearray(file.read()[16:]), dtype=torch.uint8)
    with gzip.open(f"{DATA}/t10k-labels-idx1-ubyte.gz") as file:
        labels = torch.frombuffer(bytearray(file.read()[8:]), dtype=torch.uint8)[:limit]
    x = (pixels.view(-1, 1, 28, 28)[:limit] / 255 - 0.1307) / 0.3081
    with torch.no_grad():
        x = functional.relu(functional.conv2d(x, state["conv1.weight"], state["conv1.bias"]))
        x = functional.relu(functional.conv2d(x, state["conv2.weight"], state["conv2.bias"]))
        x = functional.max_pool2d(x, 2).flatten(1)
        x = functional.relu(functional.linear(x, state["fc1.weight"], state["fc1.bias"]))
        x = functional.linear(x, state["fc2.weight"], state["fc2.bias"])
    accuracy = 100 * (x.argmax(1) == labels).sum().item() / limit
    # Rounding may turn an image over, and the line has two digits.
    assert abs(accuracy - expected_accuracy) <= 100 / limit + 0.01, (accuracy, expected_accuracy)


def quick(unisono, mnist, folder):
    need(os.path.isdir(DATA), f"the package dataset-fashion-mnist is not installed: no {DATA}")
    limit = 1000
    path = folder / "model.pt"
    output = run(
        [
            unisono,
            "run",
            "-n",
            "2",
            mnist,
            "--epochs",
            "3",
            "--limit",
            str(limit),
            "--verbose",
            "--save",
            str(path),
        ]
    )
    check_lines(output, 3)
    assert str(path) in output, output
    assert [entry.name for entry in folder.iterdir()] == ["model.pt"]
    try:
        check_file_in_python(path, accuracies(output)[-1], limit)
    except ImportError as error:
        need(False, f"this Python has no torch ({error}); all but the saved file was checked")


def explained_failures(unisono, mnist, folder):
    missing = str(folder / "nowhere")
    for arguments, words in [
        (["--data", missing], missing),
        (["--save", f"{missing}/model.pt"], f"there is no folder {missing}"),
    ]:
        output = run([unisono, "run", "-n", "2", mnist, "--limit", "100", *arguments], 1)
        lines = [line for line in output.splitlines() if "mnist: " in line and words in line]
        assert lines, output
        assert "frame #" not in output and "terminate called" not in output, output


def accuracy(unisono, mnist, folder):
    data = os.environ.get(
        "UNISONO_TEST_MNIST_DIR", str(pathlib.Path(__file__).parents[3] / "shared" / "data")
    )
    need(
        os.path.isfile(f"{data}/train-images-idx3-ubyte.gz"),
        f"MNIST is not in {data}; UNISONO_TEST_MNIST_DIR can name its folder",
    )
    output = run(
        [
            unisono,
            "run",
            "-n",
            "2",
            mnist,
            "--data",
            data,
            "--epochs",
            "3",
            "--verbose",
            "--save",
            str(folder / "model.pt"),
        ]
    )
    check_lines(output, 3)
    assert accuracies(output)[-1] >= 98.5, output


def main():
    unisono, mnist, case = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        {"quick": quick, "failures": explained_failures, "accuracy": accuracy}[case](
            unisono, mnist, pathlib.Path(folder)
        )


if __name__ == "__main__":
    main()
