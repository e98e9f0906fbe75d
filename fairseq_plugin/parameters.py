"""Deprecated: `python -m fairseq_plugin.parameters` is now `python -m fairseq_plugin parameters`."""

import sys

from common.cli import renamed

if __name__ == "__main__":
    sys.exit(renamed("fairseq_plugin.parameters", "fairseq_plugin parameters"))
