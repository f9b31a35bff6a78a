"""Runs a stage as a series of steps: after a kill, it resumes with the first step that is not done.

Each step writes into its own directory and returns facts (JSON), which are written last. Outputs are deleted as soon as
no later step reads them, so that the disk never holds a corpus more than twice.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from posenc_experiments.base.markers import empty_directory, naming_full_disk, read_json, write_json


class Steps:
    """The steps of one stage in `directory`, whose name stands for all that they depend on."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.reads: dict[str, tuple[str, ...]] = {}
        self.makers: dict[str, Callable[[Path], Any]] = {}

    def add(self, name: str, reads: tuple[str, ...], make: Callable[[Path], Any]) -> None:
        """Adds a step, which reads the outputs of others and writes its own into an empty directory."""
        self.reads[name], self.makers[name] = reads, make

    def path(self, name: str) -> Path:
        return self.directory / name

    def facts(self, name: str) -> Any:
        return read_json(self._facts_path(name))

    def _facts_path(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def to_do(self) -> list[str]:
        """The steps that must still run for the last one; the inputs of a finished step are not needed."""
        needed, todo = {[*self.reads][-1]}, list[str]()
        for name in reversed(self.reads):
            if name in needed and not (self._facts_path(name).is_file() and self.path(name).is_dir()):
                todo.append(name)
                needed.update(self.reads[name])
        return todo[::-1]

    def run(self, say: Callable[[str], None]) -> Path:
        """Runs the remaining steps and returns the directory of the last; the caller deletes all outputs afterwards."""
        todo, last = self.to_do(), [*self.reads][-1]
        if len(todo) < len(self.reads):
            say(f"resumes with the step {todo[0]}" if todo else "resumes after the last step")
        for number, name in enumerate(todo):
            say(f"{name}...")
            self._facts_path(name).unlink(missing_ok=True)
            directory = empty_directory(self.path(name))
            with naming_full_disk(directory):
                write_json(self._facts_path(name), self.makers[name](directory))
            # The inputs of the last step stay until its result has been moved.
            read = {one for remaining in (*todo[number + 1 :], last) for one in self.reads[remaining]} | {last}
            for other in self.reads.keys() - read:
                self._facts_path(other).unlink(missing_ok=True)
                shutil.rmtree(self.path(other), ignore_errors=True)
        return self.path(last)
