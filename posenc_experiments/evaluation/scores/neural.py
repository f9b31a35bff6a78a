"""Neural metrics of translations as TEST.METRIC.scores: runs COMET, and reads what MetricX, BLEURT or COMET wrote."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, write_text
from posenc_experiments.base.recipe import NEURAL
from posenc_experiments.base.run import Run
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.data.text import clean_eval_lines
from posenc_experiments.evaluation.results import read_lines
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import HYPOTHESES, REFERENCES, SENTENCES, SOURCES

#: the last version that computes in single precision. It needs an earlier NumPy than fairseq, and pkg_resources.
COMET, PYTHON, SETUPTOOLS = "2.2.4", "3.11", "setuptools<81"
#: the model that most papers name
DEFAULT = "wmt22-comet-da"
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
    read: Callable[[Path], Scores]
    factor: int
    command: str


def _comet(path: Path) -> Scores:
    [entries] = json.loads(path.read_bytes()).values()  # by the file of translations
    return _entries(entries)


def _entries(entries: Sequence[Any]) -> Scores:
    return [(entry["mt"], float(entry["COMET"])) for entry in entries]


def _metricx(path: Path) -> Scores:
    entries = [json.loads(line) for line in read_lines(path)]
    return [(entry["hypothesis"], float(entry["prediction"])) for entry in entries]


def _bleurt(path: Path) -> Scores:
    return [(None, float(line)) for line in read_lines(path)]


#: by the keys of score.neural
_METRICS = (
    Neural("COMET", "comet.json", _comet, 100, "comet-score --to_json"),
    Neural("MetricX", "metricx.jsonl", _metricx, 1, "MetricX's predict.py --output_file"),
    Neural("BLEURT", "bleurt.txt", _bleurt, 100, "bleurt.score_files -scores_file"),
)
METRICS = dict(zip(NEURAL, _METRICS, strict=True))


def check_neural(run: Run) -> None:
    """Refuses a COMET that cannot be run, before anything is trained.

    Raises:
        RecipeError: there is no uvx, or no such file of a model.
    """
    model = run.recipe.score.neural.get("comet")
    if model is None:
        return
    if _is_file(model) and not Path(model).is_file():
        raise RecipeError(f"score.neural.comet: there is no file {model}; name another, or a model such as {DEFAULT}.")
    if not shutil.which("uvx"):
        raise RecipeError(
            "score.neural.comet runs comet-score by uvx, which is not here: install it by pip install uv."
        )


def score_neural(run: Run, experiments: Sequence[Experiment]) -> None:
    """Writes the scores of the recipe's neural metrics that are missing.

    Raises:
        RecipeError: models or files cannot be had, or are of other translations; the other scores are written.
    """
    problems = []
    for key, model in run.recipe.score.neural.items():
        metric = METRICS[key]
        signature = _signature(model) if key == "comet" else ""
        for test in pair_tests(run):
            try:
                left = [one for one in experiments if not _is_scored(one, test, metric, model, signature)]
                if left and key == "comet":
                    _run_comet(run, left, test, model, signature)
                elif left and not run.dry_run:
                    file, translations = left[0].test_file(test, metric.file), left[0].test_file(test, HYPOTHESES)
                    problems.append(
                        f"{file} is missing, as of {len(left)} of {len(experiments)} experiments: write it by "
                        f"{metric.command} with {model} from {translations}, or remove score.neural.{key}."
                    )
            except RecipeError as error:
                problems.append(str(error))
    if problems:
        raise RecipeError("\nError: ".join(problems))


def _is_scored(experiment: Experiment, test: str, metric: Neural, model: str, signature: str) -> bool:
    """Whether the scores are there, after those of a file beside the translations were taken.

    Args:
        signature: of scores that this program makes.
    """
    file, translations = experiment.test_file(test, metric.file), experiment.test_file(test, HYPOTHESES)
    is_taken = file.is_file()
    if is_taken:
        signature = f"{metric.name}|{model}|{file.name}:{file_hash(file)[:8]}"
    written = experiment.test_file(test, f"{metric.name}.{SENTENCES}")
    if written.is_file() and written.read_text(encoding="utf-8").partition("\n")[0] == f"# {signature}":
        return True
    if experiment.run.dry_run or not is_taken:
        return False
    try:
        scores = metric.read(file)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise RecipeError(f"{file} is not as {metric.command} writes it ({error!r}): write it again.") from None
    if any(text is None for text, _ in scores) and file.stat().st_mtime < translations.stat().st_mtime:
        raise RecipeError(f"{file} is older than the translations: write it again by {metric.command}.")
    _write(experiment, test, metric, signature, scores, file)
    return True


def _run_comet(run: Run, experiments: Sequence[Experiment], test: str, model: str, signature: str) -> None:
    """Runs comet-score once for the translations of these experiments."""
    first, log = experiments[0], run.pair_results_dir / f"{test}.comet.log"
    words: list[str | Path] = ["uvx", "--python", PYTHON, "--with", SETUPTOOLS, "--from", f"unbabel-comet=={COMET}"]
    words += ["comet-score", "--model", _full_name(model), "--gpus", "1" if run.hardware.gpus else "0", "--quiet"]
    translations = [one.test_file(test, HYPOTHESES) for one in experiments]
    words += ["--only_system", "--translations", *translations]
    if run.dry_run:
        run.dry(
            [*words, "--sources", first.test_file(test, SOURCES), "--references", first.test_file(test, REFERENCES)]
        )
        return
    check_neural(run)
    run.say(f"compare: COMET of {len(experiments)} translations of {test}, log {log}")
    with TemporaryDirectory(dir=run.pair_results_dir, prefix=f"{test}.comet.") as directory:
        output = Path(directory, "scores.json")
        for flag, kind in (("--sources", SOURCES), ("--references", REFERENCES)):
            copy = Path(directory, kind)  # without the carriage returns at which COMET would end lines
            write_text(copy, "".join(f"{line}\n" for line in clean_eval_lines(first.test_file(test, kind))))
            words += [flag, copy]
        try:
            run_command(run, [*words, "--to_json", output], log, f"COMET of {test}")
        except RecipeError as error:
            raise RecipeError(
                f"{error} Without a network, download the model elsewhere and give the path of its model.ckpt: "
                "--set 'score.neural={comet: PATH}'."
            ) from None
        try:
            by_file = json.loads(output.read_bytes())
            scores = [_entries(by_file[str(path)]) for path in translations]
        except (OSError, KeyError, TypeError, ValueError) as error:
            raise RecipeError(f"comet-score wrote no scores of {test} ({error!r}): read {log}.") from None
        for experiment, own in zip(experiments, scores, strict=True):
            _write(experiment, test, METRICS["comet"], signature, own, output)


def _is_file(model: str) -> bool:
    """Whether a model is named by its file."""
    return model.endswith(".ckpt")


def _full_name(model: str) -> str:
    """The path of a model, or its name with its owner, Unbabel by default."""
    return model if _is_file(model) or "/" in model else f"Unbabel/{model}"


def _signature(model: str) -> str:
    """What a score of `_run_comet` depends on, in SacreCOMET's form; a model in a file is known by its content."""
    path = Path(model)
    known = _is_file(model) and path.is_file()
    name = f"{path.name}:{file_hash(path)[:8]}" if known else _full_name(model)
    return f"Python{PYTHON}|Comet{COMET}|fp32|{name}"


def _write(experiment: Experiment, test: str, metric: Neural, signature: str, scores: Scores, file: Path) -> None:
    """Writes the scores; RecipeError if they are of other translations, or no numbers."""
    translations = read_lines(experiment.test_file(test, HYPOTHESES))
    same = [text is None or text.strip() == line.strip() for (text, _), line in zip(scores, translations, strict=False)]
    if len(scores) != len(translations) or not all(same):
        raise RecipeError(
            f"{file} is not of the translations in {experiment.test_file(test, HYPOTHESES)}: write it again by "
            f"{metric.command}."
        )
    for number, (_, score) in enumerate(scores, 1):
        if not math.isfinite(score):
            raise RecipeError(
                f"{file} has the score {score} for sentence {number}: write it again by {metric.command}."
            )
    lines = "".join(f"{metric.factor * score:.4f}\n" for _, score in scores)
    write_text(experiment.test_file(test, f"{metric.name}.{SENTENCES}"), f"# {signature}\n{lines}")
