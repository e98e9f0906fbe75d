"""Deprecated: `python -m fairseq_plugin.half_weights` is now `python -m export fp16`."""

import sys

from common.cli import deprecation

from .checkpoints.fp16 import main

if __name__ == "__main__":
    deprecation("python -m fairseq_plugin.half_weights is deprecated, use python -m export fp16")
    sys.exit(main())
