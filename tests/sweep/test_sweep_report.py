from sweep import report


def test_table_and_tail(tmp_path):
    assert report.table(["a", "long"], [["bbb", "c"]]) == "a    long\nbbb  c"
    (tmp_path / "log").write_text("\n".join(str(i) for i in range(40)))
    assert report.tail(tmp_path / "log", 3) == ["37", "38", "39"]
    assert report.tail(tmp_path / "none") == []
