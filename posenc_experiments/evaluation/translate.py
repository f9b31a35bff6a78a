"""Stage `translate`: translates every test set with fairseq-generate, and joins the tokens to sentences.

Hypotheses are sorted by their numbers in fairseq's output, and every source line must have one. The method that split
the text into subwords also joins them.
"""

import re
import shutil
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path, empty_directory, forget, read_json, write_text
from posenc_experiments.base.run import run_command, write_command
from posenc_experiments.data import context, prepare, subwords, text
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
from posenc_experiments.experiment.step import Step
from posenc_experiments.training.average import AverageStage

HYPOTHESIS = re.compile(r"H-(\d+)\t[^\t]*\t(.*)", re.DOTALL)


class TranslateStage(Step):
    name = "translate"
    after = AverageStage()
    reads_data = True

    def dry_run(self, experiment: Experiment) -> None:
        for test in pair_tests(experiment.run):
            experiment.run.dry(generate_command(experiment, test, experiment.generate_results))

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        run, tests = experiment.run, pair_tests(experiment.run)
        binarized, trained_with = binarized_dir(run), read_json(experiment.summary).get("vocabulary")
        if trained_with not in (None, prepare.vocabulary(binarized, run.source, run.target)):
            raise RecipeError(
                f"{binarized} has other dictionaries than the training of {experiment.title}: train again."
            )
        forget(experiment.directory, "score")
        for old in experiment.test_files([SENTENCES]):  # other tools scored the earlier translations
            old.unlink()
        for test in tests:
            _translate(experiment, test, empty_directory(experiment.generate_results), locks)
        shutil.rmtree(experiment.generate_results)
        return [experiment.test_file(test, kind) for test in tests for kind in (SOURCES, REFERENCES, HYPOTHESES)]


def _translate(experiment: Experiment, test: str, results: Path, locks: tuple[int, ...]) -> None:
    run = experiment.run
    log = experiment.test_file(test, GENERATE_LOG)
    log.unlink(missing_ok=True)
    run.say(f"translate: {experiment.title}: {test}")
    command = generate_command(experiment, test, results)
    write_command(experiment.test_file(test, GENERATE_SCRIPT), command, generate_environment(run))
    run_command(run, command, log, f"Translating {test} with {experiment.title}", generate_environment(run), locks)
    raw = {side: prepared_dir(run) / f"{test}.{side}" for side in (run.source, run.target)}
    sources = list(text.clean_eval_lines(raw[run.source]))
    tokens = read_hypotheses(results / f"generate-{prepare.subset(run, test)}.txt", len(sources))
    if run.recipe.prepare.context:
        tokens = [context.last_part(hypothesis) for hypothesis in tokens]
    # Lines without tokens get an empty translation; fairseq would invent a sentence.
    encoded = subwords.load(prepared_dir(run), run.source, run.recipe.prepare).encode(sources)
    written = subwords.load(prepared_dir(run), run.target, run.recipe.prepare)
    lines = [written.decode(hypothesis) if source else "" for source, hypothesis in zip(encoded, tokens, strict=True)]
    for kind, side in ((SOURCES, run.source), (REFERENCES, run.target)):
        with atomic_path(experiment.test_file(test, kind)) as temporary:
            shutil.copyfile(raw[side], temporary)
    write_text(experiment.test_file(test, HYPOTHESES), "".join(f"{text.clean(line)}\n" for line in lines))


def read_hypotheses(path: Path, expected: int) -> list[list[str]]:
    """Reads the tokens of each sentence's best hypothesis, in the source's order; RecipeError if one is missing."""
    found: dict[int, list[str]] = {}
    for line in text.read_lines(path):
        match = HYPOTHESIS.fullmatch(line.decode("utf-8"))
        if match:
            found.setdefault(int(match[1]), match[2].split())  # with --nbest, the first is the best
    if sorted(found) != list(range(expected)):
        missing = [number + 1 for number in range(expected) if number not in found]
        raise RecipeError(
            f"{path}: {len(found):,} hypotheses for {expected:,} source lines, none for lines {missing[:5]}: check "
            "`generate` in the recipe; nothing is scored."
        )
    return [found[number] for number in range(expected)]
