"""Running text for pre-training: what is dropped, what is kept, and that nothing protected is left."""

import itertools
import json
import lzma
import re
from itertools import pairwise

import numpy as np
import pytest

from roberta_small.preprocess import corpus
from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.corpus import Seen

SECRET = "Ce roman commence lentement mais la fin est tout à fait bouleversante"
OTHER = "Le ministre a présenté hier son projet de loi devant une assemblée attentive"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "a.txt").write_text(
        f"Un titre\n{OTHER}.\n\n\n\n{OTHER.upper()} !\nUn autre paragraphe assez long.\n"
        f"Il pleut. {SECRET.replace(' ', '  ')}; dit-il. Fin.\n",
        encoding="utf-8",
    )
    with lzma.open(tmp_path / "b.txt.xz", "wt", encoding="utf-8") as stream:
        stream.write("Un autre paragraphe, assez long !\nTout nouveau paragraphe de ce fichier.\n")
    (tmp_path / "test.review").write_text(
        f"Bof. {SECRET}.\nUn autre paragraphe assez long.\n", encoding="utf-8"
    )
    return tmp_path


def words(files, *more):
    texts = [str(files / "a.txt"), str(files / "b.txt.xz")]
    return ["corpus", "--text", *texts, "--protect", str(files / "test.review"), *more]


def test_each_paragraph_once_and_nothing_protected(files):
    output = files / "corpus.txt"
    assert main(words(files, "--out", str(output))) == 0
    assert output.read_text(encoding="utf-8").split("\n") == [
        f"{OTHER}.",
        "",
        "Un autre paragraphe assez long.",  # stands in the protected text too, but is short
        "",
        "Tout nouveau paragraphe de ce fichier.",
        "",
        "",
    ]
    report = json.loads((files / "corpus.txt.json").read_text())
    first, second = report["paragraphs"].values()
    assert first == {"kept": 2, "short": 1, "duplicate": 1, "protected": 1}
    assert second == {"kept": 1, "short": 0, "duplicate": 1, "protected": 0}
    assert report["sha256"].keys() == {
        str(files / n) for n in ("a.txt", "b.txt.xz", "test.review", "corpus.txt")
    }


def test_the_check_finds_what_the_command_removes(files, capsys):
    assert main(words(files, "--check")) == 1
    said = capsys.readouterr().out
    assert "a.txt, line 8: " in said
    assert re.findall(r"\d+", said.splitlines()[-1]) == ["1", "50"]
    main(words(files, "--out", str(files / "corpus.txt")))
    text = ["corpus", "--text", str(files / "corpus.txt"), "--protect", str(files / "test.review")]
    assert main([*text, "--check"]) == 0


def test_sentences_agree_with_a_plain_reading():
    """Every run of words between two ends, by another way of cutting."""
    parts = [SECRET, "Non", OTHER, "L'été, c'est l'été"]
    for order in itertools.permutations(parts):
        line = "! ".join(order) + "…"
        plain = [" ".join(re.findall(r"\w+", part.lower())) for part in order]
        assert list(corpus.sentences(line)) == [part for part in plain if len(part) >= 50]


@pytest.mark.parametrize(
    ("spoil", "flags", "said"),
    [
        (lambda f: (f / "a.txt").unlink(), ["--check"], "a.txt"),
        (lambda f: (f / "b.txt.xz").write_bytes(b"\xfd7zXZ"), ["--check"], "b.txt.xz: "),
        (lambda f: (f / "test.review").write_bytes(b"caf\xe9\n"), ["--check"], "test.review, line 1: byte 4"),
    ],
)
def test_wrong_input_gets_a_clear_error(files, capsys, spoil, flags, said):
    spoil(files)
    assert main(words(files, *flags)) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]


def test_a_failure_leaves_no_output(files):
    (files / "b.txt.xz").write_bytes(b"caf\xe9\n")
    assert main(words(files, "--out", str(files / "corpus.txt"))) == 1
    assert not (files / "corpus.txt").exists()


def test_a_check_needs_something_to_protect(files, capsys):
    assert main(["corpus", "--text", str(files / "a.txt"), "--check"]) == 1
    assert re.search("--check .*--protect", capsys.readouterr().err)


@pytest.mark.parametrize("most", [50, 5_000, 2**64 - 1])
def test_new_is_what_a_set_has_not(most):
    generator = np.random.default_rng(1)
    seen, known = Seen(), set()
    for size in [0, 1, 1, 700, 3, *generator.integers(0, 900, 40)]:
        keys = generator.integers(0, most, size, np.uint64, endpoint=True)
        expected = []
        for key in keys.tolist():
            expected.append(key not in known)
            known.add(key)
        assert seen.add(keys).tolist() == expected
    kept = np.concatenate(seen.sorted_arrays)
    assert set(kept.tolist()) == known
    assert len(kept) == len(known)


def test_eight_bytes_a_key_in_a_few_arrays():
    seen = Seen()
    for start in range(0, 100_000, 100):
        assert seen.add(np.arange(start, start + 100, dtype=np.uint64)).all()
    lengths = [len(array) for array in seen.sorted_arrays]
    assert sum(array.nbytes for array in seen.sorted_arrays) == 800_000
    assert all(longer > 2 * shorter for longer, shorter in pairwise(lengths))
