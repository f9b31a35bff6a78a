"""Stage `score`: SacreBLEU's own command on the untouched reference, kept as it prints it."""

import json
import os
import subprocess
from pathlib import Path

from recipes.common import text
from recipes.common.errors import RecipeError
from recipes.common.experiment import Experiment
from recipes.common.stages import locked, write_json


def score(experiment: Experiment) -> None:
    """Runs the stage."""
    run, markers, inputs = experiment.run, experiment.markers, experiment.score_inputs()
    tests = run.recipe.corpus.tests
    if run.dry_run:
        for test in tests:
            run.dry([*score_command(experiment, test), ">", experiment.test_file(test, "sacrebleu.json")])
        return
    if markers.is_done("score", inputs):
        return
    if not markers.is_done("translate", experiment.translate_inputs()):
        raise RecipeError(
            f"{experiment.title} has no translations yet (or its settings changed since): run the stage translate."
        )
    with locked(experiment.directory):
        markers.clear("score")
        for test in tests:
            reference, hypothesis = experiment.test_file(test, "ref"), experiment.test_file(test, "hyp")
            require_equal_counts(reference, hypothesis)
            result = sacrebleu(score_command(experiment, test), f"Scoring {test} of {experiment.title}")
            write_json(experiment.test_file(test, "sacrebleu.json"), result)
            scores = ", ".join(f"{row['name']} {row['score']}" for row in result)
            run.say(f"score: {experiment.title}: {test}: {scores}")
        markers.set_done("score", inputs, [experiment.test_file(test, "sacrebleu.json") for test in tests])


def score_command(experiment: Experiment, test: str) -> list[str]:
    """BLEU (13a, cased) and chrF with bootstrap confidence intervals, two decimals."""
    reference, hypothesis = experiment.test_file(test, "ref"), experiment.test_file(test, "hyp")
    words = [experiment.run.python, "-m", "sacrebleu", str(reference), "-i", str(hypothesis)]
    return [*words, "-m", "bleu", "chrf", "--confidence", "-f", "json", "-w", "2"]


def require_equal_counts(reference: Path, hypothesis: Path) -> None:
    """RecipeError unless every reference line has its hypothesis."""
    wanted, found = (sum(1 for _ in text.read_lines(path)) for path in (reference, hypothesis))
    if wanted != found:
        raise RecipeError(
            f"{hypothesis} has {found:,} lines and {reference} has {wanted:,}: nothing is scored; run "
            f"the stage translate again."
        )


def sacrebleu(command: list[str], what: str) -> list[dict[str, object]]:
    """Runs SacreBLEU and reads the list that it prints."""
    # SacreBLEU's own seed, whatever the user's environment says: scores must not depend on it.
    environment = {**os.environ, "SACREBLEU_SEED": "12345"}
    process = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment, check=False)
    if process.returncode != 0:
        reason = (process.stderr.strip().split("\n") or ["no message"])[-1]
        raise RecipeError(f"{what} failed: {reason}")
    result = json.loads(process.stdout)
    return result if isinstance(result, list) else [result]
