"""Install fairseq for this interpreter, with the change of its source that Python 3.14 needs.

fairseq is not among the dependencies in `pyproject.toml`, because pip cannot install it as one: its
distribution requires torchaudio, which nothing here uses.

Three of fairseq's six extensions are compiled against torch and used by nothing here: `fairseq.libbase`
(assignment of mixtures of experts), `fairseq.libnat` (edit distances of non-autoregressive translation) and
`alignment_train_cpu_binding` (monotonic attention). They take six times as long as the other three, and would
have to be compiled again for another version of torch. They are left out: `TORCH_STAND_IN` is what fairseq's
setup.py imports as torch.

`make install` calls this module; after `pip install .` it is a command of its own.

The commands of fairseq import its tasks before the plugin (`--user-dir`), so the plugin cannot replace what
prevents that import. `CHANGES` are therefore made in the installed source file. No code is added to the start
of Python, and every program that uses this fairseq has the change. Installing fairseq again removes it.
`python -m roberta_small.fairseq_plugin.compat` lists the changes and their state, and training does not start
without one that is needed.

    roberta-small install-fairseq
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roberta_small.common.cli import Parser
from roberta_small.common.errors import UserError, report_errors
from roberta_small.common.files import atomic_write

DISTRIBUTION = "fairseq-fixed"
VERSION = "0.12.3.1"
"""Version of the distribution that this project is written for."""
BUILD_REQUIREMENTS = ("numpy>=2", "cython", "setuptools", "wheel")
"""What compiling fairseq needs."""
TORCH_STAND_IN = """\
from setuptools import Extension
from setuptools.command.build_ext import build_ext


class CppExtension(Extension):
    pass


class BuildExtension(build_ext):
    def finalize_options(self):
        all_of_them = self.distribution.ext_modules
        self.distribution.ext_modules = [one for one in all_of_them if not isinstance(one, CppExtension)]
        super().finalize_options()
"""
"""The module `torch.utils.cpp_extension` of a build without the extensions that need torch."""
COMMAND = "roberta-small install-fairseq"
CHECK = "import fairseq.tasks"
"""What fails if a change that is needed has not been made."""


@dataclass(frozen=True)
class Change:
    """A change of the source of the installed fairseq."""

    target: str
    """Qualified name of the changed function."""
    old: str
    new: str
    """The text that replaces `old`. Its first line, a comment, identifies the change in an installed file."""
    reason: str
    since: tuple[int, int]
    """The first version of Python that needs it."""

    @property
    def python(self) -> str:
        """`since` as text: `3.14`."""
        return ".".join(map(str, self.since))

    @property
    def state(self) -> str:
        """`yes` if the change is made, else `not needed` or `no`."""
        if self.new.partition("\n")[0] in self.path().read_text(encoding="utf-8"):
            return "yes"
        return "no" if sys.version_info >= self.since else "not needed"

    def path(self) -> Path:
        """The file that contains the target; raises `UserError` if fairseq is not installed."""
        package, *modules = self.target.split(".")[:-1]
        spec = importlib.util.find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise UserError(f"{package} is not installed for {sys.executable}; run `{COMMAND}`")
        return Path(spec.submodule_search_locations[0], *modules).with_suffix(".py")

    def make(self) -> None:
        """Make the change; raises `UserError` if the file has another content than expected.

        The file is replaced, not rewritten: other environments may have hard links to it (a cache of uv).
        """
        path = self.path()
        text = path.read_text(encoding="utf-8")
        if text.count(self.old) != 1:
            raise UserError(
                f"{path}: does not contain the text to be changed for Python {self.python}; "
                f"install {DISTRIBUTION} {VERSION} with `{COMMAND} --reinstall`"
            )
        atomic_write(path, text.replace(self.old, self.new))
        print(f"changed {path} ({self.target}): {self.reason}")


CHANGES = (
    Change(
        "fairseq.dataclass.utils.interpret_dc_type",
        old="""\
    typestring = str(field_type)
    if re.match(
        r"(typing.|^)Union\\[(.*), NoneType\\]$", typestring
    ) or typestring.startswith("typing.Optional"):
        return field_type.__args__[0]
    return field_type
