import json

import pytest

from common.data_folder import recorded_checksums, require_recorded, shard_name, shards_of
from common.errors import UserError


def test_shards_are_in_the_order_of_their_numbers(tmp_path):
    for number in range(12):
        (tmp_path / shard_name(number)).mkdir()
    (tmp_path / "shard12").write_text("a file")
    (tmp_path / "shards").mkdir()
    assert [folder.name for folder in shards_of(tmp_path)] == [f"shard{number}" for number in range(12)]
    assert shards_of(tmp_path / "shard0") == [tmp_path / "shard0"]


def test_a_missing_shard_is_named(tmp_path):
    for number in (0, 2):
        (tmp_path / shard_name(number)).mkdir()
    with pytest.raises(UserError, match=r"shard1.*shard2"):
        shards_of(tmp_path)


def test_recorded_checksums(tmp_path):
    assert recorded_checksums(tmp_path) == {}
    (tmp_path / "preprocess.json").write_text(json.dumps({"files": {"dict.txt": "ab"}}))
    assert recorded_checksums(tmp_path) == {"dict.txt": "ab"}
    require_recorded(tmp_path / "dict.txt", "ab", "ab", tmp_path)
    require_recorded(tmp_path / "other", "ab", None, tmp_path)
    with pytest.raises(UserError, match=r"dict\.txt: not the file that .*preprocess\.json records"):
        require_recorded(tmp_path / "dict.txt", "ac", "ab", tmp_path)


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"files": []}', "[" * 100_000])
def test_a_report_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "preprocess.json").write_text(content)
    with pytest.raises(UserError, match=r"preprocess\.json: not the report"):
        recorded_checksums(tmp_path)
