"""The tables of docs/performance.md, from docs/data/benchmarks/: what `fairseq-posenc benchmark --json` wrote, and the
ratios of an earlier version, of which only the table was kept.
"""

import csv
import json
import statistics
from dataclasses import fields
from pathlib import Path

from fairseq_posenc.benchmark import growth as growth_measure
from fairseq_posenc.benchmark.report import ratio
from fairseq_posenc.benchmark.results import Result
from fairseq_posenc.benchmark.rounds import STOCK
from fairseq_posenc.encodings import ENCODINGS

BENCHMARKS = Path(__file__).resolve().parent / "benchmarks"
#: each column of the table of speed, and the measurement of the current code that it is from, if there is one
SPEED = {
    "training, newstest": "training-newstest",
    "training, Multi30k": None,
    "generation, Multi30k": "generation-multi30k",
}
EARLIER = " †"  # after a ratio of an earlier version
EAGER, FLEX = "attention_backend=eager", "attention_backend=flex"
Rows = tuple[list[str], list[list[str]]]


def results(name: str) -> list[Result]:
    """The results of a measurement."""
    found = json.loads((BENCHMARKS / f"{name}.json").read_text(encoding="utf-8"))["results"]
    return [Result(**{field.name: one[field.name] for field in fields(Result)}) for one in found]


def earlier() -> dict[str, dict[str, str]]:
    """Ratios that were measured with an earlier version, by column and encoding."""
    found: dict[str, dict[str, str]] = {column: {} for column in SPEED}
    with open(BENCHMARKS / "earlier-speed.csv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            spread = f"({row['lower_quartile']} to {row['upper_quartile']})"
            found[row["measure"]][row["encoding"]] = f"{row['ratio']} {spread}{EARLIER}"
    return found


def speed() -> Rows:
    """Each encoding's ratio to stock fairseq, with quartiles over the rounds."""
    columns = [
        of_column | ({one.encoding: ratio(one) for one in results(name)} if name else {})
        for of_column, name in zip(earlier().values(), SPEED.values(), strict=True)
    ]
    return ["encoding", *SPEED], [[f"`{name}`", *(column.get(name, "") for column in columns)] for name in ENCODINGS]


def growth() -> Rows:
    """Time and memory of an update at each length: stock's, and each encoding's as a ratio to it."""
    measured = [*results("growth"), *results("growth-128")]  # the later one has more rounds at n = 128
    found = {(one.measure, one.encoding, one.setting): one for one in measured}
    lengths = list(dict.fromkeys(setting for _, _, setting in found))
    rows = []
    for measure, name in ((growth_measure.TIME, "time"), (growth_measure.MEMORY, "memory")):
        for encoding in dict.fromkeys(encoding for _, encoding, _ in found):
            of_length = [found[measure, encoding, length] for length in lengths]
            if encoding == STOCK:
                rows.append([f"{STOCK}: {name}", *(f"{_median(one)} {one.unit}" for one in of_length)])
            else:
                rows.append([f"`{encoding}`: {name}", *(f"{statistics.median(one.ratios):.2f}" for one in of_length)])
    return ["", *lengths], rows


def compiled() -> Rows:
    """Milliseconds and MiB of attention without gradients, by all logits at once and by compiled FlexAttention."""
    found = {(one.measure, one.setting, one.encoding): one for one in results("attention-forward")}
    names = dict.fromkeys(name.removesuffix(FLEX) for _, _, name in found if name.endswith(FLEX))
    places = dict.fromkeys((measure, length) for measure, length, _ in found)
    headers = [
        f"{found[measure, length, STOCK].unit}, {length}: {backend}"
        for measure, length in places
        for backend in ("eager", "flex")
    ]
    fused = [cell for place in places for cell in (_median(found[*place, STOCK]), "")]
    rows = [["no positions, `sdpa`", *fused]]
    for name in names:
        pairs = ((found[*place, name + EAGER], found[*place, name + FLEX]) for place in places)
        rows.append([f"`{name.rstrip(':,')}`", *(_median(one) for pair in pairs for one in pair)])
    return ["encoding", *headers], rows


def _median(result: Result) -> str:
    if result.refused:
        return "refused"
    median = statistics.median(result.own)
    return f"{median:,.0f}" if median >= 10 else f"{median:.1f}"
