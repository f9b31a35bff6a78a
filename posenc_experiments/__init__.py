"""Experiments with fairseq_posenc: data, training, evaluation and the workflow around them.

This package is separate from the plugin because importing the plugin registers everything with fairseq, which takes
seconds and needs torch. The command line starts without either.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_results(paths: str | Path | Iterable[str | Path], data_dir: str | Path | None = None) -> Any:
    """Reads results as a pandas.DataFrame: a row for each experiment directory (a seed), test set and metric.

    Args:
        paths: one or several experiment directories, or directories that hold some at any depth.
        data_dir: a recipe's --data-dir; its prepared text replaces references that are missing in the directories.

    `posenc_experiments.evaluation.results.read_results` lists the columns.
    """
    # Here, so that the command line starts without pandas.
    from posenc_experiments.evaluation.results import read_results as read

    several = [paths] if isinstance(paths, str | Path) else paths
    return read([Path(path) for path in several], None if data_dir is None else Path(data_dir))
