"""The tables of docs/performance.md, from docs/data/benchmarks/: what `fairseq-posenc benchmark --json` wrote."""

import json
import statistics
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.encodings import ENCODINGS
from posenc_experiments.evaluation.measurements.benchmark import STOCK, Result

BENCHMARKS = Path(__file__).resolve().parents[1] / "docs" / "data" / "benchmarks"
#: each column of the table of speed, and its measurement
SPEED = {
    "training, newstest": "training-newstest",
    "training, Multi30k": "training-multi30k",
    "generation, Multi30k": "generation-multi30k",
    "training, width 16": "training-tiny",
}
Rows = tuple[list[str], list[list[str]]]


def results(name: str) -> list[Result]:
    """The results of a measurement, and of those of encodings that came later (NAME-later.json)."""
    files = [BENCHMARKS / f"{name}.json", *BENCHMARKS.glob(f"{name}-later.json")]
    measured = [row for path in files for row in json.loads(path.read_text(encoding="utf-8"))["results"]]
    return [Result(**{field.name: row[field.name] for field in fields(Result)}) for row in measured]


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds, and its number of operations."""
    columns = [{result.encoding: result.ratio() for result in results(name)} for name in SPEED.values()]
    columns.append({result.encoding: result.median() for result in results("operations")})
    rows = [[f"`{name}`", *(column.get(name, "not measured") for column in columns)] for name in ENCODINGS]
    return ["encoding", *SPEED, "operations"], [["stock", *"1" * len(SPEED), columns[-1][STOCK]], *rows]


def cross() -> Rows:
    """The ratio to stock fairseq of each encoding that was measured between source and target, and nowhere else."""
    alone = "nopos:cross_position_encoding="
    measures = ("training, newstest", "generation, Multi30k")
    columns = [{result.encoding: result.ratio() for result in results(SPEED[name])} for name in measures]
    names = [name for name in ENCODINGS if alone + name in columns[0]]
    return ["encoding", *measures], [[f"`{name}`", *(column[alone + name] for column in columns)] for name in names]


def gpu() -> Rows | None:
    """Each encoding's figures on a GPU, as ratios to stock fairseq; None without files of scripts/check_gpu.sh."""
    measured = [result for path in sorted(BENCHMARKS.glob("gpu-*.json")) for result in results(path.stem)]
    columns = {(result.measure, result.setting): f"{result.measure}, {result.setting}" for result in measured}
    cells = {(result.encoding, result.measure, result.setting): result.ratio() for result in measured if result.own}
    rows = [
        [f"`{name}`", *(cells.get((name, *column), "") for column in columns)]
        for name in ENCODINGS
        if any((name, *column) in cells for column in columns)
    ]
    return (["encoding", *columns.values()], rows) if rows else None


def growth() -> Rows:
    """Time and memory of an update at each length: stock's, and each encoding's as a ratio to it."""
    rows: dict[str, dict[str, str]] = {}
    for result in results("growth"):
        title, cell = f"`{result.encoding}`: {result.measure}", f"{statistics.median(result.ratios):.2f}"
        if result.encoding == STOCK:
            median = statistics.median(result.own)
            title = f"{STOCK}: {result.measure}"
            cell = f"{median:,.0f} {result.unit}" if median >= 10 else f"{median:.1f} {result.unit}"
        rows.setdefault(title, {"": title})[result.setting] = cell
    return list(next(iter(rows.values()))), [list(row.values()) for row in rows.values()]
