"""A user's mistake or a missing package becomes a message and an exit code; a bug keeps its traceback."""

import errno
import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from roberta_small.common.errors import UserError, exit_code, message_of, report_errors
from roberta_small.common.files import cache_folder
from roberta_small.common.optional import needed_by

ROOT = Path(__file__).parents[2]
MEMORY = "error: out of GPU memory; use fewer runs at a time or smaller batches, or --device cpu"


def test_message_is_on_one_line():
    assert str(UserError("valid.label:\n   3 labels,\tbut 4 sentences\n")) == (
        "valid.label: 3 labels, but 4 sentences"
    )


@pytest.mark.parametrize(
    ("error", "message", "code"),
    [
        (UserError("no such recipe"), "error: no such recipe", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.txt"),
         "error: a.txt: No such file or directory", 1),
        (OSError(errno.EIO, "Input/output error"), None, 1),
        (ValueError("a bug"), None, 1),
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), MEMORY, 1),
        (RuntimeError("CUDA error: out of memory\nCompile with DSA."), MEMORY, 1),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"), MEMORY, 1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_message_and_exit_code(error, message, code):
    assert message_of(error) == message
    assert exit_code(error) == code


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (3, 3)])
def test_returned_exit_code_is_kept(returned, code):
    @report_errors
    def main(first, *, second):
        assert (first, second) == (1, 2)
        return returned

    assert main(1, second=2) == code


def test_user_error_is_printed_without_traceback_and_a_bug_is_raised(capsys):
    @report_errors
    def main(error):
        raise error

    assert main(UserError("train.label: empty")) == 1
    assert capsys.readouterr().err == "error: train.label: empty\n"
    with pytest.raises(ZeroDivisionError, match="ours"):
        main(ZeroDivisionError("ours"))


def python(code, *, reader=None):
    """Standard error and exit code of a Python program; `reader` is a command that reads its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if reader:
        subprocess.run(reader, stdin=process.stdout, stdout=subprocess.DEVNULL, check=True)
        process.stdout.close()
        process.stdout = None
    _, error = process.communicate(timeout=60)
    return error, process.returncode


def test_closed_output_pipe_prints_nothing():
    program = """
from roberta_small.common.errors import report_errors
@report_errors
def main():
    for number in range(10**6):
        print(number)
raise SystemExit(main())
"""
    assert python(program, reader=["head", "-n", "1"]) == ("", 1)


def test_excepthook_reports_errors_of_programs_of_others():
    program = """
from roberta_small.common.errors import UserError, install_excepthook
install_excepthook()
raise {}
"""
    assert python(program.format("UserError('train.idx: not an index')")) == (
        "error: train.idx: not an index\n", 1
    )  # fmt: skip
    error, code = python(program.format("ZeroDivisionError('ours')"))
    assert error.startswith("Traceback")
    assert error.endswith("ZeroDivisionError: ours\n")
    assert code == 1


TEXT = "é 漢字 😀 \udce9"


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_what_the_encoding_of_the_output_lacks_is_written_as_in_json(encoding):
    program = f"import json; from roberta_small.common.errors import report_errors as r; t = {TEXT!a}; "
    program += "r(lambda: print(json.dumps(t, ensure_ascii=False)))()"
    environment = {**os.environ, "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, env=environment, cwd=ROOT)
    assert json.loads(done.stdout.decode(encoding)) == TEXT
    # Once, with a remedy, which is the last case here.
    assert done.stderr.decode().count("PYTHONIOENCODING=utf-8") == (encoding != "utf-8")


def test_an_unusable_home_or_temporary_folder_names_the_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", "/dev/null")
    monkeypatch.delenv("RS_CACHE", raising=False)
    with pytest.raises(OSError, match="null") as raised:
        cache_folder().mkdir(parents=True)
    assert "RS_CACHE" in message_of(raised.value)
    monkeypatch.setenv("RS_CACHE", str(tmp_path / "cache"))  # the remedy
    cache_folder().mkdir(parents=True)
    assert "RS_CACHE" not in message_of(PermissionError(errno.EACCES, "Permission denied", "/dev/null/a"))
    program = "import tempfile; tempfile._candidate_tempdir_list = lambda: []; "
    program += "from roberta_small.common.errors import report_errors as r; r(tempfile.gettempdir)(); "
    program += "r(lambda: __import__('matplotlib').get_cachedir())()"
    errors = [line for line in python(program)[0].splitlines() if line.startswith("error: ")]
    assert [line.rpartition("set ")[2].split()[0] for line in errors] == ["TMPDIR", "MPLCONFIGDIR"]
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "fonts"))
    assert "MPLCONFIGDIR" not in python(program)[0]


def test_a_missing_and_a_broken_package_are_named_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    missing = r"rows\.parquet needs no_such_package; .*pip install no_such_package"
    with pytest.raises(UserError, match=missing), needed_by("rows.parquet"):
        importlib.import_module("no_such_package.inside")
    (tmp_path / "broken_package.py").write_text("from os import nothing_of_this_name")
    with pytest.raises(ImportError, match="nothing_of_this_name"), needed_by("it"):  # a bug, of Python's own
        importlib.import_module("broken_package")
    (tmp_path / "older_package.py").write_text("from broken_inside import new_name")
    (tmp_path / "broken_inside.py").write_text("")
    broken = r"new_name.*pip install --force-reinstall broken_inside"
    with pytest.raises(UserError, match=broken), needed_by("it"):
        importlib.import_module("older_package")
    with pytest.raises(ModuleNotFoundError), needed_by("it"):  # another bug
        importlib.import_module("roberta_small.no_such_module")
