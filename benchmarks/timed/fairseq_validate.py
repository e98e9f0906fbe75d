"""fairseq-validate with a clock from the end of loading the model to the end.

python -m benchmarks.timed.fairseq_validate OUT.json arguments of fairseq-validate ...
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from fairseq import checkpoint_utils
from fairseq.tasks import FairseqTask
from fairseq_cli.validate import cli_main

from roberta_small.common.files import atomic_write


def main(output: str, *arguments: str) -> None:
    """Validate with these arguments, then write the seconds since the model was loaded.

    The first batch goes through the model once more, before, and does not count: what is done at the first
    time alone is no contender's.
    """
    loaded: list[float] = []
    warm_up: list[float] = []
    valid_step = FairseqTask.valid_step

    def warmed(*args: Any, **kwargs: Any) -> Any:
        if not warm_up:
            start = time.perf_counter()
            valid_step(*args, **kwargs)
            warm_up.append(time.perf_counter() - start)
        return valid_step(*args, **kwargs)

    load = checkpoint_utils.load_model_ensemble_and_task

    def timed(*args: Any, **kwargs: Any) -> Any:
        ensemble = load(*args, **kwargs)
        loaded.append(time.perf_counter())
        return ensemble

    checkpoint_utils.load_model_ensemble_and_task = timed
    FairseqTask.valid_step = warmed
    sys.argv = ["fairseq-validate", *arguments]
    cli_main()
    atomic_write(output, json.dumps({"seconds": [time.perf_counter() - loaded[0] - warm_up[0]]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
