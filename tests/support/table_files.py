"""Rows of tables, and the dialect that options choose."""

from argparse import Namespace

from roberta_small.preprocess.readers.dialect import dialect_of
from roberta_small.preprocess.readers.tables import read_table


def rows(path, dialect=None):
    table = read_table(path, dialect)
    return list(zip(table.index, *(table[name] for name in table.columns), strict=True))


def chosen(encoding=None, delimiter=None, no_header=None, header_row=None, sheet=None):
    """The dialect that the options choose."""
    return dialect_of(Namespace(**locals()))
