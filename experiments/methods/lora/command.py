"""`python -m hf lora`: low-rank adapters instead of training all weights.

Hu et al. 2021, arXiv 2106.09685.
"""

from __future__ import annotations

import argparse

from . import classify, sample, table
from .causal import command

COMMANDS = (classify, command, table, sample)


def register(subparsers: argparse._SubParsersAction) -> None:
    """Add the command `lora` with commands of its own."""
    parser = subparsers.add_parser(
        "lora", help="LoRA of the classifier, or of a causal language model", description=__doc__
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for module in COMMANDS:
        module.register(commands)
