"""`compare --documents`: files that name the document of each line of a test set, for results that have none."""

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from posenc_experiments.base.errors import RecipeError, meant
from posenc_experiments.data.context import DOCUMENTS


def with_documents(results: pd.DataFrame, given: Iterable[str]) -> pd.DataFrame:
    """The results with these files of documents in place of those that are known.

    Args:
        given: `TEST=FILE`, or `FILE` if there is one test set.

    Raises:
        RecipeError: a file or a test set is not there, or it is not clear which test set is meant.
    """
    # Both directions of a pair have the same documents.
    sets = [(row.corpus, "-".join(sorted(row.pair.split("-"))), row.test) for row in results.itertuples()]
    for text in given:
        option, (test, equals, name) = f"--documents {text}", text.partition("=")
        if not equals or Path(text).is_file():
            test, name = "", text
        named = dict.fromkeys(one for one in sets if test in ("", one[2]))
        if not named:
            tests = dict.fromkeys(one[2] for one in sets)
            raise RecipeError(
                f"{option}: there is no test set '{test}' here{meant(test, tests)}; test sets are {', '.join(tests)}."
            )
        if len(named) > 1:
            first, fix = next(iter(named))[2], "name results of one corpus and pair"
            fix = f"write {first}={name}" if len({one[2] for one in named}) > 1 else fix
            raise RecipeError(f"{option}: these are several test sets, {', '.join(map(' '.join, named))}: {fix}.")
        if not Path(name).is_file():
            raise RecipeError(f"{option}: {name} is not a file: name one with the document of each line of a test set.")
        results = results.assign(
            files=[
                files | {DOCUMENTS: Path(name)} if one in named else files
                for one, files in zip(sets, results["files"], strict=True)
            ]
        )
    return results
