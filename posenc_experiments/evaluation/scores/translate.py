"""Stage `translate`: translates every test set with fairseq-generate, and joins the tokens to sentences.

Hypotheses are sorted by their numbers in fairseq's output, and every source line must have one. The method that split
the text into subwords also joins them.
"""

import re
import shutil
import time
from pathlib import Path
from typing import Any

from posenc_experiments.base.done import forget
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import atomic_path, empty_directory, new_lines, read_json, write_text
from posenc_experiments.base.subprocesses import run_command, time_left, write_command
from posenc_experiments.data import context, prepared, subwords, text
from posenc_experiments.data.prepared import binarized_dir, prepared_dir
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.experiment.command_lines import generate_command, generate_environment
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import (
    GENERATE_LOG,
    GENERATE_SCRIPT,
    HYPOTHESES,
    REFERENCES,
    SENTENCES,
    SOURCES,
)
from posenc_experiments.experiment.stage import Stage
from posenc_experiments.training.train import AverageStage

SHOWN_EVERY = 60  # seconds
HYPOTHESIS = re.compile(r"H-(\d+)\t[^\t]*\t(.*)", re.DOTALL)


class TranslateStage(Stage):
    name = "translate"
    reads = AverageStage()
    reads_data = True

    def settings(self, experiment: Experiment) -> list[Any]:
        return [experiment.translation(), pair_tests(experiment.run), prepared.test_inputs(experiment.run)]

    def dry_run(self, experiment: Experiment) -> None:
        for test in pair_tests(experiment.run):
            experiment.run.dry(generate_command(experiment, test, experiment.generate_results))

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        run, tests = experiment.run, pair_tests(experiment.run)
        binarized, trained_with = binarized_dir(run), read_json(experiment.summary).get("vocabulary")
        if trained_with not in (None, prepared.vocabulary(binarized, run.source, run.target)):
            raise RecipeError(
                f"{binarized} has other dictionaries than the training of {experiment.title}: train again."
            )
        translations = {
            test: _translate(experiment, test, empty_directory(experiment.generate_results), locks) for test in tests
        }
        forget(experiment.directory, "score")
        for old in experiment.test_files([SENTENCES]):  # other tools scored the earlier translations
            old.unlink()
        for test, lines in translations.items():
            _write(experiment, test, lines)
        shutil.rmtree(experiment.generate_results)
        return [experiment.test_file(test, kind) for test in tests for kind in (SOURCES, REFERENCES, HYPOTHESES)]


def _translate(experiment: Experiment, test: str, results: Path, locks: tuple[int, ...]) -> list[str]:
    """The translations of a test set, one for each line of the source."""
    run = experiment.run
    log = experiment.test_file(test, GENERATE_LOG)
    log.unlink(missing_ok=True)
    run.say(f"translate: {experiment.title}: {test}")
    command = generate_command(experiment, test, results)
    sources = list(text.clean_eval_lines(prepared_dir(run) / f"{test}.{run.source}"))
    output = results / f"generate-{prepared.subset(run, test)}.txt"
    what, display = f"Translating {test} with {experiment.title}", _Display(experiment, test, output, len(sources))
    run_command(run, command, log, what, generate_environment(run), locks, display.show)
    tokens = read_hypotheses(output, len(sources))
    if run.recipe.prepare.context:
        tokens = [context.last_part(hypothesis) for hypothesis in tokens]
    # Lines without tokens get an empty translation; fairseq would invent a sentence.
    encoded = subwords.load(prepared_dir(run), run.source, run.recipe.prepare).encode(sources)
    written = subwords.load(prepared_dir(run), run.target, run.recipe.prepare)
    return [written.decode(hypothesis) if source else "" for source, hypothesis in zip(encoded, tokens, strict=True)]


def _write(experiment: Experiment, test: str, lines: list[str]) -> None:
    """Writes the translations of a test set, with the command that made them, sources and references beside them."""
    run = experiment.run
    command = generate_command(experiment, test, experiment.generate_results)
    write_command(experiment.test_file(test, GENERATE_SCRIPT), command, generate_environment(run))
    copied = {SOURCES: run.source, REFERENCES: run.target, context.DOCUMENTS: context.DOCUMENTS}
    for kind, suffix in copied.items():
        original = prepared_dir(run) / f"{test}.{suffix}"
        if kind != context.DOCUMENTS or original.is_file():
            with atomic_path(experiment.test_file(test, kind)) as temporary:
                shutil.copyfile(original, temporary)
    write_text(experiment.test_file(test, HYPOTHESES), "".join(f"{text.clean(line)}\n" for line in lines))


class _Display:
    """Prints a line for each minute of a running translation: the sentences that are done, and the time left."""

    def __init__(self, experiment: Experiment, test: str, output: Path, sentences: int) -> None:
        self.experiment, self.test, self.output, self.sentences = experiment, test, output, sentences
        self.done, self.read = 0, 0  # sentences, and bytes of fairseq's output
        self.began: tuple[float, int] | None = None  # when the first were seen, and how many
        self.printed = time.monotonic()

    def show(self) -> None:
        """Reads new lines of fairseq's output; called a few times a second."""
        lines, self.read = new_lines(self.output, self.read)
        self.done += sum(line.startswith(b"S-") for line in lines)
        now = time.monotonic()
        if self.began is None and self.done:
            self.began = now, self.done
        if self.began is not None and now >= self.printed + SHOWN_EVERY:
            self.printed = now
            seconds, done = now - self.began[0], self.done - self.began[1]
            left = (
                time_left((self.sentences - self.done) * seconds / done) if done and self.done < self.sentences else ""
            )
            text = f"{self.test}: {self.done:,} of {self.sentences:,} sentences{left}"
            self.experiment.run.say(f"translate: {self.experiment.title}: {text}")


def read_hypotheses(path: Path, expected: int) -> list[list[str]]:
    """Reads the tokens of each sentence's best hypothesis, in the source's order; RecipeError if one is missing."""
    hypotheses: dict[int, list[str]] = {}
    for line in text.read_lines(path):
        match = HYPOTHESIS.fullmatch(line.decode("utf-8"))
        if match:
            hypotheses.setdefault(int(match[1]), match[2].split())  # with --nbest, the first is the best
    if sorted(hypotheses) != list(range(expected)):
        missing = [number + 1 for number in range(expected) if number not in hypotheses]
        raise RecipeError(
            f"{path}: {len(hypotheses):,} hypotheses for {expected:,} source lines, none for lines {missing[:5]}: "
            "check `generate` in the recipe; nothing is scored."
        )
    return [hypotheses[number] for number in range(expected)]
