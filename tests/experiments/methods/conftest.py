import random

import pytest

from roberta_small.experiments.methods.lora import sample

WORDS = {
    "good": ["captivant", "superbe", "émouvant"],
    "bad": ["ennuyeux", "plat", "raté"],
    "mixed": ["inégal", "long", "correct"],
}
COMMON = ["le", "livre", "est", "un", "peu", "très"]


def write_split(folder, name, labels, seed):
    """Write texts of common words, most of them with one word that depends on the class."""
    draw = random.Random(seed)
    lines = []
    for label in labels:
        word = draw.choice(WORDS[label]) if draw.random() < 0.9 else "roman"
        lines.append(" ".join([*draw.sample(COMMON, 3), word]))
    (folder / f"{name}.input0").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (folder / f"{name}.label").write_text("".join(f"{label}\n" for label in labels), encoding="utf-8")


@pytest.fixture
def texts(tmp_path, request):
    """A folder of text and labels of two classes, or of those of a parameter; the first has one more."""
    classes = getattr(request, "param", ["good", "bad"])
    folder = tmp_path / "text"
    folder.mkdir()
    for seed, (name, copies) in enumerate((("train", 30), ("valid", 10), ("test", 12))):
        labels = [label for label in classes for _ in range(copies)] + classes[:1]
        write_split(folder, name, labels, seed)
    return folder


@pytest.fixture(scope="session")
def causal_sample(tmp_path_factory):
    """A folder with the questions and the BLOOM of `lora-causal --sample`, trained for 30 updates."""
    folder = tmp_path_factory.mktemp("sample")
    sample.write(folder, updates=30)
    return folder
