"""`roberta-small COMMAND`: the one command of the project."""

from __future__ import annotations

import importlib
import sys

from roberta_small.common.errors import UsageError, report_errors

USAGE = """\
usage: roberta-small COMMAND [options]

commands:
  train, pretrain        train runs (roberta-small train --help)
  parameters, ppmi-svd   count the parameters of a model, compute initial weights
  preprocess, eval, analysis, export, experiments
                         the commands of a package (roberta-small analysis --help)
  install-fairseq        install fairseq for this interpreter
"""
MODULES = {
    "install-fairseq": "roberta_small.common.install_fairseq",
    **{
        name: f"roberta_small.{name}.__main__"
        for name in ("preprocess", "eval", "analysis", "export", "experiments")
    },
}


@report_errors
def main(arguments: list[str] | None = None) -> int | None:
    """Run one command; returns its exit code."""
    command, *rest = (sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if command in ("-h", "--help"):
        print(USAGE, end="")
        return 0
    if command in ("train", "pretrain", "parameters", "ppmi-svd"):
        command, rest = "experiments", [command, *rest]
    if command not in MODULES:
        raise UsageError(f"{command!r} is not a command (see roberta-small --help)", usage=USAGE)
    return importlib.import_module(MODULES[command]).main(rest)


if __name__ == "__main__":
    sys.exit(main())
