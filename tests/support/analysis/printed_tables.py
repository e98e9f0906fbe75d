"""Facts in the notes below printed tables."""


def notes_with(out, *facts):
    """The notes that contain all the facts: numbers, names of runs and options, names of tests."""
    notes = [line[2:] for line in out.splitlines() if line.startswith("- ")]
    return [note for note in notes if all(fact in note for fact in facts)]
