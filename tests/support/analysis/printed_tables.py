"""What commands print, and the facts in the notes below tables."""

from roberta_small.analysis.__main__ import main


def notes_with(out, *facts):
    """The notes that contain all the facts: numbers, names of runs and options, names of tests."""
    notes = [line[2:] for line in out.splitlines() if line.startswith("- ")]
    return [note for note in notes if all(fact in note for fact in facts)]


def printed(capsys, *words):
    """What the command prints; it must succeed."""
    code = main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert code == 0, err
    return out


def rows_of(text):
    """The cells of all Markdown tables in a text, without the rules below their headings."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
