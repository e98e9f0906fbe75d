"""The words of command lines, for tests over commands and tables."""

COMMANDS = ("runs", "tables", "compare", "figures", "report", "collect")


def words_of(name, source, *more):
    """Those of a command, or of `tables` for the name of a table."""
    words = [name, source] if name in COMMANDS else ["tables", source, "--table", name]
    return [str(word) for word in (*words, *more)]


def study_words(folder, text):
    """The option --study with a file of this text in `folder`."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return ["--study", str(path)]
