"""Stage `score`: runs SacreBLEU's command on the unchanged references, and stores its output.

If the .conf says so, it also compares the references with SacreBLEU's own test set, and computes the historical score.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import has_asian_ter
from posenc_experiments.base.markers import file_hash, read_json, write_json
from posenc_experiments.data import testsets, text
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.historical import historical_bleu, name_of
from posenc_experiments.evaluation.metrics import BOOTSTRAP_SEED
from posenc_experiments.evaluation.results import SEAL, require_equal_counts, seal
from posenc_experiments.evaluation.translate import TranslateStage
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import HISTORICAL, HYPOTHESES, REFERENCES, SACREBLEU, SCORED
from posenc_experiments.experiment.stage import Stage

#: SacreBLEU 2.6.0 ends with it if some samples of the bootstrap score exactly 0, whose type is another
MEAN_FAILED = "TypeError: don't know how to coerce"
#: runs SacreBLEU's command with a mean that takes both types
WITH_FMEAN = (
    "import runpy, statistics; statistics.mean = statistics.fmean; "
    "runpy.run_module('sacrebleu', alter_sys=True, run_name='__main__')"
)


class ScoreStage(Stage):
    name = "score"
    after = TranslateStage()

    def dry_run(self, experiment: Experiment) -> None:
        for test in pair_tests(experiment.run):
            _dry_run(experiment, test)

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the stage is done, and the scores still match their files."""
        return super().is_done(experiment) and all(
            _matches_files(experiment, test) for test in pair_tests(experiment.run)
        )

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        # Scores of earlier settings may be of other test sets, so they would not all be overwritten.
        for old in experiment.test_files((SACREBLEU, HISTORICAL)):
            old.unlink()
        return [file for test in pair_tests(experiment.run) for file in _score(experiment, test)]


def _hashes(experiment: Experiment, test: str) -> dict[str, str]:
    return {name: file_hash(experiment.test_file(test, kind)) for kind, name in SCORED.items()}


def _matches_files(experiment: Experiment, test: str) -> bool:
    """Whether a score records the hashes of the current hypotheses and references."""
    try:
        hashes = _hashes(experiment, test)
    except FileNotFoundError:
        return False
    rows = read_json(experiment.test_file(test, SACREBLEU))
    return isinstance(rows, list) and all(isinstance(row, dict) and row.items() >= hashes.items() for row in rows)


def _score(experiment: Experiment, test: str) -> list[Path]:
    run = experiment.run
    reference, hypothesis = experiment.test_file(test, REFERENCES), experiment.test_file(test, HYPOTHESES)
    require_equal_counts(hypothesis, reference)
    what = f"Scoring {test} of {experiment.title}"
    result = [row for command in score_commands(experiment, test) for row in sacrebleu(command, what)]
    if test in run.recipe.score.testsets:
        found = compare_with_testset(experiment, test, result)
        result = [{**row, "reference": found} for row in result]
        run.say(f"score: {experiment.title}: {test}: reference: {found}")
    # compare uses the hashes to verify that the scores match their files.
    origin = {**_hashes(experiment, test), "translation": experiment.translation()}
    files = [experiment.test_file(test, SACREBLEU)]
    _write_sealed(files[0], [{**row, **origin} for row in result])
    if run.recipe.score.historical:
        files.append(experiment.test_file(test, HISTORICAL))
        historical = historical_bleu(_decoded(hypothesis), _decoded(reference), run.target, run.recipe.score.tokenized)
        _write_sealed(files[1], [{**row, **origin} for row in historical])
        result += historical
    scores = ", ".join(f"{row['name']} {row['score']}" for row in result)
    run.say(f"score: {experiment.title}: {test}: {scores}")
    return files


def _write_sealed(path: Path, rows: Iterable[dict[str, object]]) -> None:
    write_json(path, [{**row, SEAL: seal(row)} for row in rows])


def _dry_run(experiment: Experiment, test: str) -> None:
    run = experiment.run
    first, *others = score_commands(experiment, test)
    run.dry([*first, ">", experiment.test_file(test, SACREBLEU)])
    for command in others:
        run.dry(command)
    name = run.recipe.score.testsets.get(test)
    if name is not None and testsets.is_local(name, run.pair):
        for command in testset_commands(experiment, test):
            run.dry(command)
    if run.recipe.score.historical:
        run.say(f"# {name_of(run.recipe.score.tokenized)} of {test} into {experiment.test_file(test, HISTORICAL)}")


