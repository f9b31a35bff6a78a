"""For tools that know no pyproject.toml."""

from setuptools import setup

setup()
