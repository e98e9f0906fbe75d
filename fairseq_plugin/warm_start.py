"""Deprecated: `python -m fairseq_plugin.warm_start` is now `python -m fairseq_plugin ppmi-svd`."""

import sys

from common.cli import renamed

if __name__ == "__main__":
    sys.exit(renamed("fairseq_plugin.warm_start", "fairseq_plugin ppmi-svd"))