def score_commands(experiment: Experiment, test: str) -> list[list[str]]:
    """The commands for BLEU, chrF and other metrics of the .conf, with bootstrap confidence intervals.

    They are cased unless the model's text is not. SacreBLEU computes one kind of chrF in a call.
    """
    return _sacrebleu_commands(experiment, test, [str(experiment.test_file(test, REFERENCES))])


def testset_commands(experiment: Experiment, test: str) -> list[list[str]]:
    """The same commands with SacreBLEU's own references."""
    name = experiment.run.recipe.score.testsets[test]
    return _sacrebleu_commands(experiment, test, ["-t", name, "-l", experiment.run.pair])


def _sacrebleu_commands(experiment: Experiment, test: str, references: list[str]) -> list[list[str]]:
    recipe = experiment.run.recipe
    words = [*experiment.run.module("sacrebleu"), *references, "-i", str(experiment.test_file(test, HYPOTHESES))]
    words += ["--tokenize", experiment.run.tokenizer]
    # With case, perfect lowercase translations would get a BLEU of only 23 to 27 on Multi30k's German test sets.
    case = ["-lc", "--chrf-lowercase"] if recipe.prepare.lowercase else []
    more = ["ter"] if "ter" in recipe.score.metrics else []
    if more and has_asian_ter(experiment.run.target):
        case += ["--ter-normalized", "--ter-asian-support"]
    calls = [
        ["bleu", "chrf", *more],
        *([["chrf", "--chrf-word-order", "2"]] if "chrf++" in recipe.score.metrics else []),
    ]
    return [[*words, "-m", *metrics, *case, "--confidence", "-f", "json", "-w", "2"] for metrics in calls]


def compare_with_testset(experiment: Experiment, test: str, result: list[dict[str, object]]) -> str:
    """Compares scores with those of SacreBLEU's own references; returns a note on the origin of the reference.

    The note is needed because SacreBLEU's signatures do not name the test set since version 2.

    Raises:
        RecipeError: SacreBLEU's own references give other scores.
    """
    name, pair = experiment.run.recipe.score.testsets[test], experiment.run.pair
    option = f"sacrebleu -t {name} -l {pair}"
    if not testsets.is_local(name, pair):
        return (
            f"{test} as downloaded, not compared with `{option}`, which is not on this machine "
            f"(`sacrebleu --download {name} -l {pair}` fetches it)"
        )
    commands = testset_commands(experiment, test)
    what = f"Scoring {test} of {experiment.title} against SacreBLEU's {name}"
    other = [row for command in commands for row in sacrebleu(command, what)]
    if other != result:
        scores = [", ".join(f"{row['name']} {row['score']}" for row in rows) for rows in (result, other)]
        raise RecipeError(
            f"{test} is not SacreBLEU's {name} {pair}: {experiment.test_file(test, HYPOTHESES)} has {scores[0]} "
            f"against the corpus's reference and {scores[1]} against SacreBLEU's ({shlex.join(commands[0])}); correct "
            "[score] testsets or the data."
        )
    return f"{option} (same scores from both files)"


def _decoded(path: Path) -> list[str]:
    return [line.decode("utf-8") for line in text.read_lines(path)]


def sacrebleu(command: list[str], what: str) -> list[dict[str, object]]:
    """Runs SacreBLEU and returns the list of metrics that it prints."""
    # SacreBLEU's default seed and the JSON format, so that the user's environment does not change scores.
    environment = {**os.environ, "SACREBLEU_SEED": str(BOOTSTRAP_SEED), "SACREBLEU_FORMAT": "json"}
    process = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    if MEAN_FAILED in process.stderr:
        command = [command[0], "-c", WITH_FMEAN, *command[command.index("sacrebleu") + 1 :]]
        process = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    if process.returncode != 0:
        reason = (process.stderr.strip() or f"exit status {process.returncode}").split("\n")[-1]
        raise RecipeError(f"{what} failed ({reason}): run {shlex.join(command)} to see all that it prints.")
    result = json.loads(process.stdout)
    return result if isinstance(result, list) else [result]
