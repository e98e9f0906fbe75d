"""Deprecated: `python -m baseline` is now `python -m experiments train --method tfidf`."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from common.cli import renamed


def main(arguments: Sequence[str] | None = None) -> int | None:
    """Print the new command as deprecation message and run it; returns the exit code."""
    return renamed("baseline", "experiments train --method tfidf", arguments)


if __name__ == "__main__":
    sys.exit(main())
