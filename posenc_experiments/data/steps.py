"""A stage in steps, each of which is done once: killed at any moment and started again, it resumes with the first
step that is not done.

A step writes into a directory of its own and returns facts (JSON). Outputs that no later step reads are deleted as
soon as that is known, so that a corpus never lies on the disk more than twice.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.base.markers import Markers, empty_directory, read_json, write_json


@dataclass(frozen=True)
class Step:
    """`make(directory)` writes into an empty directory; `inputs` is the fingerprint of all that decides what."""

    name: str
    reads: tuple[str, ...]
    inputs: str
    make: Callable[[Path], Any]


class Steps:
    """The steps of one stage in `directory`, the last of which makes its result."""

    def __init__(self, directory: Path, steps: Sequence[Step]) -> None:
        self.directory, self.steps, self.markers = directory, list(steps), Markers(directory)

    def path(self, name: str) -> Path:
        return self.directory / name

    def facts(self, name: str) -> Any:
        return read_json(self._facts_path(name))

    def _facts_path(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def to_do(self) -> list[Step]:
        """The steps without which the last cannot be made, as a step that is done needs no forerunner."""
        needed, todo = {self.steps[-1].name}, []
        for step in reversed(self.steps):
            if step.name in needed and not self.markers.is_done(step.name, step.inputs):
                todo.append(step)
                needed.update(step.reads)
        return todo[::-1]

    def run(self, say: Callable[[str], None]) -> Path:
        """Does what is to do and returns the last step's directory; the caller deletes everything in the end."""
        todo = self.to_do()
        if len(todo) < len(self.steps):
            say(f"resumes with the step {todo[0].name if todo else 'after the last'}")
        for number, step in enumerate(todo):
            say(f"{step.name}...")
            self._make(step)
            # The last step's sources stay: its result is about to be moved.
            self._delete_unread([*todo[number + 1 :], self.steps[-1]])
        return self.path(self.steps[-1].name)

    def _make(self, step: Step) -> None:
        self.markers.clear(step.name)
        directory = empty_directory(self.path(step.name))
        try:
            write_json(self._facts_path(step.name), step.make(directory))
        except BaseException:
            shutil.rmtree(directory)
            raise
        files = [path for path in directory.rglob("*") if path.is_file()]
        self.markers.set_done(step.name, step.inputs, [*files, self._facts_path(step.name)])

    def _delete_unread(self, remaining: list[Step]) -> None:
        read = {name for step in remaining for name in step.reads} | {self.steps[-1].name}
        for step in self.steps:
            if step.name not in read and self.path(step.name).exists():
                self.markers.clear(step.name)
                shutil.rmtree(self.path(step.name))

    def delete_if_nothing_is_done(self) -> None:
        if not any((self.directory / "done").glob("*.json")):
            shutil.rmtree(self.directory, ignore_errors=True)
