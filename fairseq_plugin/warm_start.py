"""Deprecated: `python -m fairseq_plugin.warm_start` is now `python -m fairseq_plugin ppmi-svd`."""

import sys

from common.cli import deprecation

from .checkpoints.ppmi_svd import main

if __name__ == "__main__":
    deprecation("python -m fairseq_plugin.warm_start is deprecated, use python -m fairseq_plugin ppmi-svd")
    sys.exit(main())
