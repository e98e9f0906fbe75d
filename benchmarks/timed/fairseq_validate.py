"""fairseq-validate with a clock from the end of loading the model to the end.

python -m benchmarks.timed.fairseq_validate OUT.json words of fairseq-validate ...
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from fairseq import checkpoint_utils
from fairseq_cli.validate import cli_main

from common.files import atomic_write


def main(output: str, *words: str) -> None:
    """Validate as the words say, then write the seconds since the model was loaded."""
    loaded: list[float] = []
    load = checkpoint_utils.load_model_ensemble_and_task

    def timed(*args: Any, **kwargs: Any) -> Any:
        ensemble = load(*args, **kwargs)
        loaded.append(time.perf_counter())
        return ensemble

    checkpoint_utils.load_model_ensemble_and_task = timed
    sys.argv = ["fairseq-validate", *words]
    cli_main()
    atomic_write(output, json.dumps({"seconds": [time.perf_counter() - loaded[0]]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
