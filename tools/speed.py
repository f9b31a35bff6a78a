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
    """The results of a measurement."""
    rows = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: row[field.name] for field in fields(Result)}) for row in rows]


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds, and its number of operations."""
    columns = [{one.encoding: one.ratio() for one in results(name)} for name in SPEED.values()]
    columns.append({one.encoding: one.median() for one in results("operations")})
    rows = [[f"`{name}`", *(column[name] for column in columns)] for name in ENCODINGS]
    return ["encoding", *SPEED, "operations"], [["stock", *"1" * len(SPEED), columns[-1][STOCK]], *rows]


def gpu() -> Rows | None:
    """Each encoding's figures on a GPU, as ratios to stock fairseq; None without files of scripts/check_gpu.sh."""
    measured = [one for path in sorted(BENCHMARKS.glob("gpu-*.json")) for one in results(path.stem)]
    columns = {(one.measure, one.setting): f"{one.measure}, {one.setting}" for one in measured}
    cells = {(one.encoding, one.measure, one.setting): one.ratio() for one in measured if one.own}
    rows = [
        [f"`{name}`", *(cells.get((name, *column), "") for column in columns)]
        for name in ENCODINGS
        if any((name, *column) in cells for column in columns)
    ]
    return (["encoding", *columns.values()], rows) if rows else None


def growth() -> Rows:
    """Time and memory of an update at each length: stock's, and each encoding's as a ratio to it."""
    rows: dict[str, dict[str, str]] = {}
    for one in results("growth"):
        title, cell = f"`{one.encoding}`: {one.measure}", f"{statistics.median(one.ratios):.2f}"
        if one.encoding == STOCK:
            median = statistics.median(one.own)
            title = f"{STOCK}: {one.measure}"
            cell = f"{median:,.0f} {one.unit}" if median >= 10 else f"{median:.1f} {one.unit}"
        rows.setdefault(title, {"": title})[one.setting] = cell
    return list(next(iter(rows.values()))), [list(row.values()) for row in rows.values()]
