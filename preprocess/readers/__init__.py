"""Readers of raw text formats, and the table of those that come with the package."""

from . import lines, tables, webis
from .records import Record, names, read_records, reader_name, register

__all__ = ["Record", "names", "read_records", "reader_name", "register"]

register("lines", lines.read)
register("webis", webis.read, suffixes=(".xml",))
register("table", tables.read, suffixes=(".csv", ".tsv", ".json", ".jsonl", ".parquet"))
