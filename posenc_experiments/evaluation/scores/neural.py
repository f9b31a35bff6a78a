"""Neural metrics of translations as TEST.METRIC.scores: runs COMET, and reads what MetricX, BLEURT or COMET wrote."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import empty_directory, file_hash, write_text
from posenc_experiments.base.run import Run
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.results import read_lines, read_sentence_scores
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES, SENTENCES, SOURCES

#: the last version that computes in single precision. It needs an earlier NumPy than fairseq, and pkg_resources.
COMET, PYTHON, SETUPTOOLS = "2.2.4", "3.11", "setuptools<81"
#: the translation and the score of each sentence; the translation is None where a file does not hold it
Scores = list[tuple[str | None, float]]


class Neural(NamedTuple):
    """A neural metric: its name in tables, the kind of file beside the translations, and how that is read.

    Args:
        factor: of the scores in tables: 100 for scores from 0 to 1.
        command: what writes the file.
    """

    name: str
    file: str
    read: Callable[[str], Scores]
    factor: int
    command: str


def _comet(text: str) -> Scores:
    [entries] = json.loads(text).values()  # by the file of translations
    return _entries(entries)


def _entries(entries: Sequence[Any]) -> Scores:
    return [(entry["mt"], float(entry["COMET"])) for entry in entries]


def _metricx(text: str) -> Scores:
    entries = [json.loads(line) for line in text.splitlines()]
    return [(entry["hypothesis"], float(entry["prediction"])) for entry in entries]


def _bleurt(text: str) -> Scores:
    return [(None, float(line)) for line in text.splitlines()]


#: by the keys of score.neural
METRICS = {
    "comet": Neural("COMET", "comet.json", _comet, 100, "comet-score --to_json"),
    "metricx": Neural("MetricX", "metricx.jsonl", _metricx, 1, "MetricX's predict.py --output_file"),
    "bleurt": Neural("BLEURT", "bleurt.txt", _bleurt, 100, "bleurt.score_files -scores_file"),
}


def score_neural(run: Run, experiments: Sequence[Experiment]) -> None:
    """Writes the scores of the recipe's neural metrics that are missing.

    Raises:
        RecipeError: a model or a file cannot be had, or is of other translations.
    """
    for key, model in run.recipe.score.neural.items():
        metric = METRICS[key]
        for test in pair_tests(run):
            left = [one for one in experiments if not _take(one, test, metric, model)]
            if left and key == "comet":
                _run_comet(run, left, test, model)
            elif left and not run.dry_run:
                file, translations = left[0].test_file(test, metric.file), left[0].test_file(test, HYPOTHESES)
                raise RecipeError(
                    f"{file} is missing: write it by {metric.command} with {model} from {translations}, or remove "
                    f"score.neural.{key}."
                )


def _take(experiment: Experiment, test: str, metric: Neural, model: str) -> bool:
    """Whether the scores are there, after those of a file beside the translations were taken."""
    file, scores = experiment.test_file(test, metric.file), _scores_file(experiment, test, metric)
    signature = f"{metric.name}|{model}|{file.name}" if file.is_file() else _signature(model)
    if scores.is_file() and read_sentence_scores(scores)[0] == signature:
        return True
    if experiment.run.dry_run or not file.is_file():
        return False
    if file.stat().st_mtime < experiment.test_file(test, HYPOTHESES).stat().st_mtime:
        raise RecipeError(f"{file} is older than the translations: write it again by {metric.command}.")
    try:
        found = metric.read(file.read_text(encoding="utf-8"))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecipeError(f"{file} is not as {metric.command} writes it ({error!r}): write it again.") from None
    _write(experiment, test, metric, signature, found, file)
    return True


def _run_comet(run: Run, experiments: Sequence[Experiment], test: str, model: str) -> None:
    """Runs comet-score once for the translations of these experiments."""
    work = run.pair_results_dir / f"{test}.comet.tmp"
    output, log = work / "scores.json", run.pair_results_dir / f"{test}.comet.log"
    first, translations = experiments[0], [one.test_file(test, HYPOTHESES) for one in experiments]
    words = [
        *_launcher(),
        "--model",
        _full_name(model),
        "--gpus",
        "1" if run.hardware.gpus else "0",
        "--quiet",
        "--only_system",
    ]
    words += ["--sources", first.test_file(test, SOURCES), "--references", first.test_file(test, REFERENCES)]
    words += ["--translations", *translations, "--to_json", output]
    if run.dry_run:
        run.dry(words)
        return
    run.say(f"compare: COMET of {len(experiments)} translations of {test}, log {log}")
    empty_directory(work)
    try:
        run_command(run, words, log, f"COMET of {test}")
    except RecipeError as error:
        raise RecipeError(
            f"{error} Without a network, download the model elsewhere and give the path of its model.ckpt: "
            "--set 'score.neural={comet: PATH}'."
        ) from None
    by_file = json.loads(output.read_text(encoding="utf-8"))
    for experiment, path in zip(experiments, translations, strict=True):
        _write(experiment, test, METRICS["comet"], _signature(model), _entries(by_file[str(path)]), output)
    shutil.rmtree(work)


def _launcher() -> list[str | Path]:
    """The command that runs comet-score in an environment of its own.

    Raises:
        RecipeError: there is no tool that makes one.
    """
    package = f"unbabel-comet=={COMET}"
    if shutil.which("uvx"):
        return ["uvx", "--python", PYTHON, "--with", SETUPTOOLS, "--from", package, "comet-score"]
    raise RecipeError("score.neural.comet runs comet-score by uvx, which is not here: install it by pip install uv.")


def _signature(model: str) -> str:
    """What a score of `_run_comet` depends on, in SacreCOMET's form; a model in a file is known by its content."""
    path = Path(model)
    name = f"{path.name}:{file_hash(path)[:8]}" if path.is_file() else _full_name(model)
    return f"Python{PYTHON}|Comet{COMET}|fp32|{name}"


def _full_name(model: str) -> str:
    """The path of a model, or its name with its owner, Unbabel by default."""
    return model if "/" in model or Path(model).is_file() else f"Unbabel/{model}"


def _scores_file(experiment: Experiment, test: str, metric: Neural) -> Path:
    return experiment.test_file(test, f"{metric.name}.{SENTENCES}")


def _write(experiment: Experiment, test: str, metric: Neural, signature: str, found: Scores, file: Path) -> None:
    """Writes the scores; RecipeError if they are of other translations."""
    translations = read_lines(experiment.test_file(test, HYPOTHESES))
    same = [text is None or text.strip() == line.strip() for (text, _), line in zip(found, translations, strict=False)]
    if len(found) != len(translations) or not all(same):
        raise RecipeError(
            f"{file} is not of the translations in {experiment.test_file(test, HYPOTHESES)}: write it again by "
            f"{metric.command}."
        )
    lines = "".join(f"{metric.factor * score:.4f}\n" for _, score in found)
    write_text(_scores_file(experiment, test, metric), f"# {signature}\n{lines}")
