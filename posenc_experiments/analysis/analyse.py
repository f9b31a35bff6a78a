"""From experiment directories and checkpoints to their analysis.json and the page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from posenc_experiments.analysis.data import Data, data_of, required
from posenc_experiments.analysis.page import render
from posenc_experiments.analysis.record import (
    ModelSettings,
    Record,
    analyse_checkpoint,
    analyse_experiment,
)
from posenc_experiments.analysis.texts import read_texts
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import atomic_path, require_output
from posenc_experiments.evaluation.pooling import find_row, pool, require_comparable, row_names
from posenc_experiments.evaluation.results import Result, of_tests, read_results
from posenc_experiments.experiment.layout import ANALYSIS


@dataclass(frozen=True)
class Checkpoints:
    """Bare checkpoints and the data that they read."""

    paths: Sequence[Path]
    data: Data

    def on_test_of(self, results: pd.DataFrame | None) -> Checkpoints:
        """The same checkpoints, on the test set that these models read; without results on the data's subset.

        Raises:
            RecipeError: there is no such binarized data.
        """
        if results is None:
            return replace(self, data=required(self.data))
        read = data_of(of_tests(results)[0], self.data.directory)
        assert read is not None  # since the directory is given
        return replace(self, data=required(replace(self.data, subset=read.subset)))


def analyse(
    directories: Sequence[Path],
    output: Path,
    say: Callable[[str], None],
    baseline: str | None = None,
    test: str | None = None,
    checkpoints: Checkpoints | None = None,
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
        baseline: the name of the row that p-values are against first.
        test: the test set of the page; the first if left out.
        checkpoints: also of these.
        binarized: binarized data of the experiments, where it is elsewhere than at their translation.
        sentences: the number of sentences of the test set that models read; all if left out.
        models: whether models are analysed, too.
        cpu: whether models compute on the CPU even where there is a GPU.

    Raises:
        RecipeError: an experiment cannot be read, or not be compared with the others.
    """
    require_output(output, "analysis.html")
    results = read_results(directories) if directories else None
    of_test = None if results is None else _comparable(results, test)
    number = _baseline(of_test, baseline)
    checkpoints = checkpoints and checkpoints.on_test_of(of_test)
    read = None if of_test is None or not models else str(of_test["test"].iloc[0])
    settings = ModelSettings(read, sentences, binarized, cpu)
    experiments: dict[Path, list[Result]] = {}
    for result in [] if results is None else of_tests(results):
        experiments.setdefault(result.directory, []).append(result)
    if models:
        _require_one_vocabulary(experiments, settings, checkpoints)
    records: dict[Path, Record] = {}
    for done, (directory, mine) in enumerate(experiments.items(), 1):
        title = f"{mine[0].name} seed {mine[0].seed} ({done} of {len(experiments)})"
        path = _record_path(directory, ANALYSIS, output)
        records[directory] = analyse_experiment(mine, settings, path, _titled(say, title))
    bare = []
    if checkpoints is not None:
        asked = ModelSettings(checkpoints.data.subset, sentences, cpu=cpu)
        names = [path.name for path in checkpoints.paths]
        for path in checkpoints.paths:
            name = path.name if names.count(path.name) == 1 else str(path)
            record = _record_path(path.absolute().parent, f"{path.name}.{ANALYSIS}", output)
            found = analyse_checkpoint(path, checkpoints.data, asked, record, _titled(say, name))
            bare.append({**found, "checkpoint": name})
    say("analyse: comparing and drawing")
    page = render(of_test, records, bare, number).encode("utf-8")
    with atomic_path(output) as temporary:
        temporary.write_bytes(page)
    say(f"analyse: {output} ({len(page) / 1e6:.1f} MB)")


def _titled(say: Callable[[str], None], title: str) -> Callable[[str], None]:
    return lambda text: say(f"analyse: {title}: {text}")


def _comparable(results: pd.DataFrame, test: str | None) -> pd.DataFrame:
    """The results of one test set.

    Raises:
        RecipeError: the experiments are of several corpora or pairs, or of several limits of the training's lengths, or
            one lacks the test set, or has another source.
    """
    first = results.iloc[0]
    for column, what in (
        ("corpus", "are of different corpora"),
        ("pair", "are of different pairs"),
        ("train_max_words", "were trained with different train-max-words"),
    ):
        for directory, value in zip(results["directory"], results[column], strict=True):
            if value != first[column]:
                raise RecipeError(
                    f"{first['directory']} and {directory} {what} ({first[column] or 'none'} and {value or 'none'}): "
                    "analyse them apart."
                )
    chosen = test or first["test"]
    for directory, tests in results.groupby("directory", sort=False)["test"]:
        if chosen not in set(tests):
            raise RecipeError(
                f"{directory} has no scores of {chosen}; it has {', '.join(dict.fromkeys(tests))}: name another by "
                "--test, or leave the directory out."
            )
    of_test = results[results["test"] == chosen]
    require_comparable(of_test)
    for result in of_tests(of_test):
        read_texts(result)  # refuses missing and cut files before the models are read
    return of_test


def _baseline(results: pd.DataFrame | None, name: str | None) -> int:
    """The number of the row with this name; the first without a name.

    Raises:
        RecipeError: no row has it.
    """
    rows = None if results is None else pool(results)
    if name is None:
        return 0
    number = None if rows is None else find_row(rows, name)
    if number is None:
        names = "none" if rows is None else ", ".join(row_names(rows))
        raise RecipeError(f"--baseline {name}: there is no such experiment here; there are {names}.")
    return number


def _record_path(directory: Path, name: str, output: Path) -> Path:
    """Where its record is written: there, or beside the page if that directory cannot be written."""
    if os.access(directory, os.W_OK):
        return directory / name
    return output.absolute().parent / "-".join([*directory.resolve().parts[-4:], name])


def _require_one_vocabulary(
    experiments: dict[Path, list[Result]], settings: ModelSettings, checkpoints: Checkpoints | None
) -> None:
    """Refuses models that read different tokens: their distances are not comparable.

    Raises:
        RecipeError: dictionaries differ.
    """
    data = {
        str(path): data_of(next(one for one in results if one.test == settings.test), settings.binarized)
        for path, results in experiments.items()
    }
    data |= {str(path): checkpoints.data for path in checkpoints.paths} if checkpoints else {}
    known = {name: one.vocabulary() for name, one in data.items() if one is not None}
    for name, vocabulary in known.items():
        first = next(iter(known))
        if vocabulary != known[first]:
            raise RecipeError(
                f"{first} and {name} have different vocabularies, so their distances count different tokens: analyse "
                "them apart, or leave models out (--no-models)."
            )


def checkpoints_of(
    paths: Sequence[Path], binarized: Path | None, pair: str | None, test: str | None
) -> Checkpoints | None:
    """What --checkpoint, --data, --pair and, as a subset of the data, --test say; None without checkpoints.

    Raises:
        RecipeError: an option is missing or wrong, or a file is.
    """
    if not paths:
        if pair is not None:
            raise RecipeError("--pair belongs to --checkpoint: leave it out, or name a checkpoint.")
        return None
    if binarized is None or pair is None:
        raise RecipeError("--checkpoint needs --data, the directory of fairseq-preprocess, and --pair, such as en-de.")
    source, _, target = pair.partition("-")
    if not source or not target:
        raise RecipeError(f"--pair {pair}: name source and target language, such as en-de.")
    for path in paths:
        if not path.is_file():
            raise RecipeError(f"--checkpoint {path}: there is no such file.")
    return Checkpoints(paths, Data(binarized, source, target, test or "test"))
