"""Importing this module registers the extension with fairseq; the package does so when it is imported.

It registers the tasks `sentence_classification` and `distillation`, the criteria of these names,
`fast_masked_lm` and `fast_lm`, the models `roberta_small`, `causal_roberta_small`, `causal_lm_small` and
`ngram_classifier`, the optimizers `fused_adam` and `shared_adam` and the schedule `time_budget`. It also adds
fairseq's configuration classes to torch's allow-list for safe loading, replaces the functions and registry
entries of fairseq that `compat.py` lists, and reports user errors as clear messages without a traceback.
"""

import atexit
import logging

from roberta_small.common.cli import load_extensions
from roberta_small.common.errors import install_excepthook
from roberta_small.common.startup import import_of_fairseq, is_command

# On import, fairseq's speech modules log that an optional package is missing, and set the root logger's level
# and handlers so that the debug messages of all libraries are shown.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.ERROR)
_root = logging.getLogger()
_level, _handlers = _root.level, list(_root.handlers)

with import_of_fairseq():
    import fairseq  # noqa: F401
from roberta_small.fairseq_plugin import compat, library_warnings  # noqa: E402
from roberta_small.fairseq_plugin.checkpoints import loading  # noqa: E402
from roberta_small.fairseq_plugin.models import causal, ngrams, roberta  # noqa: E402, F401
from roberta_small.fairseq_plugin.tasks import (  # noqa: E402
    criterion,  # noqa: F401
    distillation,  # noqa: F401
    language_modeling,  # noqa: F401
    sentence_classification,  # noqa: F401
)
from roberta_small.fairseq_plugin.training import optimizer, termination, time_budget  # noqa: E402, F401

_root.setLevel(_level)
_root.handlers[:] = _handlers
if is_command():
    install_excepthook()
library_warnings.filter_warnings()
loading.allow_fairseq_objects()
optimizer.leave_out_compiler()
atexit.register(termination.stop_loading)
compat.install()
load_extensions()
