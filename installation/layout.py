"""The layout of the installed project: all packages below one, `roberta_small`.

In the clone, the packages have top-level names (`common`, `analysis`, ...). These are too generic for a
shared environment: another `common` in the path would be imported instead. `stage` therefore copies the
packages below `roberta_small` and rewrites, in the copies, what refers to them:

- imports: `from common.errors import UserError` becomes `from roberta_small.common.errors import UserError`,
- strings that are the path of a module, such as `"experiments.methods.fairseq:METHOD"`,
- commands in help texts and messages: `python -m analysis` becomes `python -m roberta_small.analysis`, and
  `./train.sh` the command `roberta-small-train`,
- single places listed in `PLACES`.

The rules apply to text, line by line; the result depends on nothing but the text.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

NAME = "roberta_small"
PACKAGES = ("analysis", "common", "eval", "experiments", "export", "fairseq_plugin", "preprocess")
"""The packages that are installed. `benchmarks` is not: it starts the scripts of the clone."""
DATA = ("recipes", "pretrained/roberta_small_fr")
"""Folders of data that the packages expect beside them."""
SCRIPTS = {
    "preprocess": "preprocess.__main__:main",
    "experiments": "experiments.__main__:main",
    "train": "experiments.__main__:train",
    "pretrain": "experiments.__main__:pretrain",
    "analysis": "analysis.__main__:main",
    "eval": "eval.__main__:main",
    "export": "export.__main__:main",
    "parameters": "fairseq_plugin.models.parameters:main",
    "install-fairseq": "common.install_fairseq:main",
}
"""Console scripts, without their prefix `roberta-small-`, and their functions."""

_ANY = "|".join(PACKAGES)
_USER_DIR = f"{NAME}/user_dir/roberta_small_plugin"
RULES = (
    # from common.errors import UserError; import fairseq_plugin; import common.run
    (rf"^(\s*)from ({_ANY})((?:\.\w+)*) import ", rf"\1from {NAME}.\2\3 import "),
    (rf"^(\s*)import ({_ANY})((?:\.\w+)*) as ", rf"\1import {NAME}.\2\3 as "),
    (rf"^(\s*)import ({_ANY})((?:\.\w+)+)", rf"\1import {NAME}.\2\3; from {NAME} import \2"),
    (rf"^(\s*)import ({_ANY})(?![\w.])", rf"\1import {NAME}.\2; from {NAME} import \2"),
    # the words of a command, and commands in texts
    (rf'"-m", "({_ANY})(?=["./])', rf'"-m", "{NAME}.\1'),
    (rf"python -m ({_ANY})\b", rf"python -m {NAME}.\1"),
    (r"(?:\./)?\b(pretrain|train)\.sh\b", r"roberta-small-\1"),
    (r"--user-dir fairseq_plugin\b", f"--user-dir {_USER_DIR}"),
    # loggers
    (rf'getLogger\("({_ANY})"\)', rf'getLogger("{NAME}.\1")'),
)
"""Regular expression -> replacement, applied to each line in this order."""
MODULE_PATH = re.compile(rf'"((?:{_ANY})(?:\.\w+)+)((?::\w+)?)"')
"""A string that may be the path of a module, with an optional attribute."""
PLACES = {
    "experiments/methods/fairseq.py": (
        'ROOT / "fairseq_plugin"',
        'ROOT / "user_dir" / "roberta_small_plugin"',
    ),
    "fairseq_plugin/checkpoints/initialization.py": (
        'PACKAGE = "fairseq_plugin"',
        f'PACKAGE = "{NAME}.fairseq_plugin"',
    ),
    "fairseq_plugin/library_warnings.py": (r"'fairseq_plugin\.", rf"'{NAME}\.fairseq_plugin\."),
}
"""File -> text that occurs once, and its replacement."""
COPIED = ("export/transformers/tokenization_pieces.py",)
"""Modules that the project copies into folders of other programs: they stay as they are."""


def stage(clone: Path, target: Path) -> None:
    """Write what setuptools needs into `target`: the package `roberta_small`, setup.py and its files."""
    package = target / NAME
    shutil.copytree(clone / "installation" / NAME, package, ignore=_ignored)
    for name in PACKAGES:
        shutil.copytree(clone / name, package / name, ignore=_ignored)
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package).as_posix()
        if relative.partition("/")[0] in PACKAGES and relative not in COPIED:
            text = path.read_text(encoding="utf-8")
            path.write_text(rewritten(text, relative, clone), encoding="utf-8")
    for name in DATA:
        shutil.copytree(clone / name, package / name, ignore=_ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copyfile(clone / name, target / name)
    shutil.copytree(clone / "installation", target / "installation", ignore=_ignored)


def rewritten(text: str, name: str, clone: Path) -> str:
    """The text of a module below `roberta_small`; `name` is its path in the clone.

    Raises `ValueError` if the text of `PLACES` does not occur once.
    """
    lines = text.split("\n")
    for pattern, replacement in RULES:
        expression = re.compile(pattern)
        lines = [expression.sub(replacement, line) for line in lines]
    text = "\n".join(lines)
    text = MODULE_PATH.sub(lambda found: _module_path(found, clone), text)
    if name in PLACES:
        old, new = PLACES[name]
        if text.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {text.count(old)} times, not once; correct PLACES")
        text = text.replace(old, new)
    return text


def _module_path(found: re.Match[str], clone: Path) -> str:
    """The string with the prefix if its module exists: `"preprocess.json"` is a file, not a module."""
    path = clone.joinpath(*found[1].split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return f'"{NAME}.{found[1]}{found[2]}"'
    return found[0]


def _ignored(folder: str, names: list[str]) -> set[str]:
    return {name for name in names if name == "__pycache__" or name.endswith((".pyc", ".sh"))}
