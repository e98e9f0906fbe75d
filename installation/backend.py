"""The build backend of pyproject.toml: setuptools, on the layout that is installed (see `layout`).

An editable install uses the clone as it is.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import layout
from setuptools import build_meta
from setuptools.build_meta import (  # noqa: F401  the other hooks are those of setuptools
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
)

Settings = dict[str, Any] | None


@contextmanager
def staged() -> Iterator[None]:
    """Change to a temporary folder with the layout that is installed."""
    clone = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="roberta-small-") as folder:
        layout.stage(clone, Path(folder))
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(clone)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """Nothing but `build-system.requires`."""
    return []


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Write the metadata of the wheel; returns the name of their folder."""
    metadata_directory = os.path.abspath(metadata_directory)
    with staged():
        return build_meta.prepare_metadata_for_build_wheel(metadata_directory, config_settings)


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel; returns its name."""
    wheel_directory = os.path.abspath(wheel_directory)
    metadata_directory = metadata_directory and os.path.abspath(metadata_directory)
    with staged():
        return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
