"""The settings of a command line, as the commands parse them."""

from roberta_small.common.cli import SettingsParser
from roberta_small.experiments import slurm
from roberta_small.experiments.methods import fairseq, pretrain


def settings_of(method, argv, environ):
    parser = SettingsParser(prog=f"roberta-small {method.name}")
    method.add_arguments(parser)
    options = parser.parse_settings(slurm.join_value(argv), environ)
    if method is pretrain.METHOD:
        parser.require(options, "data", "out")
    return method.settings(options)


def train_settings(argv, environ):
    return settings_of(fairseq.METHOD, argv, environ)


def pretrain_settings(argv, environ):
    return settings_of(pretrain.METHOD, argv, environ)


def table(out):
    """The words of the final table, which has a column of states, without its last column, the times."""
    lines = out.splitlines()
    first = max(i for i, line in enumerate(lines) if {"init", "status"} <= set(line.split()))
    rows = []
    for line in lines[first:]:
        if not line:
            break
        rows.append(line.split()[:-1])
    return rows
