"""Adds recipes/ to wheels, as posenc_experiments/recipes; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithRecipes(build_py):
    """Builds the packages, and copies the recipes beside them unless the installation is editable."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            recipes = Path(self.build_lib, "posenc_experiments", "recipes")
            shutil.rmtree(recipes, ignore_errors=True)  # of an earlier build
            shutil.copytree("recipes", recipes, ignore=shutil.ignore_patterns("__pycache__"))


setup(cmdclass={"build_py": BuildWithRecipes})
