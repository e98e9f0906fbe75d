"""The user's modules that register readers, encoders, metrics or methods: RS_PLUGINS=my_metric.py,my_package.

Every command (`common.cli.Parser`) and fairseq's commands with the plugin (`fairseq_plugin`) import them, and
so does the process of each run.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from pathlib import Path

from roberta_small.common.errors import UserError

VARIABLE = "RS_PLUGINS"
"""Names of modules, or paths of Python files, separated by commas."""


def load() -> None:
    """Import every module of RS_PLUGINS that is not imported yet.

    A module that fits only some commands can check what is installed: the commands of `analysis` run without
    fairseq. Raises `UserError` for one that does not exist or cannot be imported.
    """
    for name in filter(None, map(str.strip, os.environ.get(VARIABLE, "").split(","))):
        path = Path(name)
        is_file = path.suffix == ".py"
        if is_file and not path.is_file():
            raise UserError(f"{VARIABLE}: {name}: no such file; correct the path or unset the variable")
        if (path.stem if is_file else name) in sys.modules:
            continue
        try:
            _import_file(path) if is_file else importlib.import_module(name)
        except Exception as error:  # any statement of the module can fail
            reason = f"{type(error).__name__}: {error}"
            raise UserError(f"{VARIABLE}: {name} cannot be imported ({reason}); correct it") from error


def _import_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None  # the suffix is .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[path.stem]
        raise
