"""Statistics as `common.tables.Table`, with rounded cells and full precision."""
