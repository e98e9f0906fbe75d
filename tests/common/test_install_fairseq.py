"""The change of fairseq's source for Python 3.14, on copies of the installed file."""

import dataclasses
import enum
import os
import subprocess
import sys
import typing
import zipfile
from pathlib import Path

import pytest
from fairseq.dataclass import configs

from roberta_small.common import install_fairseq
from roberta_small.common.errors import UserError
from roberta_small.common.install_fairseq import CHANGES

OPTIONAL = CHANGES[0]
NEW = sys.version_info >= (3, 14)


class Color(enum.Enum):
    RED = "red"


@pytest.fixture
def change(tmp_path, monkeypatch):
    """OPTIONAL, of a copy of the file as the distribution contains it, needed by this Python."""
    text = OPTIONAL.path().read_text(encoding="utf-8").replace(OPTIONAL.new, OPTIONAL.old)
    path = tmp_path / "utils.py"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(install_fairseq.Change, "path", lambda change: path)
    needed = dataclasses.replace(OPTIONAL, since=(3, 0))
    monkeypatch.setattr(install_fairseq, "CHANGES", (needed,))
    return needed


def function_in(path):
    namespace = {"__name__": "copy"}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), namespace)
    return namespace["interpret_dc_type"]


def fields():
    """The types of all fields of fairseq's own configuration."""
    for value in vars(configs).values():
        if dataclasses.is_dataclass(value):
            yield from (field.type for field in dataclasses.fields(value))


@pytest.mark.skipif(NEW, reason="the unchanged function does not recognize optional types there")
def test_the_changed_function_returns_what_the_unchanged_one_does(change):
    before = function_in(change.path())
    change.make()
    after = function_in(change.path())
    types = [*fields(), typing.Optional[typing.List[int]], typing.Union[int, str, None], Color, typing.Any]  # noqa: UP006, UP007, UP045
    assert len(types) > 100
    assert [after(kind) for kind in types] == [before(kind) for kind in types]


def test_optional_types_are_recognized(change):
    change.make()
    interpret = function_in(change.path())
    assert interpret(typing.Optional[int]) is int  # noqa: UP045
    assert interpret(typing.Optional[Color]) is Color  # noqa: UP045
    assert interpret(typing.List[typing.Optional[int]]) == typing.List[typing.Optional[int]]  # noqa: UP006, UP045
    assert interpret(typing.Tuple[int, None]) == typing.Tuple[int, None]  # noqa: UP006
    assert interpret(float) is float
    assert interpret(typing.Any) is str


def test_the_change_is_made_once_and_only_in_this_file(change, tmp_path):
    cached = tmp_path / "link.py"
    cached.hardlink_to(change.path())
    before = cached.read_text()
    with pytest.raises(UserError, match=r"utils\.py"):
        install_fairseq.require_changes()
    assert change.state == "no"
    (missing,) = install_fairseq.missing_changes()
    missing.make()
    after = change.path().read_text()
    assert after != before
    assert cached.read_text() == before
    assert change.state == "yes"
    install_fairseq.require_changes()
    assert install_fairseq.missing_changes() == []


def test_a_file_with_another_content_is_an_error(change):
    change.path().write_text("def interpret_dc_type(field_type): ...\n")
    with pytest.raises(UserError, match=r"utils\.py"):
        change.make()


def test_the_installed_fairseq_has_what_this_python_needs():
    assert install_fairseq.missing_changes() == []
    assert OPTIONAL.state == ("yes" if NEW else "not needed")


def hide(monkeypatch, name):
    """A package is not installed."""
    util, find = install_fairseq.importlib.util, install_fairseq.importlib.util.find_spec
    monkeypatch.setattr(util, "find_spec", lambda n, *a: None if n == name else find(n, *a))


@pytest.mark.parametrize("name", ["torch", "pip"])
def test_a_missing_tool_is_an_error(name, monkeypatch):
    hide(monkeypatch, name)
    monkeypatch.setattr(install_fairseq.shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=name):
        install_fairseq.install()


def test_uv_installs_where_there_is_no_pip(monkeypatch, tmp_path):
    calls = []
    hide(monkeypatch, "pip")
    monkeypatch.setattr(install_fairseq.shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(install_fairseq, "_run", lambda words, path=None: calls.append(words))
    install_fairseq.install(Path("versions.txt"))
    assert calls[0][:5] == ["/bin/uv", "pip", "install", "--python", sys.executable]
    assert "--no-deps" in calls[1]
    assert f"fairseq-fixed=={install_fairseq.VERSION}" in calls[1]
    assert calls[1][calls[1].index("--constraint") + 1] == "versions.txt"


def test_a_build_leaves_out_the_extensions_that_need_torch(tmp_path):
    """fairseq's setup.py in miniature, which declares its extensions in the same way."""
    install_fairseq.write_stand_in(tmp_path / "stand-in")
    source = tmp_path / "source"
    source.mkdir()
    (source / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "from torch.utils import cpp_extension\n"
        "extensions = [Extension('kept', ['kept.c']),\n"
        "              cpp_extension.CppExtension('other', sources=['no.cpp'])]\n"
        "setup(name='toy', version='1', ext_modules=extensions,\n"
        "      cmdclass={'build_ext': cpp_extension.BuildExtension})\n"
    )
    (source / "kept.c").write_text(
        "#include <Python.h>\n"
        'static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "kept"};\n'
        "PyMODINIT_FUNC PyInit_kept(void) { return PyModule_Create(&module); }\n"
    )
    code = f"from setuptools.build_meta import build_wheel; build_wheel({str(tmp_path)!r})"
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "stand-in")}
    subprocess.run([sys.executable, "-c", code], cwd=source, env=environment, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    modules = [name.partition(".")[0] for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".so")]
    assert modules == ["kept"]
