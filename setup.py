"""The packages of the project: each folder of `package-dir` in pyproject.toml, and the packages inside it."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

settings = tomllib.loads(Path(__file__).with_name("pyproject.toml").read_text(encoding="utf-8"))
folders = settings["tool"]["setuptools"]["package-dir"]
inside = [f"{name}.{found}" for name, folder in folders.items() for found in find_packages(folder)]
setup(packages=[*folders, *inside])
