import hashlib
import json
from collections import Counter

import pytest

from roberta_small.preprocess.__main__ import main
from roberta_small.preprocess.split import stratified_split

LABELS = [["b", "a", "a"][i % 3] for i in range(50)]  # 17 b, 33 a


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(
        "".join(f"livre {i}\r \u2028\n" for i in range(50)), encoding="utf-8", newline=""
    )
    (tmp_path / "label").write_text("".join(f"{label}\n" for label in LABELS))
    return tmp_path


def split(*arguments, destdir="out"):
    return main(["split", "--text", "text", "--label", "label", "--destdir", destdir, *arguments])


def lines(path):
    return path.read_bytes().decode().split("\n")[:-1]


def test_parts_are_disjoint_complete_and_in_order(source):
    assert split("--valid-size", "10") == 0
    indices = json.loads((source / "out/split.json").read_text())["indices"]
    assert sorted(indices["train"] + indices["valid"]) == list(range(50))
    texts = lines(source / "text")
    for name, size in (("train", 40), ("valid", 10)):
        assert indices[name] == sorted(indices[name])
        assert lines(source / f"out/{name}.input0") == [texts[i] for i in indices[name]]
        assert lines(source / f"out/{name}.label") == [LABELS[i] for i in indices[name]]
        assert len(indices[name]) == size


def test_classes_share_in_proportion():
    """10 of 50 lines with classes of 33 and 17: exact shares 6.6 and 3.4."""
    valid = stratified_split(LABELS, 10, seed=1)["valid"]
    assert Counter(LABELS[i] for i in valid) == {"a": 7, "b": 3}


def test_order_is_the_documented_hash():
    valid = stratified_split(["x"] * 20, 5, seed=7)["valid"]
    keys = {i: hashlib.sha256(f"7 {i}".encode()).hexdigest() for i in range(20)}
    assert valid == sorted(sorted(keys, key=keys.get)[:5])


def test_seed_decides():
    first, again, other = (stratified_split(LABELS, 10, seed) for seed in (1, 1, 2))
    assert first == again
    assert first != other


def test_fraction(source):
    assert split("--valid-size", "0.3") == 0
    assert len(lines(source / "out/valid.label")) == 15


def test_repeated_from_indices(source):
    split("--valid-size", "10", "--seed", "4")
    assert split("--from-indices", "out/split.json", destdir="again") == 0
    for name in ("train.input0", "train.label", "valid.input0", "valid.label"):
        assert (source / "out" / name).read_bytes() == (source / "again" / name).read_bytes()
    (source / "text").write_text("autre\n" * 50)
    assert split("--from-indices", "out/split.json", destdir="third") == 1
    assert not (source / "third").exists()


def test_changed_source_is_named(source, capsys):
    split("--valid-size", "10")
    (source / "label").write_text("a\n" * 50)
    assert split("--from-indices", "out/split.json", destdir="again") == 1
    error = capsys.readouterr().err
    assert error.startswith("error: label: ")
    assert "out/split.json" in error


def test_pairs_and_test_set_go_along(source):
    (source / "second").write_text("".join(f"réponse {i}\n" for i in range(50)), encoding="utf-8")
    command = [
        "split",
        "--text",
        "text",
        "second",
        "--label",
        "label",
        "--valid-size",
        "10",
        "--destdir",
        "out",
    ]
    assert main([*command, "--test-text", "second", "text", "--test-label", "label"]) == 0
    assert (source / "out/test.input0").read_bytes() == (source / "second").read_bytes()
    assert (source / "out/test.input1").read_bytes() == (source / "text").read_bytes()
    first = [line.split()[1] for line in lines(source / "out/valid.input0")]
    assert first == [line.split()[1] for line in lines(source / "out/valid.input1")]


def test_same_request_is_left_alone_and_another_refused(source, capsys):
    split("--valid-size", "10")
    before = (source / "out/train.input0").stat()
    assert split("--valid-size", "10") == 0
    assert split("--valid-size", "11") == 1
    assert "out: exists" in capsys.readouterr().err
    assert (source / "out/train.input0").stat() == before
    assert split("--valid-size", "11", "--overwrite") == 0
    assert len(lines(source / "out/valid.label")) == 11


def damage(change):
    """A split.json with something else in it."""

    def spoil(source):
        report = json.loads((source / "good/split.json").read_text())
        change(report)
        (source / "bad.json").write_text(json.dumps(report))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "arguments", "message"),
    [
        (lambda s: (s / "label").write_text("a\n" * 49), [], "text has 50 lines but label has 49"),
        (lambda s: (s / "label").write_text("a\n" * 49 + "\n"), [], "label, line 50: no label"),
        (lambda s: (s / "text").write_bytes(b"a\n\xff\n"), [], "text, line 2: byte 1 is not UTF-8"),
        (lambda s: (s / "text").unlink(), [], "text: No such file"),
        (lambda s: None, ["--valid-size", "50"], "--valid-size 50"),
        (lambda s: None, ["--valid-size", "0.001"], "--valid-size 0.001: 0 of 50"),
        (lambda s: None, ["--valid-size", "few"], "--valid-size few:"),
        (lambda s: None, ["--test-label", "label"], "--test-text and --test-label:"),
        (lambda s: None, ["--from-indices", "text"], "text: not a split.json"),
        (damage(lambda r: r.pop("indices")), ["--from-indices", "bad.json"], "bad.json: not a split.json"),
        (
            damage(lambda r: r["indices"]["valid"].append(50)),
            ["--from-indices", "bad.json"],
            "bad.json: index 50",
        ),
        (
            damage(lambda r: r["indices"]["valid"].extend(r["indices"]["train"][:1])),
            ["--from-indices", "bad.json"],
            "is repeated or outside",
        ),
    ],
)
def test_fault_is_a_clear_error_and_leaves_nothing(source, capsys, spoil, arguments, message):
    split("--valid-size", "10", destdir="good")
    capsys.readouterr()
    spoil(source)
    assert split(*(arguments or ["--valid-size", "10"])) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
    assert not (source / "out").exists()
