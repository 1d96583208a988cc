#!/usr/bin/env python3
"""Unpacks the Free Spoken Digit Dataset for speaker_identification and lists the recordings.

make_lists.py ARCHIVE FOLDER

Each line of FOLDER/train_list.txt and FOLDER/test_list.txt has a speaker and a path in FOLDER. The
first five recordings of each speaker and digit are the test set, as the data set specifies.
"""

import re
import sys
import tarfile
from pathlib import Path

N_TEST = 5
NAME = re.compile(r"\d+_([a-z]+)_(\d+)\.wav")


def main() -> int:
    if len(sys.argv) != 3:
        print(__doc__, file=sys.stderr)
        return 2
    archive, folder = map(Path, sys.argv[1:])
    lists: dict[str, list[str]] = {"train": [], "test": []}
    (folder / "wav").mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as members:
        for member in members:
            name = Path(member.name).name
            found = NAME.fullmatch(name)
            file = members.extractfile(member) if found else None
            if found is None or file is None:
                continue
            (folder / "wav" / name).write_bytes(file.read())
            part = "test" if int(found[2]) < N_TEST else "train"
            lists[part].append(f"{found[1]} wav/{name}\n")
    for part, lines in lists.items():
        if not lines:
            print(f"make_lists: {archive}: has no recordings for the {part}", file=sys.stderr)
            return 1
        (folder / f"{part}_list.txt").write_text("".join(sorted(lines)))
        print(f"{len(lines)} recordings in {folder / part}_list.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
