"""Measures how often the test of a difference errs, and what it finds: writes calibration.csv, in eight minutes.

    python tools/calibration.py [--data-dir data]

The level is how often settings that do not differ are found to differ, at p <= 0.05. `simulated` draws scores with
known variances. The others permute seeds of kept trainings: each of two groups gets the seeds of other settings, each
less the mean of its setting, so that nothing but seeds and sentences distinguishes the groups. The six settings are
neighbours in the order of scores, because scores of weak models vary more. `simulated trainings` does the same with
simulated seeds, as many as of Multi30k: its range is what such a measurement finds by chance. False equivalence is how
often a row that differs by exactly the margin has a p-value of equivalence <= 0.05. The error of a table is how often
any of its nine verdicts is false, where rows are equal to the baseline and above it by the margin in turn. The power is
how often a simulated difference of one row is found, by p alone and by its verdict among nine. --data-dir holds the
references that tools/results.sh prepared.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import click
import numpy as np
import pandas as pd

from posenc_experiments.evaluation.metrics import ALL_TESTS, BLEU
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.statistics.pooling import pool
from posenc_experiments.evaluation.statistics.significance import (
    ABOVE,
    ALPHA,
    BELOW,
    EQUIVALENT,
    Difference,
    Jackknifed,
    all_differences,
    jackknife,
)
from posenc_experiments.evaluation.statistics.together import together

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results"
TABLES = 1000
ROWS = 10  # of a simulated table, one of them the baseline
NEIGHBOURS = 8  # settings with similar scores
POOLS = 40  # of simulated trainings
EFFECTS = (0.3, 0.5, 1.0)
SENTENCES = 1000
#: the sentences of each document of KFTT's test set, for cells with documents
DOCUMENTS = list(Counter((ROOT / "recipes/kftt/test.documents").read_text().splitlines()).values())
MARGIN = 0.5  # of equivalence
MEAN = 30.0  # of every simulated setting


class Sources(NamedTuple):
    """The standard deviations of what varies; those of sentences are of one sentence's score."""

    of_seed: float  # of a model's quality on any sentence
    of_system: float  # of a sentence for all seeds of a setting
    of_model: float  # of a sentence for one model
    of_baseline: float | None = None  # of the first setting's seeds, if it is not of_seed
    of_document: float = 0.0  # of a document's sentences for all seeds of a setting, if the test set has DOCUMENTS


#: seeds of the baseline and of the other rows, and the standard deviations
CELLS = [
    *((seeds, seeds, Sources(0.2, 3, 5)) for seeds in (2, 3, 5, 6, 10)),
    (6, 3, Sources(0.2, 3, 5)),
    *((seeds, seeds, Sources(0.2, 0, 5)) for seeds in (3, 5, 10)),
    (3, 3, Sources(0, 5, 5)),
    (3, 3, Sources(0.2, 10, 0)),
    (3, 3, Sources(1, 0, 0)),
    *((seeds, seeds, Sources(0.2, 3, 5, spread)) for seeds in (3, 5, 6) for spread in (0.6, 0.07)),
    *((baseline_seeds, seeds, Sources(0.2, 3, 5, None, 0.7)) for baseline_seeds, seeds in ((3, 3), (6, 3), (6, 6))),
]
Cells = dict[str, str | float]


def simulate(
    sources: Sources, tables: int, rows: int, seeds: int, random_seed: int = 1
) -> Iterator[list[list[Jackknifed]]]:
    """Yields tables of settings that do not differ: rows of seeds, scored by the mean over sentences."""
    chance = np.random.default_rng(random_seed)
    spread = np.full((rows, 1, 1), sources.of_seed)
    if sources.of_baseline is not None:
        spread[0] = sources.of_baseline
    sizes = np.array(DOCUMENTS if sources.of_document else [1] * SENTENCES)
    units, sentences = len(sizes), sizes.sum()
    for _ in range(tables):
        qualities = MEAN + spread * chance.normal(size=(rows, seeds, 1))
        effects = chance.normal(0, sources.of_system, (rows, 1, sentences))
        if sources.of_document:
            effects += chance.normal(0, sources.of_document, (rows, 1, units)).repeat(sizes, axis=-1)
        values = qualities + effects + chance.normal(0, sources.of_model, (rows, seeds, sentences))
        scores = values.mean(axis=-1)
        unit_sums = np.add.reduceat(values, sizes.cumsum() - sizes, axis=-1)
        without = (values.sum(axis=-1, keepdims=True) - unit_sums) / (sentences - sizes)
        moves = (without - without.mean(axis=-1, keepdims=True)) * math.sqrt((units - 1) / units)
        yield [[Jackknifed(*scored) for scored in zip(*row, strict=True)] for row in zip(scores, moves, strict=True)]


