"""DIET's Table 1 (Chen et al. 2021): the overhead in time of position encodings over the absolute baseline.

The paper measures pre-training and a forward pass of encoders on TPU v2: BERT-base (12 layers, hidden 768) and
BERT-small (4 layers, hidden 512, 8 heads). Here the models are encoder-decoder Transformers ``base`` (6 + 6 layers,
hidden 512) and ``small`` (4 + 4 layers, hidden 512, 8 heads), on random sentences of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fairseq.tasks.translation import TranslationTask
from tabulate import tabulate  # type: ignore[import-untyped]

from .data import fixed_batch
from .models import Setup, candidates
from .results import Result, quartiles
from .rounds import Clock
from .training import measure_words

MEASURE = "table1"
#: the paper's overheads in per cent
PRINTED: dict[tuple[str, str], dict[str, int]] = {
    ("base", "training"): {"shaw": 13, "tupe_abs": 1, "diet_abs": 0, "diet_rel": 0},
    ("base", "forward"): {"shaw": 33, "tupe_abs": 19, "diet_abs": 0, "diet_rel": 0},
    ("small", "training"): {"shaw": 24, "tupe_abs": 4, "diet_abs": 0, "diet_rel": 0},
    ("small", "forward"): {"shaw": 65, "tupe_abs": 27, "diet_abs": 1, "diet_rel": 0},
}
HEADINGS = {
    "shaw": "Shaw et al.",
    "tupe_abs": "TUPE (Ke et al.)",
    "diet_abs": "DIET-Abs",
    "diet_rel": "DIET-Rel",
}


def measure_table1(
    setup: Setup,
    task: TranslationTask,
    length: int,
    tokens: int,
    rounds: int,
    updates: int,
    clock: Clock,
    group: int,
) -> list[Result]:
    """Measures target words per second in training and in a forward pass, for both sizes."""
    works: list[list[Any]] = [
        [fixed_batch(task, length, tokens, setup.seed + number * updates + update) for update in range(updates)]
        for number in range(rounds + 1)
    ]
    found: list[Result] = []
    for size, step in PRINTED:
        of_size = replace(setup, size=size)
        timed = measure_words(step, f"{size} {step}", of_size, task, candidates(list(HEADINGS)), works, clock, group)
        found += [replace(result, measure=MEASURE) for result in timed]
    return found


def render(results: Sequence[Result]) -> str:
    """A Markdown table of our overheads with quartiles, and the paper's."""
    by_place = {(result.setting, result.encoding): result for result in results}
    rows = []
    for (size, step), printed in PRINTED.items():
        setting = f"{size} {step}"
        cells = [f"{_overhead(by_place[setting, name])}; {figure:+d}%" for name, figure in printed.items()]
        rows.append([setting, *cells])
    headers = ["overhead: ours (quartiles); the paper's", *HEADINGS.values()]
    return str(tabulate(rows, headers, tablefmt="pipe", disable_numparse=True))


def _overhead(result: Result) -> str:
    if result.refused is not None:
        return f"refused: {result.refused}"
    low, middle, high = quartiles([100 * (1 / ratio - 1) for ratio in result.ratios])
    return f"{middle:+.1f}% ({low:+.1f} to {high:+.1f})"
