"""Readers of raw text formats, and the table of those that come with the package."""

from roberta_small.preprocess.readers import lines, tables, webis
from roberta_small.preprocess.readers.records import (
    TABLE,
    Record,
    names,
    read_records,
    reader_name,
    register,
    suffixes_of,
)
from roberta_small.preprocess.readers.tables import register_table

__all__ = [
    "TABLE",
    "Record",
    "names",
    "read_records",
    "reader_name",
    "register",
    "register_table",
    "suffixes_of",
]

register("lines", lines.read)
register("webis", webis.read, suffixes=(".xml",))
register(TABLE, tables.read)
register_table(tables.load_delimited, suffixes=(".csv", ".tsv"))
register_table(tables.load_json, suffixes=(".json",))
register_table(tables.load_json_lines, suffixes=(".jsonl",))
register_table(tables.load_parquet, suffixes=(".parquet",))
