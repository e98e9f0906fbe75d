"""What commands print, and the facts in the notes below tables."""

import json

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


def failed(capsys, *words):
    """What the command prints on standard error; it must fail."""
    assert main([str(word) for word in words]) == 1
    return capsys.readouterr().err


def parsed(capsys, *words):
    """The tables that the command prints as JSON, which must be strict."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    return json.loads(printed(capsys, *words, "--format", "json"), parse_constant=refuse)


def rows_of(text):
    """The cells of all Markdown tables in a text, without the rules below their headings."""
    lines = [line for line in text.splitlines() if line.startswith("| ") and "---" not in line]
    return [[cell.strip() for cell in line.strip("|").split(" |")] for line in lines]
