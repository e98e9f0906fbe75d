"""The words of command lines, for tests over commands and tables."""

COMMANDS = ("runs", "tables", "compare", "figures", "report", "collect")


def words_of(name, source, *more):
    """Those of a command, or of `tables` for the name of a table."""
    words = [name, source] if name in COMMANDS else ["tables", source, "--table", name]
    return [str(word) for word in (*words, *more)]
