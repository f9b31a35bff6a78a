"""The tables of docs/performance.md, from what `fairseq-posenc benchmark --json` wrote (docs/data/benchmarks/)."""

import json
import statistics
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.benchmark.report import tables
from fairseq_posenc.benchmark.results import Result, quartiles
from fairseq_posenc.benchmark.rounds import STOCK

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
#: each column of the table of speed, and the measurement that it is from
SPEED = {
    "training, Multi30k": "training-multi30k",
    "training, newstest": "training-newstest",
    "generation, Multi30k": "generation-multi30k",
}
Rows = tuple[list[str], list[list[str]]]


def results(name: str) -> list[Result]:
    """The results of a measurement."""
    found = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: one[field.name] for field in fields(Result)}) for one in found]


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds."""
    columns = [{one.encoding: one for one in results(name)} for name in SPEED.values()]
    names = [name for name in columns[0] if name != STOCK]
    return ["encoding", *SPEED], [[f"`{name}`", *(ratio(column[name]) for column in columns)] for name in names]


def ratio(result: Result) -> str:
    """The median ratio to stock and its quartiles."""
    low, middle, high = quartiles(result.ratios)
    return f"{middle:.3f} ({low:.3f} to {high:.3f})"


def growth() -> str:
    """Time and memory at each length, as `benchmark growth` printed them."""
    return tables(results("growth")).strip()


def compiled() -> Rows:
    """Milliseconds and MiB of attention without gradients, eager and by compiled FlexAttention."""
    found = {(one.measure, one.setting, one.encoding): one for one in results("attention-forward")}
    kinds, lengths = (list(dict.fromkeys(key[place] for key in found)) for place in (0, 1))
    names = list(dict.fromkeys(key[2].partition(":")[0] for key in found if key[2].endswith("=flex")))
    unit = {measure: one.unit for (measure, *_), one in found.items()}
    columns = [(measure, length, backend) for measure in kinds for length in lengths for backend in ("eager", "flex")]
    headers = [f"{unit[measure]}, {length}: {backend}" for measure, length, backend in columns]
    rows = [
        [
            f"`{name}`",
            *(
                _median(found[measure, length, f"{name}:attention_backend={backend}"])
                for measure, length, backend in columns
            ),
        ]
        for name in names
    ]
    return ["encoding", *headers], rows


def _median(result: Result) -> str:
    return "refused" if result.refused else f"{statistics.median(result.own):,.0f}"
