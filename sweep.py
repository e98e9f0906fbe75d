"""Deprecated: `python -m sweep` is now `python -m experiments`."""

import sys

from common.cli import deprecation
from experiments.__main__ import main

if __name__ == "__main__":
    deprecation("python -m sweep is deprecated, use python -m experiments")
    sys.exit(main())