def simulated() -> Iterator[Cells]:
    """Level, false verdicts of whole tables, and power, for each cell and test."""
    for baseline_seeds, seeds, sources in CELLS:
        tables: dict[bool, list[list[Difference]]] = {False: [], True: []}
        for rows in simulate(sources, TABLES, ROWS, max(baseline_seeds, seeds)):
            rows = [rows[0][:baseline_seeds], *(row[:seeds] for row in rows[1:])]
            for pool_variance, tested in tables.items():
                tested.append(all_differences(rows[0], rows[1:], pool_variance)[0])
        for pool_variance, tested in tables.items():
            cells: Cells = {"data": "simulated", "baseline_seeds": baseline_seeds, "seeds": seeds, **sources._asdict()}
            cells["test"] = name(pool_variance)
            cells["level"] = share([row.p_value for table in tested for row in table])
            cells["false_verdict"] = round(float(np.mean([false_verdict(table) for table in tested])), 3)
            far = [replace(row, value=row.value + MARGIN).margin_p_value(MARGIN) for table in tested for row in table]
            cells["false_equivalence"] = share(far)
            for effect in EFFECTS:
                p_values = [_shifted(table, effect) for table in tested]
                cells[f"power_{effect}"] = share([alone for alone, _ in p_values])
                cells[f"verdict_power_{effect}"] = share([corrected for _, corrected in p_values])
            yield cells


def false_verdict(table: Sequence[Difference]) -> bool:
    """Whether any verdict is false, if every second row is above the baseline by the margin, and the others equal."""
    true = [replace(row, value=row.value + MARGIN * (number % 2)) for number, row in enumerate(table)]
    words = [row.verdict(len(true), MARGIN).word for row in true]
    false = ((ABOVE, BELOW), (EQUIVALENT, BELOW))
    return any(word in false[number % 2] for number, word in enumerate(words))


def _shifted(table: Sequence[Difference], effect: float) -> tuple[float, float]:
    """The p-value of the first row if it differs by an effect, by itself and corrected for all rows."""
    p_value = replace(table[0], value=table[0].value + effect).p_value
    return p_value, p_value * len(table)


def permuted(data: str, results: pd.DataFrame, test: str, baseline: str) -> Iterator[Cells]:
    """The level on kept results of one test set, without rows that score less than half of the baseline."""
    rows = sorted(*pool(results[results["test"] == test]), key=lambda row: row.bleu.mean)
    least = next(row.bleu.mean for row in rows if row.setting.name == baseline) / 2
    kept = [row.directories for row in rows if len(row.seeds) > 2 and row.bleu.mean >= least]
    seeds = [[jackknife(results, directory, test, BLEU) for directory in directories] for directories in kept]
    for pool_variance in (False, True):
        level = permuted_level(seeds, TABLES * ROWS, pool_variance)
        yield {"data": data, "seeds": 3, "rows": len(seeds), "test": name(pool_variance), "level": level}


def simulated_trainings() -> Iterator[Cells]:
    """The mean and the range of the levels that `permuted` finds for simulated trainings."""
    for pool_variance in (False, True):
        levels = [
            permuted_level(rows, TABLES, pool_variance)
            for rows in simulate(Sources(0.2, 0, 5), POOLS, rows=12, seeds=3)
        ]
        low, level, high = (round(float(value), 3) for value in (min(levels), np.mean(levels), max(levels)))
        cells: Cells = {"data": "simulated trainings", "seeds": 3, "rows": 12, "test": name(pool_variance)}
        yield cells | {"level": level, "level_low": low, "level_high": high}


def permuted_level(rows: Sequence[Sequence[Jackknifed]], permutations: int, pool_variance: bool) -> float:
    """How often two groups of seeds of other settings differ, each seed less the mean of its setting."""
    centered, chance, p_values = [_centered(row) for row in rows], np.random.default_rng(1), []
    for _ in range(permutations):
        first = chance.integers(len(centered) - NEIGHBOURS + 1)
        chosen = first + chance.permutation(NEIGHBOURS)[:6]
        seeds = [centered[number][chance.integers(len(centered[number]))] for number in chosen]
        p_values.append(all_differences(seeds[:3], [seeds[3:]], pool_variance)[0][0].p_value)
    return share(p_values)


def _centered(row: Sequence[Jackknifed]) -> list[Jackknifed]:
    """Seeds less their mean, with the variance that they had around their true mean, moved to a score of 100."""
    scale = (len(row) / (len(row) - 1)) ** 0.5
    score, moves = np.mean([seed.score for seed in row]), np.mean([seed.moves for seed in row], axis=0)
    return [Jackknifed(100 + scale * (seed.score - score), scale * (seed.moves - moves)) for seed in row]


def name(pool_variance: bool) -> str:
    return "pooled" if pool_variance else "welch"


def share(p_values: Sequence[float]) -> float:
    """The share of p-values that are significant."""
    return round(float(np.mean(np.array(p_values) <= ALPHA)), 3)


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("data"))
def main(data_dir: Path) -> None:
    rows = [*simulated(), *simulated_trainings()]
    for directory in ("multi30k/en-de", "quickstart"):
        results = read_results([RESULTS / directory], data_dir)
        if directory != "quickstart":
            results = pd.concat([results, together(results)])
        for test in dict.fromkeys(results["test"]):
            # Of all tests together, the parts are read, too.
            chosen = results if test == ALL_TESTS else results[results["test"] == test]
            rows += permuted(f"{directory} {test}", chosen, test, "sinusoidal")
    path = ROOT / "docs" / "data" / "calibration.csv"
    pd.DataFrame(rows, dtype=object).to_csv(path, index=False, lineterminator="\n")
    click.echo(path)


if __name__ == "__main__":
    main()
