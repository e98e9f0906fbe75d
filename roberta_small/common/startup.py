"""A faster start of commands: packages that few commands need are imported when they are first used.

`import roberta_small.common.startup` is the first import of a package's `__main__`, so that `--help` and
an error in the command line do not wait for packages such as pandas, whose import takes longer than all the
rest.
`functions_of` does the same for packages that other packages import.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
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


class _Functions(types.ModuleType):
    """Stands for a module: its attributes are functions that import the module when they are called.

    An attribute may also be a module inside it; which of the two is known only when it is used.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []  # so that its submodules can be imported

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Functions(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        module, _, name = self.__name__.rpartition(".")
        return getattr(importlib.import_module(module), name)(*args, **kwargs)


@contextlib.contextmanager
def functions_of(*modules: str) -> Iterator[None]:
    """Let code that is imported in this context import functions of `modules` without executing them.

    A module in a package (`scipy.stats`) is named after its package. Each function imports its module when it
    is first called. Only functions and constructors can be used so. Modules that have been imported are left
    alone.
    """
    absent = [name for name in modules if name not in sys.modules]
    sys.modules.update({name: _Functions(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            if isinstance(sys.modules.get(name), _Functions):
                del sys.modules[name]


def is_command() -> bool:
    """Whether this process is a command of this project or of fairseq, not a program of the user."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    name = spec.name if spec else os.path.basename(sys.argv[0])
    return name.startswith(("roberta_small", "roberta-small", "fairseq"))


@contextlib.contextmanager
def import_of_fairseq() -> Iterator[None]:
    """The context for the first import of fairseq and torch, which takes less time in it.

    fairseq imports the packages below for single functions, used by a criterion, a task and with
    --tensorboard-logdir. The garbage collector finds nothing in what an import creates: in a command of this
    project it ignores these objects from now on, which also shortens the end of the process by half a second.
    In a process of the user it would ignore his objects, too.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        with functions_of(
            "sklearn", "sklearn.metrics", "scipy", "scipy.stats", "torch.utils.tensorboard", "tensorboardX"
        ):
            yield
    finally:
        if is_command():
            gc.freeze()
        if enabled:
            gc.enable()


for _name in ("pandas", "yaml"):
    defer(_name)
