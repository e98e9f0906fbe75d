"""Old name of `python -m experiments.methods.tfidf.run`."""

import sys

from experiments.methods.tfidf.run import main

if __name__ == "__main__":
    sys.exit(main())
