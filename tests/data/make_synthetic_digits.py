#!/usr/bin/env python3
"""Writes the data set of tests/data/synthetic_digits: MNIST's files, 20 and 10 drawn digits.

Digit k of a set is drawn with 3 x 3 pixels a dot and brightness 255 - 5 k, a little off the middle.

    python3 tests/data/make_synthetic_digits.py tests/data/synthetic_digits
"""

import gzip
import pathlib
import struct
import sys

# 5 x 7 dots for each digit. Each number is a row, and its highest bit is the leftmost dot.
GLYPHS = [
    [14, 17, 19, 21, 25, 17, 14],
    [4, 12, 4, 4, 4, 4, 14],
    [14, 17, 1, 2, 4, 8, 31],
    [31, 2, 4, 2, 1, 17, 14],
    [2, 6, 10, 18, 31, 2, 2],
    [31, 16, 30, 1, 1, 17, 14],
    [6, 8, 16, 30, 17, 17, 14],
    [31, 1, 2, 4, 8, 8, 8],
    [14, 17, 17, 14, 17, 17, 14],
    [14, 17, 17, 15, 1, 2, 12],
]
SIDE = 28
SCALE = 3


def draw(place: int, digit: int) -> bytes:
    pixels = bytearray(SIDE * SIDE)
    top = 2 + place % 5
    left = 4 + place % 7
    for row in range(7 * SCALE):
        for column in range(5 * SCALE):
            if GLYPHS[digit][row // SCALE] >> (4 - column // SCALE) & 1:
                pixels[(top + row) * SIDE + left + column] = 255 - 5 * place
    return bytes(pixels)


def write(path: pathlib.Path, content: bytes) -> None:
    # A constant modification time makes the file reproducible.
    path.write_bytes(gzip.compress(content, mtime=0))


def write_set(folder: pathlib.Path, name: str, digits: list[int]) -> None:
    images = b"".join(draw(place, digit) for place, digit in enumerate(digits))
    header = struct.pack(">4B3I", 0, 0, 8, 3, len(digits), SIDE, SIDE)
    write(folder / f"{name}-images-idx3-ubyte.gz", header + images)
    header = struct.pack(">4BI", 0, 0, 8, 1, len(digits))
    write(folder / f"{name}-labels-idx1-ubyte.gz", header + bytes(digits))


def main() -> None:
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    write_set(folder, "train", [place * 7 % 10 for place in range(20)])
    write_set(folder, "t10k", list(range(10)))


if __name__ == "__main__":
    main()
