"""The mean of the weights of two or more checkpoints of one network (Wortsman et al. 2022).

    python results/distilled/average_weights.py first.pt second.pt --out mean.pt

All else of the result is that of the first checkpoint.
"""

import argparse
from pathlib import Path

import torch


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkpoints", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    options = parser.parse_args()
    with torch.serialization.safe_globals([argparse.Namespace]):
        states = [torch.load(path, map_location="cpu", weights_only=True) for path in options.checkpoints]
    first, *others = (state["model"] for state in states)
    for name, weights in first.items():
        if weights.is_floating_point():
            weights.add_(sum(other[name] for other in others)).div_(len(states))
    torch.save(states[0], options.out)


if __name__ == "__main__":
    main()
