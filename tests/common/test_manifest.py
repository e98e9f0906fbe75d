"""The manifest of a run: round trip, and errors that name the file and the key."""

import json

import pytest

from roberta_small.common import manifest
from roberta_small.common.errors import UserError

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
    """The manifest of the run folder `tmp_path`."""
    return tmp_path / "manifest.json"


def test_written_manifest_is_read_again(tmp_path, path):
    manifest.write(tmp_path, GOOD)
    assert manifest.read(tmp_path) == GOOD
    assert json.loads(path.read_text(encoding="utf-8")) == GOOD
    assert "données" in path.read_text(encoding="utf-8")


def test_missing_manifest_is_none(tmp_path):
    assert manifest.read(tmp_path) is None
    assert manifest.read(tmp_path / "no" / "run") is None


def test_truncated_manifest_is_an_error(tmp_path, path):
    manifest.write(tmp_path, GOOD)
    whole = path.read_bytes()
    for part in (0.0, 0.3, 0.6, 0.99):
        path.write_bytes(whole[: int(len(whole) * part)])
        with pytest.raises(UserError, match=rf"^{path}, line \d+: .*JSON"):
            manifest.read(tmp_path)


WRONG = [(key, value) for key in manifest.REQUIRED for value in (None, True, 1.5)]
WRONG += [("recipe_flags", {}), ("checkpoint", "model.pt"), ("seconds", "1"), ("ended", 0), ("packages", [])]


@pytest.mark.parametrize(("key", "value"), WRONG)
def test_error_for_a_wrong_type_names_the_key(path, key, value):
    with pytest.raises(UserError, match=rf"^{path}: .*'{key}'.*type"):
        manifest.validate(GOOD | {key: value}, path)


@pytest.mark.parametrize("key", manifest.REQUIRED)
def test_error_for_a_missing_key_names_it(tmp_path, path, key):
    path.write_text(json.dumps({name: value for name, value in GOOD.items() if name != key}))
    with pytest.raises(UserError, match=rf"^{path}: .*'{key}'.*missing"):
        manifest.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ([GOOD], "object"),
        (GOOD | {"schema": 2}, "schema 2.* 1"),
        (GOOD | {"status": "done"}, "status 'done'"),
        (GOOD | {"data": {"path": "data", "sha256": []}}, "'data: sha256'.*type"),
    ],
)
def test_invalid_content_is_an_error(tmp_path, path, content, fact):
    path.write_text(json.dumps(content))
    with pytest.raises(UserError, match=rf"^{path}: .*{fact}"):
        manifest.read(tmp_path)


def test_invalid_manifest_is_not_written(tmp_path):
    manifest.write(tmp_path, GOOD)
    with pytest.raises(UserError, match="status"):
        manifest.write(tmp_path, GOOD | {"status": "done"})
    assert manifest.read(tmp_path) == GOOD
    assert [path.name for path in tmp_path.iterdir()] == ["manifest.json"]
