"""Running text for pre-training: what is dropped, what is kept, and that nothing protected is left."""

import itertools
import json
import lzma
import re

import numpy as np
import pytest
from fairseq.data.indexed_dataset import MMapIndexedDataset

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
    (tmp_path / "valid.txt").write_text("Une validation.\nDe deux lignes.\n", encoding="utf-8")
    (tmp_path / "test.review").write_text(
        f"Bof. {SECRET}.\nUn autre paragraphe assez long.\n", encoding="utf-8"
    )
    return tmp_path


def prepare(files, *more):
    texts = [str(files / "a.txt"), str(files / "b.txt.xz")]
    words = ["--protect", str(files / "test.review"), "--valid", str(files / "valid.txt")]
    return main(["prepare", "--corpus", *texts, *words, "--out", str(files / "bin"), *map(str, more)])


def test_each_paragraph_once_and_nothing_protected(files, capsys):
    assert prepare(files) == 0
    assert (files / "bin/text/train.txt").read_text(encoding="utf-8").split("\n") == [
        f"{OTHER}.",
        "",
        "Un autre paragraphe assez long.",  # stands in the protected text too, but is short
        "",
        "Tout nouveau paragraphe de ce fichier.",
        "",
        "",
    ]
    report = json.loads((files / "bin/preprocess.json").read_text())
    first, second = report["paragraphs"].values()
    assert first == {"kept": 2, "short": 1, "duplicate": 1, "protected": 1}
    assert second == {"kept": 1, "short": 0, "duplicate": 1, "protected": 0}
    assert report["sha256"].keys() == {
        str(files / n) for n in ("a.txt", "b.txt.xz", "valid.txt", "test.review")
    }
    assert len(MMapIndexedDataset(str(files / "bin/train"))) == 6
    assert len(MMapIndexedDataset(str(files / "bin/valid"))) == 2
    before = (files / "bin/train.bin").stat()
    assert prepare(files) == 0
    assert (files / "bin/train.bin").stat() == before
    assert prepare(files, "--vocabulary-size", "60") == 1  # another request
    assert "--overwrite" in capsys.readouterr().err


def test_the_tokenizer_of_a_corpus_is_that_of_other_data(files):
    assert prepare(files, "--vocabulary-size", "45") == 0
    assert len((files / "bin/dict.txt").read_text(encoding="utf-8").splitlines()) == 45 - 5
    (files / "train.txt").write_text("".join(f"Un paragraphe {i}.\n" for i in range(40)), encoding="utf-8")
    (files / "train.label").write_text("a\nb\n" * 20)
    words = ["prepare", str(files / "train.txt"), "--tokenizer", str(files / "bin")]
    assert main([*words, "--out", str(files / "data")]) == 0
    assert (files / "data/input0/dict.txt").read_bytes() == (files / "bin/dict.txt").read_bytes()
    assert main([*words, "--vocabulary-size", "50", "--out", str(files / "more")]) == 1


def test_documents_are_held_out_and_distributed(files):
    documents = [f"{OTHER} numéro {number}.\n\n" for number in range(40)]
    (files / "long.txt").write_text("".join(documents), encoding="utf-8")
    words = ["prepare", "--corpus", str(files / "long.txt"), "--out", str(files / "many")]
    assert main([*words, "--valid", "0.1", "--shards", "3"]) == 0
    assert len(MMapIndexedDataset(str(files / "many/shard0/valid"))) == 4 * 2
    sizes = [len(MMapIndexedDataset(str(files / f"many/shard{i}/train"))) for i in range(3)]
    assert sizes == [12 * 2] * 3
    assert len({(files / f"many/shard{i}/dict.txt").read_bytes() for i in range(3)}) == 1
    splits = json.loads((files / "many/preprocess.json").read_text())["splits"]
    assert [list(places) for places in splits.values()] == [["shard0", "shard1", "shard2"], ["shard0"]]


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
        (lambda f: (f / "a.txt").unlink(), [], "a.txt"),
        (lambda f: (f / "b.txt.xz").write_bytes(b"\xfd7zXZ"), [], "b.txt.xz: "),
        (lambda f: (f / "b.txt.xz").write_bytes(lzma.compress(b"un livre\n" * 1000)[:-20]), [], "b.txt.xz: "),
        (lambda f: (f / "test.review").write_bytes(b"caf\xe9\n"), [], "test.review, line 1: byte 4"),
        (lambda f: None, ["--valid", "absent.txt"], "--valid absent.txt"),
        (lambda f: None, ["--valid", "200"], "--valid 200"),
        (lambda f: (f / "valid.txt").unlink() or (f / "valid.txt").symlink_to(f / "a.txt"), [], "valid.txt"),
        (lambda f: None, ["--seed", "0"], "--seed"),
        (lambda f: None, ["--valid", "0.05"], "documents"),
        (lambda f: None, ["--shards", "501"], "--shards 501"),
        (lambda f: None, ["--shards", "9"], "--shards 9"),
        (lambda f: None, ["--test", "0.1"], "--test"),
        (lambda f: None, ["--text-column", "a"], "--text-column"),
    ],
)
def test_wrong_input_gets_a_clear_error_and_leaves_nothing(files, capsys, spoil, flags, said):
    spoil(files)
    before = sorted(files.iterdir())
    assert prepare(files, *flags) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert sorted(files.iterdir()) == before


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
    lengths = [len(array) for array in seen.sorted_arrays]
    assert all(longer > 2 * shorter for longer, shorter in itertools.pairwise(lengths))
    kept = np.concatenate(seen.sorted_arrays)
    assert set(kept.tolist()) == known
    assert len(kept) == len(known)
