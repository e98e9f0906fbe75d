"""Readers of raw text formats, and the table of those that come with the package."""

from roberta_small.preprocess.readers import binary, delimited, lines, objects, tables, webis
from roberta_small.preprocess.readers.records import (
    TABLE,
    Record,
    read_records,
    reader_name,
    register,
    suffixes_of,
)
from roberta_small.preprocess.readers.tables import register_table

__all__ = ["TABLE", "Record", "read_records", "reader_name", "register", "register_table", "suffixes_of"]

register("lines", lines.read)
register("webis", webis.read, suffixes=(".xml",))
register(TABLE, tables.read)
HEADER = ("header", "header_row")
register_table(delimited.load_delimited, (".csv", ".tsv"), options=("encoding", "delimiter", *HEADER))
register_table(objects.load_json, (".json",), options=("encoding",))
register_table(objects.load_json_lines, (".jsonl",), options=("encoding",))
register_table(binary.load_parquet, (".parquet",))
register_table(binary.load_workbook, (".xlsx",), options=(*HEADER, "sheet"))