""",
        new="""\
    # Changed by fairseq-roberta-small: recognize optional types by their structure.
    # Their text depends on the version of Python: typing.Optional[int] before 3.14, int | None since.
    from typing import Union, get_args, get_origin

    types = get_args(field_type)
    if get_origin(field_type) is Union and type(None) in types:
        return next(kind for kind in types if kind is not type(None))
    return field_type
""",
        reason="recognize optional types, whose text Python 3.14 has changed",
        since=(3, 14),
    ),
)


def missing_changes() -> list[Change]:
    """The changes that this interpreter needs and that have not been made in the installed fairseq."""
    return [change for change in CHANGES if sys.version_info >= change.since and change.state == "no"]


def require_changes() -> None:
    """Raise `UserError` if the installed fairseq lacks a change that this interpreter needs."""
    for change in missing_changes():
        raise UserError(
            f"{change.path()}: Python {change.python} needs a change of this file ({change.reason}); "
            f"run `{COMMAND}`"
        )


def install(constraint: Path | None = None, *, reinstall: bool = False) -> None:
    """Install fairseq and make the changes; an installed fairseq of the right version is kept.

    Raises `UserError` if torch, which fairseq imports, is missing, or a step fails.
    """
    if importlib.util.find_spec("torch") is None:
        raise UserError("torch is not installed, and fairseq needs it; run `pip install torch`")
    if importlib.util.find_spec("pip"):
        installer = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    elif uv := shutil.which("uv"):
        installer = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise UserError(f"{sys.executable} has no pip; run `{sys.executable} -m ensurepip`, or install uv")
    limits = () if constraint is None else ("--constraint", str(constraint))
    _run([*installer, *limits, *BUILD_REQUIREMENTS])
    again = ("--force-reinstall",) if reinstall else ()
    requirement = f"{DISTRIBUTION}=={VERSION}"
    with tempfile.TemporaryDirectory() as folder:
        write_stand_in(folder)
        _run([*installer, *again, *limits, "--no-build-isolation", "--no-deps", requirement], path=folder)
    importlib.invalidate_caches()
    for change in missing_changes():
        change.make()
    _run([sys.executable, "-P", "-c", CHECK])


def write_stand_in(folder: str | os.PathLike[str]) -> None:
    """Write a package `torch` whose only content is `TORCH_STAND_IN` into a folder."""
    package = Path(folder, "torch")
    (package / "utils").mkdir(parents=True)
    for place in (package, package / "utils"):
        (place / "__init__.py").touch()
    (package / "utils/cpp_extension.py").write_text(TORCH_STAND_IN, encoding="utf-8")


def _run(words: Sequence[str], path: str | None = None) -> None:
    """Run a command; `path` is searched for modules before all others."""
    environment = os.environ | ({} if path is None else {"PYTHONPATH": path})
    if subprocess.run(words, env=environment).returncode:
        raise UserError(
            f"`{' '.join(words)}` failed, see above; compiling fairseq needs g++ and the headers of Python "
            "(Debian: apt install g++ python3-dev)"
        )


@report_errors
def main(arguments: Sequence[str] | None = None) -> None:
    """Install fairseq."""
    parser = Parser(
        prog=COMMAND,
        description=f"Compile and install {DISTRIBUTION} {VERSION} without torchaudio and without the\n"
        "extensions that need torch's headers, and make the change of its source that Python 3.14 needs.\n"
        "An installed one is kept.",
        examples=f"example:\n  {COMMAND}",
    )
    parser.add_argument("--constraint", type=Path, help="a file of versions, as for pip")
    parser.add_argument("--reinstall", action="store_true", help="install it again, from an unchanged source")
    options = parser.parse_args(arguments)
    install(options.constraint, reinstall=options.reinstall)


if __name__ == "__main__":
    sys.exit(main())
