"""`python -m fairseq_plugin ppmi-svd|parameters`: commands on the plugin's models."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from common.cli import Parser
from common.errors import report_errors

COMMANDS = {
    "ppmi-svd": ("checkpoints.ppmi_svd", "compute a PPMI-SVD initialization for pre-training"),
    "parameters": ("models.parameters", "count a model's parameters, by formula and on the built model"),
}
"""Name -> module with a `main`, help text."""


@report_errors
def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] in COMMANDS:
        module, _ = COMMANDS[words[0]]
        return importlib.import_module(f".{module}", __package__).main(words[1:])
    parser = Parser(
        prog="python -m fairseq_plugin",
        description="Commands on the plugin's models. `python -m fairseq_plugin.compat` lists the functions\n"
        "of fairseq that the plugin replaces.",
        examples="examples:\n  python -m fairseq_plugin parameters --encoder-layers 12\n"
        "  python -m fairseq_plugin ppmi-svd data/corpus --out pretrained/start.pt",
    )
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for name, (_, summary) in COMMANDS.items():
        subparsers.add_parser(name, help=summary)
    parser.parse_args(words)
    return 0


if __name__ == "__main__":
    sys.exit(main())
