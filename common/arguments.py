"""Types of command-line arguments that several rooms take, for argparse's `type=`."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """An integer of at least 1; raises `ArgumentTypeError`, or `ValueError` where it is no integer."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number
