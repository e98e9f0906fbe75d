"""For tools that look for this file: pyproject.toml has all settings."""

from setuptools import setup

setup()
