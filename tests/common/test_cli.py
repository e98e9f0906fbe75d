"""The parser: unknown options, settings from the environment, and checked values."""

import argparse
import os
import subprocess
import sys

import pytest

from roberta_small.common.cli import Parser, SettingsParser, load_extensions, positive
from roberta_small.common.errors import UsageError, UserError, exit_code
from tests.support import preloaded


@pytest.mark.parametrize(("word", "nearest"), [("--init", "--inits?"), ("--oput", "--output?")])
def test_unknown_option_shows_usage_of_its_subcommand_and_nearest_option(word, nearest):
    parser = Parser(prog="command")
    subparser = parser.add_subparsers(required=True, metavar="COMMAND").add_parser("write")
    subparser.add_argument("--output", required=nearest == "--output?")
    subparser.add_argument("--inits", nargs="+")
    with pytest.raises(UsageError) as caught:
        parser.parse_args(["write", word, "x"])
    assert word in str(caught.value)
    assert nearest in str(caught.value)
    assert caught.value.usage.startswith("usage: command write")
    assert exit_code(caught.value) == 2


def test_a_setting_from_its_environment_variable():
    parser = SettingsParser(prog="command")
    parser.add_setting("valid-size", "1", "a number")
    assert parser.parse_settings([], {"RS_VALID_SIZE": "3", "VALID_SIZE": "4"}).valid_size == "3"
    assert parser.parse_settings(["--valid-size", "2"], {"RS_VALID_SIZE": "3"}).valid_size == "2"
    assert parser.parse_settings([], {"VALID_SIZE": "4"}).valid_size == "1"


@pytest.mark.parametrize("text", ["0", "-3", "2.5", "two"])
def test_error_for_a_value_that_is_not_positive_names_option_and_value(capsys, text):
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=positive)
    with pytest.raises(SystemExit) as caught:
        parser.parse_args([f"--workers={text}"])
    assert caught.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "--workers" in message
    assert text in message


METRIC = """
from roberta_small.common.metrics import Metric, register

register(
    Metric(
        "constant_metric", higher_is_better=True, unit="", digits=1, description="one",
        from_confusion=lambda matrix: matrix.sum(axis=(-2, -1)) * 0 + 1.0,
    )
)
"""


@pytest.mark.parametrize(
    "loaded_by",
    ["import roberta_small.fairseq_plugin", "from roberta_small.common.cli import Parser; Parser()"],
)
def test_commands_and_fairseqs_processes_have_the_registered_metric(tmp_path, loaded_by):
    (tmp_path / "my_metric.py").write_text(METRIC)
    environment = os.environ | {"RS_PLUGINS": str(tmp_path / "my_metric.py")}
    code = f"{loaded_by}\nfrom roberta_small.common.metrics import logged\nprint([m.name for m in logged()])"
    done = subprocess.run([preloaded.python(), "-c", code], capture_output=True, text=True, env=environment)
    assert "'constant_metric'" in done.stdout, done.stderr


def test_a_package_is_named_like_an_import(tmp_path, monkeypatch):
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "mine.py").write_text("loaded = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("RS_PLUGINS", " pkg.mine, ")
    load_extensions()
    assert sys.modules.pop("pkg.mine").loaded


@pytest.mark.parametrize("name", ["missing.py", "missing_module", "broken.py"])
def test_a_module_that_cannot_be_imported_is_named(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("1 / 0\n")
    monkeypatch.setenv("RS_PLUGINS", name)
    with pytest.raises(UserError, match=name):
        load_extensions()
    assert "broken" not in sys.modules
