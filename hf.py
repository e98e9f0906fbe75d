"""Old name of `python -m export`."""

import sys

from export.__main__ import main

if __name__ == "__main__":
    sys.exit(main())
