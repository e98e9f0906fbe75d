"""The fairseq extension of this project: `fairseq-train DATA --user-dir fairseq_plugin ...`."""

import sys

from roberta_small.fairseq_plugin import registration  # noqa: F401

if __name__ == "fairseq_plugin":
    # fairseq imports this folder by its own name, and then each module in tasks/ and models/. They are the
    # modules that `registration` has imported, so that nothing is registered twice.
    _installed = f"roberta_small.{__name__}"
    for _name in [name for name in sys.modules if name.startswith(f"{_installed}.")]:
        sys.modules[_name.removeprefix("roberta_small.")] = sys.modules[_name]
