"""The tables of docs/analysis.md, from the analyses of Multi30k that are kept in results/."""

import json
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from posenc_experiments.analysis.figures import STACKS, learned_figures, length_figure
from posenc_experiments.evaluation.kept import unpacked

RESULTS = Path(__file__).resolve().parents[1] / "results"
MULTI30K = RESULTS / "multi30k" / "en-de"
NAMES = ("sinusoidal", "shaw-k16", "diet_rel", "diet_rel-gain")
SHORT = RESULTS / "multi30k-short" / "en-de"
#: the pictures of docs/analysis.md: the key of a figure, and the heading of its drawing
PICTURES = {
    "analysis-learned-vectors-shaw-k16-norm": ("learned-vectors", "shaw-k16"),
    "analysis-learned-vectors-shaw-k16-cosine-similarity": ("learned-cosines", "shaw-k16"),
    "analysis-learned-scalars-diet_rel": ("learned-scalars", "diet_rel"),
    "analysis-learned-scalars-diet_rel-gain": ("learned-scalars", "diet_rel-gain"),
}


@cache
def records(directory: Path = MULTI30K) -> dict[str, dict[str, Any]]:
    """What `analyse` wrote of the experiments of seed 1, by their names."""
    paths = sorted(unpacked(directory).glob("*/seed1/analysis.json"))
    read = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    by_name = {record["experiment"]["name"]: record for record in read}
    return {name: by_name[name] for name in NAMES} if directory == MULTI30K else by_name


def models() -> dict[str, dict[str, Any]]:
    """What it wrote of their models."""
    return {name: record["model"] for name, record in records().items()}


def draw(directory: Path) -> None:
    """Draws the pictures of docs/analysis.md and docs/results.md, as the page of `analyse` has them."""
    texts = {name: [record["text"]["tests"]["test_2018_flickr"]] for name, record in records(SHORT).items()}
    drawings = {"lengths-by-length": length_figure(texts).drawings[""]}
    figures = {figure.key: figure for figure in learned_figures(models())}
    drawings |= {name: figures[key].drawings[heading] for name, (key, heading) in PICTURES.items()}
    for name, drawing in drawings.items():
        drawing.savefig(directory / f"{name}.png", dpi=110)


def attention() -> tuple[list[str], list[list[str]]]:
    """How sharply heads attend, and how many attend to a neighbour."""
    headers = ["experiment", *(f"relative entropy, {stack}" for stack in STACKS)]
    headers += ["encoder heads on a neighbour", "largest absolute bias"]
    rows = []
    for name, model in models().items():
        heads = {stack: [head for layer in model["attention"][stack] for head in layer["heads"]] for stack in STACKS}
        neighbour = [max(head["share"]["-1"], head["share"]["+1"]) for head in heads["encoder"]]
        biases = [abs(value) for table in model["learned"] for head in table.get("heads", []) for value in head]
        entropies = [f"{fmean(head['relative_entropy'] for head in layers):.2f}" for layers in heads.values()]
        on_neighbour = f"{sum(share > 1 / 3 for share in neighbour)} of {len(neighbour)}"
        rows.append([f"`{name}`", *entropies, on_neighbour, f"{max(biases):.1f}" if biases else ""])
    return headers, rows
