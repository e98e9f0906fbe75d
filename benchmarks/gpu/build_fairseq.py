"""Build a wheel of fairseq without torch.

    python3.12 build_fairseq.py SOURCE_FOLDER WHEEL_FOLDER

It has fairseq's Cython modules and libbleu, but not the extensions that link torch, which nothing here uses,
nor the examples, which are most of its size. The interpreter needs setuptools, wheel, cython, numpy >= 2 and
its headers; the wheel is for its version.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path
from typing import Any

import setuptools
from setuptools.command.build_ext import build_ext


def hide_torch() -> None:
    """Give setup.py what it imports of torch; extensions that link it become None."""
    extension: Any = types.ModuleType("torch.utils.cpp_extension")
    extension.CppExtension, extension.BuildExtension = lambda *args, **kwargs: None, build_ext
    torch: Any = types.ModuleType("torch")
    torch.utils = types.ModuleType("torch.utils")
    torch.utils.cpp_extension = extension
    sys.modules |= {"torch": torch, "torch.utils": torch.utils, "torch.utils.cpp_extension": extension}


def main(source: str, wheels: str) -> None:
    """Run fairseq's setup.py."""
    wheels, original = os.path.abspath(wheels), setuptools.setup
    os.chdir(source)
    os.environ.pop("CUDA_HOME", None)
    hide_torch()

    def setup(**settings: Any) -> None:
        settings["ext_modules"] = list(filter(None, settings["ext_modules"]))
        data = settings["package_data"]["fairseq"]
        settings["package_data"] = {"fairseq": [path for path in data if not path.startswith("examples")]}
        original(**settings)

    setuptools.setup = setup
    sys.argv = ["setup.py", "bdist_wheel", "--dist-dir", wheels]
    code = compile(Path("setup.py").read_text(encoding="utf-8"), "setup.py", "exec")
    exec(code, {"__name__": "__main__", "__file__": "setup.py"})


if __name__ == "__main__":
    main(*sys.argv[1:])
