"""Old name of `python -m experiments`."""

import sys

from experiments.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
