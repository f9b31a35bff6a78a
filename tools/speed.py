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
    found = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: one[field.name] for field in fields(Result)}) for one in found]


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
    found = {(one.unit, one.encoding, one.setting): one for one in results("growth")}
    lengths = list(dict.fromkeys(setting for _, _, setting in found))
    rows = []
    for unit, name in (("s", "time"), ("MiB", "memory")):
        for encoding in dict.fromkeys(encoding for _, encoding, _ in found):
            of_length = [found[unit, encoding, length] for length in lengths]
            if encoding == STOCK:
                medians = [statistics.median(one.own) for one in of_length]
                cells = [f"{median:,.0f} {unit}" if median >= 10 else f"{median:.1f} {unit}" for median in medians]
                rows.append([f"{STOCK}: {name}", *cells])
            else:
                rows.append([f"`{encoding}`: {name}", *(f"{statistics.median(one.ratios):.2f}" for one in of_length)])
    return ["", *lengths], rows
