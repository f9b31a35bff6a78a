"""The settings of the WMT recipes are those of the papers; a wrong value would waste days of training."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.encodings.contract.registry import has_scalars
from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.recipe import Generate
from posenc_experiments.evaluation.tables.paper_table import read_table

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COMMON = {
    "batch": 32768,
    "max-tokens": "4096",
    "adam-betas": "(0.9, 0.98)",
    "adam-eps": "1e-9",
    "lr-scheduler": "inverse_sqrt",
    "warmup-updates": "4000",
    "label-smoothing": "0.1",
    "vocabulary": 32768,
    "lenpen": "0.6",
    "length_penalty": "wu",
    "max-len-a": "1",
    "max-len-b": "50",
}
BASE = {
    "size": "wmt_en_de",
    "dropout": "0.1",
    "lr": 6.99e-4,
    "max-update": 100_000,
    "beam": "4",
    "average": (1, "epochs"),
}
BIG = {"size": "vaswani_wmt_en_de_big", "lr": 4.94e-4, "max-update": 300_000, "beam": "4", "average": (20, "updates")}
CONFS = {
    "wmt14/shaw-base": BASE | {"ffn": "1024", "shaw": "shaw-k16"},
    "wmt14/shaw-base-t2t": BASE | {"ffn": "2048", "shaw": "shaw-k16"},
    "wmt14/shaw-big-en-de": BIG | {"dropout": "0.3", "pairs": ["en-de", "de-en"], "shaw": "shaw-k8"},
    "wmt14/shaw-big-en-fr": BIG | {"dropout": "0.1", "pairs": ["en-fr", "fr-en"], "shaw": "shaw-k8"},
    "wmt18/diet": BASE | {"max-update": 250_000, "beam": "10", "shaw": "shaw-k16"},
}


@pytest.mark.parametrize("name", CONFS)
def test_confs(name: str) -> None:
    recipe, paper = read_recipe(RECIPES / f"{name}.yaml"), CONFS[name] | COMMON
    assert (recipe.train.batch_tokens, recipe.prepare.vocabulary) == (paper["batch"], paper["vocabulary"])
    assert (recipe.model.size, recipe.generate.length_penalty) == (paper["size"], paper["length_penalty"])
    assert (recipe.generate.average, recipe.generate.average_by) == paper["average"]
    assert recipe.model.flags["dropout"] == paper["dropout"]
    assert "share-all-embeddings" in recipe.model.flags
    assert (
        recipe.model.flags.get("encoder-ffn-embed-dim")
        == recipe.model.flags.get("decoder-ffn-embed-dim")
        == paper.get("ffn")
    )
    assert recipe.pairs == paper.get("pairs", recipe.corpus.pairs)
    assert float(recipe.train.flags["lr"]) == pytest.approx(paper["lr"])
    assert int(recipe.train.flags["max-update"]) == paper["max-update"]
    for key in ("max-tokens", "adam-betas", "adam-eps", "lr-scheduler", "warmup-updates", "label-smoothing"):
        assert recipe.train.flags[key] == paper[key]
    for key in ("lenpen", "max-len-a", "max-len-b", "beam"):
        assert recipe.generate.flags[key] == paper[key]
    assert recipe.default_experiments == ["sinusoidal", paper["shaw"], "diet_rel"]
    assert recipe.score.tokenized


def test_transformer_tiny_on_multi30k() -> None:
    """LividWo/Revisit-MMT, README-baseline.md, and the defaults of its fairseq."""
    recipe = read_recipe(RECIPES / "multi30k/published.yaml")
    wanted = {"max-tokens": "4096", "max-update": "8000", "patience": "10", "lr": "5e-3", "warmup-updates": "2000"}
    wanted |= {"lr-scheduler": "inverse_sqrt", "label-smoothing": "0.1", "adam-betas": "(0.9, 0.98)", "clip-norm": "25"}
    assert {key: recipe.train.flags[key] for key in wanted} == wanted
    assert (recipe.train.batch_tokens, recipe.model.flags["dropout"]) == (2 * 4096, "0.3")
    assert recipe.generate == Generate(average=10, flags={"beam": "5", "lenpen": "1.0"})
    # Its text differs: it neither replaces that of multi30k.yaml nor is compared with it.
    assert recipe.corpus.name != read_recipe(RECIPES / "multi30k/multi30k.yaml").corpus.name


def test_transformer_tiny_has_the_published_number_of_parameters() -> None:
    """2.57M, with the 9,712 entries of a dictionary of 10,000 merges on Multi30k's training text."""
    from posenc_experiments.evaluation.measurements.parameters import describe

    recipe = read_recipe(RECIPES / "multi30k/published.yaml")
    made = describe(f"transformer_sinusoidal_{recipe.model.size}", flag_words(recipe.model.flags), 9712)
    assert made["total"] == 2_568_192


@pytest.mark.parametrize("name", [*CONFS, "multi30k/multi30k", "quickstart/short"])
def test_every_encoding_has_a_row_and_one_with_a_gain_if_it_has_effect(name: str) -> None:
    experiments = read_recipe(RECIPES / f"{name}.yaml").experiments
    # shaw has rows for its distances
    assert {row for row, words in experiments.items() if words == [row]} == set(ENCODINGS) - {"shaw"}
    with_gain = {row: words for row, words in experiments.items() if row.endswith("-gain")}
    learned_slopes = {"alibi-learned-gain": ["alibi", "--alibi-slopes", "learned", "--bias-gain", "auto"]}
    assert with_gain == learned_slopes | {
        f"{encoding}-gain": [encoding, "--bias-gain", "auto"]
        for encoding, cls in ENCODINGS.items()
        if has_scalars(build_encoding(encoding, 2, 4)) or cls.facts.input_positions == "learned"
    }


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*/tables/*.tsv")), ids=lambda path: path.stem)
def test_the_rows_of_tables_are_of_experiments_pairs_and_test_sets_of_their_recipe(path: Path) -> None:
    folder = path.parents[1]
    rows = read_table(folder, path.stem).rows
    recipes = {conf: read_recipe(folder / f"{conf}.yaml") for conf in {row.conf for row in rows}}
    for row in rows:
        recipe = recipes[row.conf]
        assert row.pair in recipe.pairs
        assert row.experiment in recipe.experiments
        assert row.test in recipe.corpus.tests


@pytest.mark.parametrize("corpus", ["multi30k", "quickstart"])
def test_training_short_prepares_in_directories_of_its_own(corpus: str) -> None:
    short, usual = (read_recipe(RECIPES / corpus / f"{name}.yaml") for name in ("short", corpus))
    assert short.corpus.name != usual.corpus.name
    assert short.prepare == replace(usual.prepare, train_max_words=short.prepare.train_max_words)
    assert (short.model, short.generate) == (usual.model, usual.generate)
    others = {name for name, row in short.experiments.items() if usual.experiments.get(name) != row}
    # SHAPE's range depends on the lengths of the training.
    assert others == ({"sinusoidal-shape", "learned-shape"} if corpus == "quickstart" else set())
    assert [*short.experiments] == [*usual.experiments]
