"""Train, compare and trust small RoBERTa sentence classifiers in fairseq.

The packages of the repository below one name: `roberta_small.analysis`, `roberta_small.eval`, ... Importing
this package imports none of them.
"""

from pathlib import Path

USER_DIR = str(Path(__file__).with_name("user_dir") / "roberta_small_plugin")
"""The folder for `fairseq-train --user-dir`."""
