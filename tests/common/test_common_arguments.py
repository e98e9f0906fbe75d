import argparse

import pytest

from common.cli import positive


@pytest.fixture
def parser():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=positive)
    return parser


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("12", 12), ("1_000", 1000)])
def test_positive(parser, text, number):
    assert parser.parse_args(["--workers", text]).workers == number


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0", "argument --workers: 0 is less than 1"),
        ("-3", "argument --workers: -3 is less than 1"),
        ("2.5", "argument --workers: invalid positive value: '2.5'"),
        ("two", "argument --workers: invalid positive value: 'two'"),
    ],
)
def test_what_is_not_positive_is_named(parser, capsys, text, said):
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(["--workers", text])
    assert caught.value.code == 2
    assert capsys.readouterr().err.endswith(f"{said}\n")
