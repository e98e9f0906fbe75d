"""Statistics as `common.tables.Table`: rounded cells for readers, full precision for files."""
