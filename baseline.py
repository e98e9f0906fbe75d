"""Deprecated: `python -m baseline` is now `python -m experiments train --method tfidf`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.cli import deprecation
from experiments.__main__ import main as experiments


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the new command as deprecation message and run it; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    deprecation("python -m baseline is deprecated, use python -m experiments train --method tfidf")
    return experiments(["train", "--method", "tfidf", *words])


if __name__ == "__main__":
    sys.exit(main())
