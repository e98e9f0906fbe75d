"""`predict`: from texts in the command line, in lines or in a table to predictions in several formats."""
