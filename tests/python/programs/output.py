"""Output that several ranks share."""

import sys


def say(line: str) -> None:
    """Prints a line in one piece; print() takes two where Python does not buffer."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
