"""The manifest of a run: what is written is read again; what breaks the contract is named."""

import json

import pytest

from common import manifest
from common.errors import UserError

GOOD = {
    "schema": 1,
    "status": "finished",
    "arm": "fairseq",
    "init": "random",
    "seed": 1,
    "recipe": "reference",
    "command": ["fairseq-train", "données"],
    "data": {"path": "data", "sha256": {}},
}


@pytest.fixture
def path(tmp_path):
    """Where the manifest of the run `tmp_path` is."""
    return tmp_path / "manifest.json"


def test_round_trip(tmp_path, path):
    manifest.write(tmp_path, GOOD)
    assert manifest.read(tmp_path) == GOOD
    assert json.loads(path.read_text(encoding="utf-8")) == GOOD
    assert "données" in path.read_text(encoding="utf-8")


def test_no_manifest_is_none(tmp_path):
    assert manifest.read(tmp_path) is None
    assert manifest.read(tmp_path / "no" / "run") is None


@pytest.mark.parametrize("status", manifest.STATUSES)
def test_every_status_is_allowed(status):
    assert manifest.validate(GOOD | {"status": status}, "m")["status"] == status


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.99])
def test_a_manifest_cut_short_is_named(tmp_path, path, part):
    manifest.write(tmp_path, GOOD)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(UserError, match=rf"{path}, line \d+: not JSON .*delete the run folder"):
        manifest.read(tmp_path)


def test_a_manifest_cut_within_a_character_is_named(tmp_path, path):
    path.write_bytes('{"recipe": "é'.encode()[:-1])
    with pytest.raises(UserError, match=f"{path}: not UTF-8"):
        manifest.read(tmp_path)


@pytest.mark.parametrize("key", manifest.REQUIRED)
@pytest.mark.parametrize("value", [None, True, 1.5], ids=repr)
def test_a_key_of_the_wrong_type_is_named(path, key, value):
    with pytest.raises(UserError, match=f"{path}: key '{key}' has the wrong type"):
        manifest.validate(GOOD | {key: value}, path)


@pytest.mark.parametrize(
    ("key", "value"),
    [("recipe_flags", {}), ("checkpoint", "model.pt"), ("seconds", "1"), ("ended", 0), ("packages", [])],
)
def test_an_optional_key_of_the_wrong_type_is_named(path, key, value):
    with pytest.raises(UserError, match=f"{path}: key '{key}' has the wrong type"):
        manifest.validate(GOOD | {key: value}, path)


def test_checksums_of_the_wrong_type_are_named(path):
    with pytest.raises(UserError, match="key 'data: sha256' has the wrong type"):
        manifest.validate(GOOD | {"data": {"path": "data", "sha256": []}}, path)


@pytest.mark.parametrize("content", ["[" * 100_000, '{"seed": ' + "1" * 5000 + "}"], ids=["deep", "long"])
def test_json_that_python_does_not_read_is_named(tmp_path, path, content):
    path.write_text(content)
    with pytest.raises(UserError, match=f"{path}: not "):
        manifest.read(tmp_path)


@pytest.mark.parametrize("key", manifest.REQUIRED)
def test_a_missing_key_is_named(tmp_path, path, key):
    path.write_text(json.dumps({name: value for name, value in GOOD.items() if name != key}))
    with pytest.raises(UserError, match=f"{path}: key '{key}' is missing"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ([GOOD], "not a JSON object"),
        (GOOD | {"schema": 2}, "schema 2, but this version reads 1"),
        (GOOD | {"status": "done"}, "status 'done' is none of running, finished"),
    ],
)
def test_other_breaches_are_named(tmp_path, path, content, said):
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=f"{path}: {said}"):
        manifest.read(tmp_path)


def test_a_wrong_manifest_is_not_written(tmp_path):
    manifest.write(tmp_path, GOOD)
    with pytest.raises(UserError, match="status"):
        manifest.write(tmp_path, GOOD | {"status": "done"})
    assert manifest.read(tmp_path) == GOOD
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
