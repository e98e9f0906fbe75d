"""Deprecated: `python -m fairseq_plugin.half_weights` is now `python -m export fp16`."""

import sys

from common.cli import renamed

if __name__ == "__main__":
    sys.exit(renamed("fairseq_plugin.half_weights", "export fp16"))
