"""Deprecated: `python -m fairseq_plugin.parameters` is now `python -m fairseq_plugin parameters`."""

import sys

from common.cli import deprecation

from .models.parameters import main

if __name__ == "__main__":
    deprecation("python -m fairseq_plugin.parameters is deprecated, use python -m fairseq_plugin parameters")
    sys.exit(main())
