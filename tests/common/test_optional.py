"""One error for packages that are not installed."""

import importlib

import pytest

from roberta_small.common.errors import UserError
from roberta_small.common.optional import needed_by


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
