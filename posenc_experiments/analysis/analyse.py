"""From experiment directories and checkpoints to their analysis.json and the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from posenc_experiments.analysis.data import Data, data_of
from posenc_experiments.analysis.page import render
from posenc_experiments.analysis.record import Record, Subject, analyse_subject
from posenc_experiments.analysis.texts import read_texts
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import require_output, write_text
from posenc_experiments.evaluation.results import bleu_results, read_results
from posenc_experiments.evaluation.statistics.comparison import find_baselines
from posenc_experiments.evaluation.statistics.pooling import pool, require_comparable
from posenc_experiments.experiment.layout import ANALYSIS, ExperimentDirectory


def analyse(
    directories: Sequence[Path],
    output: Path,
    say: Callable[[str], None],
    baseline: str | None = None,
    test: str | None = None,
    checkpoints: Sequence[Path] = (),
    pair: str | None = None,
    binarized: Path | None = None,
    sentences: int | None = None,
    models: bool = True,
    cpu: bool = False,
) -> None:
    """Writes analysis.json of each experiment and checkpoint, and then the page.

    Args:
        directories: experiment directories, or directories that hold them.
        output: the page's file.
        say: takes lines for the user.
        baseline: the name of the row that the others are compared with first.
        test: the test set of the page; the first if left out. Without experiments, a subset of the binarized data.
        checkpoints: also of these, which need `pair` and `binarized`.
        pair: the languages of the checkpoints.
        binarized: binarized data of the experiments, where it is elsewhere than at their translation.
        sentences: the number of sentences of the test set that models read; all if left out.
        models: whether models are analysed, too.
        cpu: whether models compute on the CPU even where there is a GPU.

    Raises:
        RecipeError: an experiment cannot be read, or not be compared with the others; or an option is missing.
    """

    def tell(*parts: str) -> None:
        say(": ".join(("analyse", *parts)))

    require_output(output, "analysis.html")
    results: pd.DataFrame | None = None
    first = 0  # the row of the baseline
    subjects: list[Subject] = []
    if directories:
        every = read_results(directories)
        results = _results_of_test(every, test)
        [rows] = pool(results)
        if baseline is not None:
            [named] = find_baselines([rows], baseline)
            first = next(number for number, row in enumerate(rows) if row is named)
        read = results["test"].iloc[0] if models else None  # the test set that models read
        for row in rows:
            for directory in row.directories:
                mine = [one for one in bleu_results(every) if one.directory == directory]
                checkpoint = ExperimentDirectory(directory).averaged
                data = next((data_of(one, binarized) for one in mine if one.test == read), None)
                file = _record_file(directory, ANALYSIS, output)
                subjects.append(Subject(row.shown, file, checkpoint, data if checkpoint.is_file() else None, mine))
    if checkpoints:
        source, _, target = (pair or "").partition("-")
        if not (binarized and source and target):
            raise RecipeError(
                "--checkpoint needs --data, the directory of fairseq-preprocess, and --pair, such as en-de."
            )
        data = None if results is None else data_of(bleu_results(results)[0], binarized)
        data = data or Data(binarized, source, target, test or "test")
        if problem := data.problem():
            raise RecipeError(f"--data {data.directory}: {problem}")
        files = [path.name for path in checkpoints]
        for path in checkpoints:
            name = path.name if files.count(path.name) == 1 else str(path)
            file = _record_file(path.absolute().parent, f"{path.name}.{ANALYSIS}", output)
            subjects.append(Subject(name, file, path, data))
    _require_one_vocabulary(subjects)
    records: dict[str, list[Record]] = {}
    for number, one in enumerate(subjects, 1):
        title = f"{one.name} ({number} of {len(subjects)})"
        if models and one.data is None:
            tell(
                title,
                "no model: averaged.pt or the data of its training is not there (--data names the data); "
                f"figures of an earlier call stay in {one.file.name}, and the page leaves them out",
            )
        records.setdefault(one.name, []).append(analyse_subject(one, sentences, cpu, partial(tell, title)))
    tell("comparing and drawing")
    write_text(output, render(results, records, first))
    tell(f"{output} ({output.stat().st_size / 1e6:.1f} MB)")


def _results_of_test(results: pd.DataFrame, test: str | None) -> pd.DataFrame:
    """The results of one test set.

    Raises:
        RecipeError: the experiments are of several corpora or pairs, or of several limits of the training's lengths, or
            one lacks the test set, or has another source.
    """
    first = results.iloc[0]
    for column in ("corpus", "pair", "train_max_words"):
        for directory, value in zip(results["directory"], results[column], strict=True):
            if value != first[column]:
                raise RecipeError(
                    f"{first['directory']} and {directory} differ in {column.replace('_', '-')} "
                    f"({first[column] or 'none'} and {value or 'none'}): analyse them apart."
                )
    chosen = test or first["test"]
    scored = results[results["test"] == chosen]
    for directory in results["directory"][~results["directory"].isin(scored["directory"])]:
        tests = ", ".join(dict.fromkeys(results["test"]))
        raise RecipeError(f"{directory} has no scores of {chosen}; there are {tests}: name another, or leave it out.")
    require_comparable(scored)
    for result in bleu_results(scored):
        read_texts(result)  # refuses missing and cut files before the models are read
    return scored


def _record_file(directory: Path, name: str, output: Path) -> Path:
    """Where its record is written: there, or beside the page if that directory cannot be written."""
    if os.access(directory, os.W_OK):
        return directory / name
    return output.absolute().parent / "-".join([*directory.resolve().parts[-4:], name])


def _require_one_vocabulary(subjects: Sequence[Subject]) -> None:
    """Refuses models that read different tokens: their distances are not comparable.

    Raises:
        RecipeError: dictionaries differ.
    """
    known = [(one.checkpoint, one.data.vocabulary()) for one in subjects if one.data is not None]
    for checkpoint, vocabulary in known:
        if vocabulary != known[0][1]:
            raise RecipeError(
                f"{known[0][0]} and {checkpoint} have different vocabularies, so their distances count different "
                "tokens: analyse them apart, or leave models out (--no-models)."
            )
