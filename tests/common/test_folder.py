from pathlib import Path

import pytest

from roberta_small.common.data_folder import check_replaceable, finished, request, write_report
from roberta_small.common.errors import UserError
from roberta_small.common.files import atomic_folder


def test_error_leaves_the_old_folder_and_no_trace(tmp_path):
    old = tmp_path / "out"
    old.mkdir()
    (old / "file").write_text("old")

    def fail_half_way():
        with atomic_folder(old) as folder:
            (folder / "file").write_text("new")
            raise ValueError("half")

    with pytest.raises(ValueError, match="half"):
        fail_half_way()
    assert (old / "file").read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_mistake_is_told_of_the_folder_to_be(tmp_path):
    with pytest.raises(UserError) as caught, atomic_folder(tmp_path / "out") as folder:
        raise UserError(f"{folder / 'dict.txt'}: cannot be written; the text is {tmp_path / 'train'}")
    said = f"{tmp_path / 'out' / 'dict.txt'}: cannot be written; the text is {tmp_path / 'train'}"
    assert str(caught.value) == said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["out/../out", ".", "sub/.."])
def test_a_path_with_dots(tmp_path, monkeypatch, name):
    out = tmp_path / "deep" / "out"
    (out / "sub").mkdir(parents=True)
    monkeypatch.chdir(out if name != "out/../out" else out.parent)
    with atomic_folder(Path(name)) as folder:
        (folder / "new").write_text("new")
    assert [path.name for path in out.iterdir()] == ["new"]
    assert list(out.parent.iterdir()) == [out]


def test_new_folder_takes_the_place_of_the_old(tmp_path):
    old = tmp_path / "deep" / "out"
    for text in ("first", "second"):
        with atomic_folder(old) as folder:
            (folder / text).write_text(text)
        assert [path.name for path in old.iterdir()] == [text]
    assert list(old.parent.iterdir()) == [old]


def test_finished_needs_the_same_request_and_intact_files(tmp_path):
    source = tmp_path / "source"
    source.write_text("a")
    wanted = request({"size": 1}, [str(source)])
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "file").write_text("x")
    report = write_report(tmp_path / "out", "report.json", wanted)
    assert finished(tmp_path / "out", "report.json", wanted) == report
    assert finished(tmp_path / "out", "report.json", request({"size": 2}, [str(source)])) is None
    source.write_text("b")
    assert finished(tmp_path / "out", "report.json", request({"size": 1}, [str(source)])) is None
    (tmp_path / "out" / "file").write_text("y")
    assert finished(tmp_path / "out", "report.json", wanted) is None
    assert finished(tmp_path / "absent", "report.json", wanted) is None


def test_what_may_be_replaced(tmp_path):
    check_replaceable(tmp_path / "absent", "report.json", overwrite=False)
    (tmp_path / "out").mkdir()
    check_replaceable(tmp_path / "out", "report.json", overwrite=False)
    (tmp_path / "out" / "thesis.tex").touch()
    with pytest.raises(UserError, match=rf"{tmp_path / 'out'}: .*report\.json.*--out"):
        check_replaceable(tmp_path / "out", "report.json", overwrite=True)
    (tmp_path / "out" / "report.json").touch()
    with pytest.raises(UserError, match="--overwrite"):
        check_replaceable(tmp_path / "out", "report.json", overwrite=False)
    check_replaceable(tmp_path / "out", "report.json", overwrite=True)
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=rf"{tmp_path / 'file'}: .*--out"):
        check_replaceable(tmp_path / "file", "report.json", overwrite=True)
