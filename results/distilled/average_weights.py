"""The mean of the weights of two or more checkpoints of one network (Wortsman et al. 2022).

    python results/distilled/average_weights.py first.pt second.pt --out mean.pt

All else of the result is that of the first checkpoint.
"""

from pathlib import Path

import torch

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_open
from roberta_small.fairseq_plugin.checkpoints.loading import load_checkpoint


@report_errors
def main() -> None:
    """The command."""
    parser = Parser(description=__doc__)
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    if len(options.checkpoints) < 2:
        parser.error("a mean needs two or more checkpoints")
    first, *others = (load_checkpoint(path) for path in options.checkpoints)
    shapes = {name: weights.shape for name, weights in first["model"].items()}
    for path, other in zip(options.checkpoints[1:], others, strict=True):
        if {name: weights.shape for name, weights in other["model"].items()} != shapes:
            raise UserError(f"{path}: another network than that of {options.checkpoints[0]}")
    for name, weights in first["model"].items():
        if weights.is_floating_point():
            total = weights + sum(other["model"][name] for other in others)
            first["model"][name] = total / len(options.checkpoints)
    with atomic_open(options.out, "wb") as stream:
        torch.save(first, stream)


if __name__ == "__main__":
    raise SystemExit(main())
