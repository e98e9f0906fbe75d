"""Deprecated: `python -m sweep` is now `python -m experiments`."""

import sys

from common.cli import renamed

if __name__ == "__main__":
    sys.exit(renamed("sweep", "experiments"))
