"""What this project adds to fairseq: `fairseq-train DATA --user-dir fairseq_plugin …`.

Importing the package registers the task `sentence_classification`, the criteria
`sentence_classification`, `fast_masked_lm` and `fast_lm`, the models and architectures `roberta_small`,
`causal_roberta_small` and `causal_lm_small`, the optimizer `fused_adam` and the schedule `time_budget`;
lets fairseq read its own checkpoints without executing code from them, and weights in safetensors;
checks the checkpoint that a run starts from before its first update; refuses flags of precision that
fairseq would crash on; lets it mask whole words; compares data with the checksums recorded of them, and
says where there is no batch; lets a CPU have several processes for a run; keeps the curves of a run
that goes on whole; stops a training that diverges, and fairseq's loading threads before the process
ends; and turns a user's mistake into one line.
"""

import logging

from common.errors import install_excepthook

# On import, fairseq's speech modules ask for a package that nothing here needs, and set the root logger to
# show whatever any library has to say for debugging.
logging.getLogger("fairseq.tasks.text_to_speech").setLevel(logging.ERROR)
_root = logging.getLogger()
_level, _handlers = _root.level, list(_root.handlers)

from .checkpoints import initialization  # noqa: E402
from .checkpoints import loading as checkpoints  # noqa: E402
from .models import causal, roberta  # noqa: E402, F401
from .tasks import criterion, datasets, language_modeling, sentence_classification  # noqa: E402, F401
from .training import curves, distributed, optimizer, precision, schedule, termination  # noqa: E402, F401

_root.setLevel(_level)
_root.handlers[:] = _handlers
install_excepthook()
checkpoints.allow_fairseq_objects()
checkpoints.let_fairseq_read_safetensors()
initialization.check_before_training()
precision.check_before_training()
curves.keep()
datasets.check_when_opened()
datasets.check_batches()
termination.stop_at_divergence()
termination.stop_at_exit()
distributed.adapt()
language_modeling.let_fairseq_find()
