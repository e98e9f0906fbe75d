from experiments import report


def test_table_and_tail(tmp_path):
    assert report.table(["a", "long"], [["bbb", "c"]]) == "a    long\nbbb  c"
    (tmp_path / "log").write_text("\n".join(str(i) for i in range(40)))
    assert report.tail(tmp_path / "log", 3) == ["37", "38", "39"]
    assert report.tail(tmp_path / "none") == []


def test_tail_shortens_long_lines_and_selects_an_error_message(tmp_path):
    log = tmp_path / "log"
    log.write_text("short\n" + "x" * 9000)
    assert report.tail(log) == ["short", "x" * report.FAILURE_WIDTH + " ..."]
    log.write_text("a\nerror: dict.txt: no such file; write it\n")
    assert report.tail(log) == ["error: dict.txt: no such file; write it"]
