"""The fairseq extension of this project: `fairseq-train DATA --user-dir fairseq_plugin ...`."""

from common.startup import only_prints_help

if not only_prints_help():
    from . import registration  # noqa: F401
