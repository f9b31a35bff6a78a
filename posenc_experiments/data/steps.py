"""Runs a stage as a series of steps: after a kill, it resumes with the first step that is not done.

Each step writes into its own directory and returns facts (JSON). Outputs are deleted as soon as no later step reads
them, so that the disk never holds a corpus more than twice.
"""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from posenc_experiments.base.markers import (
    Markers,
    empty_directory,
    fingerprint,
    naming_full_disk,
    read_json,
    write_json,
)


@dataclass(frozen=True)
class Step:
    """One step of a stage."""

    name: str
    reads: tuple[str, ...]  # names of the steps whose outputs it reads
    inputs: str  # fingerprint of all that its output depends on
    make: Callable[[Path], Any]  # writes the output into an empty directory, and returns facts


class Steps:
    """The steps of one stage in `directory`; the output of the last is the result of the stage."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.markers = directory, Markers(directory)
        self.steps: list[Step] = []

    def add(self, name: str, reads: Sequence[str], own: object, make: Callable[[Path], Any]) -> None:
        """Adds a step. Its fingerprint covers its `own` settings and the fingerprints of the steps that it reads.

        Names in `reads` that are no step of this stage are left out.
        """
        steps = {step.name: step for step in self.steps}
        read = [steps[each] for each in reads if each in steps]
        inputs = fingerprint([name, own, [step.inputs for step in read]])
        self.steps.append(Step(name, tuple(step.name for step in read), inputs, make))

    def path(self, name: str) -> Path:
        return self.directory / name

    def facts(self, name: str) -> Any:
        return read_json(self._facts_path(name))

    def _facts_path(self, name: str) -> Path:
        return self.directory / f"{name}.json"

    def to_do(self) -> list[Step]:
        """The steps that must still run for the last one; the inputs of a finished step are not needed."""
        needed, todo = {self.steps[-1].name}, []
        for step in reversed(self.steps):
            if step.name in needed and not self.markers.is_done(step.name, step.inputs):
                todo.append(step)
                needed.update(step.reads)
        return todo[::-1]

    def run(self, say: Callable[[str], None]) -> Path:
        """Runs the remaining steps and returns the directory of the last; the caller deletes all outputs afterwards."""
        todo = self.to_do()
        if len(todo) < len(self.steps):
            say(f"resumes with the step {todo[0].name}" if todo else "resumes after the last step")
        for number, step in enumerate(todo):
            say(f"{step.name}...")
            self._make(step)
            # The inputs of the last step stay until its result has been moved.
            self._delete_unread([*todo[number + 1 :], self.steps[-1]])
        return self.path(self.steps[-1].name)

    def _make(self, step: Step) -> None:
        self.markers.clear(step.name)
        directory = empty_directory(self.path(step.name))
        try:
            with naming_full_disk(directory):
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
