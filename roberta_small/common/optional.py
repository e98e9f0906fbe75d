"""Packages that only some commands need: one clear error where they are not installed.

`roberta_small/__init__.py` switches off what such packages would report about their use.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from roberta_small.common.errors import UserError


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """The context of imports that `what` needs; raises `UserError` for a package that cannot be imported."""
    try:
        yield
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        if not name or name == __package__.partition(".")[0] or name in sys.stdlib_module_names:
            raise
        if isinstance(error, ModuleNotFoundError):
            raise UserError(f"{what} needs {name}; install it: pip install {name}") from None
        remedy = f"repair it: pip install --force-reinstall {name}"
        raise UserError(f"{what} needs {name}, which cannot be imported ({error}); {remedy}") from None
