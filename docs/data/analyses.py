"""The pictures of docs/analysis.md and docs/results.md, from the analyses of Multi30k that are kept in results/."""

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from posenc_experiments.analysis.figures import learned_figures, length_figure
from posenc_experiments.evaluation.kept import unpacked

RESULTS = Path(__file__).resolve().parents[2] / "results"
MULTI30K = RESULTS / "multi30k" / "en-de"
NAMES = ("sinusoidal", "shaw-k16", "diet_rel", "diet_rel-gain")
SHORT = RESULTS / "multi30k-short" / "en-de"
#: the pictures that pages show
PICTURES = (
    *("analysis-by-length", "lengths-by-length"),
    *("analysis-learned-vectors-shaw-k16-norm", "analysis-learned-vectors-shaw-k16-cosine-similarity"),
    *("analysis-learned-scalars-diet_rel", "analysis-learned-scalars-diet_rel-gain"),
)


@cache
def records(directory: Path = MULTI30K) -> dict[str, dict[str, Any]]:
    """What `analyse` found of the experiments of seed 1, by their names."""
    paths = sorted(unpacked(directory).glob("*/seed1/analysis.json"))
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    by_name = {record["experiment"]["name"]: record for record in found}
    return {name: by_name[name] for name in NAMES} if directory == MULTI30K else by_name


def draw(directory: Path) -> None:
    """Draws the pictures as the page of `analyse` has them."""
    drawings = {}
    for page, found, test in (
        ("analysis", records(), "test_2016_flickr"),
        ("lengths", records(SHORT), "test_2018_flickr"),
    ):
        texts = {name: [record["text"]["tests"][test]] for name, record in found.items()}
        drawings[f"{page}-by-length"] = length_figure(texts).drawings[""]
    for figure in learned_figures({name: record["model"] for name, record in records().items()}):
        for heading, drawing in figure.drawings.items():
            name = f"analysis-{figure.key.partition('-by-')[0]}-{heading}"
            drawings[re.sub(r"[^\w-]+", "-", name)] = drawing
    for name in PICTURES:
        drawings[name].savefig(directory / f"{name}.png", dpi=110)
