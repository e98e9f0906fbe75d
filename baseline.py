"""Deprecated: `python -m baseline` is now `./train.sh --method tfidf`."""

import sys

from experiments.methods.tfidf.run import main

if __name__ == "__main__":
    sys.exit(main())
