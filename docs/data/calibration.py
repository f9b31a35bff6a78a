"""Measures how often the test of a difference errs, and what it finds: writes calibration.csv, in ten minutes.

    python docs/data/calibration.py [--data-dir data]

The level is how often settings that do not differ are found to differ, at p <= 0.05. `simulated` draws scores with
known variances. The others permute seeds of kept trainings: each of two groups gets the seeds of other settings, each
less the mean of its setting, so that nothing but seeds and sentences distinguishes the groups. The six settings are
neighbours in the order of scores, because scores of weak models vary more. The power is how often a simulated
difference is found. --data-dir holds the references that docs/data/p_values.sh prepared.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.pooling import Row, pool
from posenc_experiments.evaluation.results import read_experiments
from posenc_experiments.evaluation.significance import ALPHA, Resampled, all_differences, holm, resample
from posenc_experiments.evaluation.simulation import Sources, simulate
from posenc_experiments.evaluation.together import all_tests

HERE = Path(__file__).resolve().parent
RESULTS = HERE.parents[1] / "results"
TABLES = 1000
ROWS = 10  # of a simulated table, one of them the baseline
NEIGHBOURS = 8  # settings with similar scores
EFFECTS = (0.3, 0.5, 1.0)
#: seeds, and the standard deviations of a seed, and of a sentence for a setting and for a model
CELLS = [
    *((seeds, Sources(0.2, 3, 5)) for seeds in (2, 3, 5, 10)),
    *((seeds, Sources(0.2, 0, 5)) for seeds in (3, 5, 10)),
    (3, Sources(0, 5, 5)),
    (3, Sources(0.2, 10, 0)),
    (3, Sources(1, 0, 0)),
    *((seeds, Sources(0.2, 3, 5, of_baseline)) for seeds in (3, 5) for of_baseline in (0.6, 0.07)),
]
Cells = dict[str, str | float]


def simulated() -> Iterator[Cells]:
    """Level, error of the whole table with Holm's correction, and power, for each cell and test."""
    for seeds, sources in CELLS:
        for pool_variance in (False, True):
            tables = [
                all_differences(rows[0], rows[1:], pool_variance)[0] for rows in simulate(sources, TABLES, ROWS, seeds)
            ]
            cells: Cells = {"data": "simulated", "seeds": seeds, **_cells(sources), "test": name(pool_variance)}
            yield cells | {
                "level": share([one.p_value for table in tables for one in table]),
                "table_error": share([min(holm([one.p_value for one in table])) for table in tables]),
                **{
                    f"power_{effect}": share(
                        [replace(one, value=one.value + effect).p_value for table in tables for one in table]
                    )
                    for effect in EFFECTS
                },
            }


def _cells(sources: Sources) -> Cells:
    return {key: "" if value is None else value for key, value in sources._asdict().items()}


def permuted(data: str, rows: Sequence[Row], baseline: str) -> Iterator[Cells]:
    """The level on kept results of one test set, without rows that score less than half of the baseline."""
    least = next(row.bleu.mean for row in rows if row.first.name == baseline) / 2
    kept = [
        row for row in sorted(rows, key=lambda row: row.bleu.mean) if len(row.scores) > 2 and row.bleu.mean >= least
    ]
    centered = [_centered([resample(score, BLEU) for score in row.scores]) for row in kept]
    for pool_variance in (False, True):
        chance = np.random.default_rng(1)
        p_values = []
        for _ in range(TABLES * ROWS):
            first = chance.integers(len(centered) - NEIGHBOURS + 1)
            chosen = first + chance.permutation(NEIGHBOURS)[:6]
            seeds = [centered[number][chance.integers(len(centered[number]))] for number in chosen]
            groups = seeds[:3], [seeds[3:]]
            p_values.append(all_differences(*groups, pool_variance)[0][0].p_value)
        yield {"data": data, "seeds": 3, "rows": len(centered), "test": name(pool_variance), "level": share(p_values)}


def _centered(row: Sequence[Resampled]) -> list[Resampled]:
    """Seeds less their mean, with the variance that they had around their true mean, moved to a score of 100."""
    scale = (len(row) / (len(row) - 1)) ** 0.5
    score, samples = np.mean([one.score for one in row]), np.mean([one.samples for one in row], axis=0)
    return [Resampled(100 + scale * (one.score - score), 100 + scale * (one.samples - samples)) for one in row]


def name(pool_variance: bool) -> str:
    return "pooled" if pool_variance else "welch"


def share(p_values: Sequence[float]) -> float:
    """The share of p-values that are significant."""
    return round(float(np.mean(np.array(p_values) <= ALPHA)), 3)


@click.command()
@click.option("--data-dir", type=click.Path(path_type=Path, exists=True, file_okay=False), default=Path("data"))
def main(data_dir: Path) -> None:
    rows = list(simulated())
    for directory in ("multi30k/en-de", "quickstart"):
        scores = read_experiments([RESULTS / directory], data_dir)
        several = all_tests(scores) if directory != "quickstart" else []
        by_test: dict[str, list[Row]] = {}
        for row in pool([*scores, *several]):
            by_test.setdefault(row.first.test, []).append(row)
        for test, of_test in by_test.items():
            rows += permuted(f"{directory} {test}", of_test, "sinusoidal")
    path = HERE / "calibration.csv"
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    click.echo(path)


if __name__ == "__main__":
    main()
