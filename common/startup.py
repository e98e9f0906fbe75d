"""A faster start of commands: pandas is imported when it is first used.

`from common import startup` is the first import of a package's `__main__`, so that `--help` and an error in
the command line do not wait for pandas, whose import takes longer than all the rest.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from typing import Any


class _Deferred(types.ModuleType):
    """A module that is executed when a name in it is first needed.

    `importlib.util.LazyLoader` executes it at the second `import` already, which reads `__spec__`.
    """

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        assert spec is not None
        assert spec.loader is not None
        self.__class__ = types.ModuleType  # type: ignore[assignment]  # no recursion while it is executed
        self.__path__ = spec.submodule_search_locations or []
        try:
            spec.loader.exec_module(self)
        except BaseException:
            del sys.modules[spec.name]
            raise
        return getattr(self, name)


def defer(name: str) -> None:
    """Let `import name` return at once a package that is executed at the first access to one of its names.

    Without effect if it has been imported or is not installed.
    """
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None:
        return
    module = importlib.util.module_from_spec(spec)
    del module.__path__  # so that importing a submodule executes the package first
    module.__class__ = _Deferred
    sys.modules[name] = module


defer("pandas")
