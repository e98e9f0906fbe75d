"""Commands answer a user's mistake with one line and an exit code; a defect of ours keeps its traceback."""

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from common.errors import UserError, exit_code, message_of, report_errors

ROOT = Path(__file__).parents[2]


def test_a_message_is_a_clear_error():
    assert str(UserError("valid.label:\n   3 labels,\tbut 4 sentences\n")) == (
        "valid.label: 3 labels, but 4 sentences"
    )


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (UserError("no such recipe"), "error: no such recipe", 1),
        (KeyboardInterrupt(), "interrupted", 130),
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "a.txt"),
         "error: a.txt: No such file or directory", 1),
        (OSError(errno.EIO, "Input/output error"), None, 1),
        (ValueError("a defect"), None, 1),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_line_and_exit_code(error, line, code):
    assert message_of(error) == line
    assert exit_code(error) == code


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (3, 3)])
def test_the_exit_code_of_a_command_is_its_own(returned, code):
    @report_errors
    def main(first, *, second):
        assert (first, second) == (1, 2)
        return returned

    assert main(1, second=2) == code


def test_a_mistake_is_a_clear_error(capsys):
    @report_errors
    def main():
        raise UserError("train.label: empty")

    assert main() == 1
    assert capsys.readouterr().err == "error: train.label: empty\n"


def test_a_missing_file_is_a_clear_error(capsys, tmp_path):
    @report_errors
    def main():
        (tmp_path / "dict.txt").read_text()

    assert main() == 1
    assert capsys.readouterr().err == f"error: {tmp_path / 'dict.txt'}: No such file or directory\n"


def test_a_defect_is_raised():
    @report_errors
    def main():
        raise ZeroDivisionError("ours")

    with pytest.raises(ZeroDivisionError, match="ours"):
        main()


def python(code, *, reader=None):
    """Standard error and exit code of a program; `reader` is a command that takes its output."""
    process = subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if reader:
        subprocess.run(reader, stdin=process.stdout, stdout=subprocess.DEVNULL, check=True)
        process.stdout.close()
        process.stdout = None
    _, said = process.communicate(timeout=60)
    return said, process.returncode


def test_a_reader_that_has_gone_is_no_error():
    program = """
from common.errors import report_errors
@report_errors
def main():
    for number in range(10**6):
        print(number)
raise SystemExit(main())
"""
    assert python(program, reader=["head", "-n", "1"]) == ("", 1)


def test_the_hook_speaks_for_a_main_that_is_not_ours():
    program = """
from common.errors import UserError, install_excepthook
install_excepthook()
raise {}
"""
    assert python(program.format("UserError('train.idx: not an index')")) == (
        "error: train.idx: not an index\n", 1
    )  # fmt: skip
    said, code = python(program.format("ZeroDivisionError('ours')"))
    assert said.startswith("Traceback")
    assert said.endswith("ZeroDivisionError: ours\n")
    assert code == 1
