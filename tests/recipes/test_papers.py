"""The settings of the WMT recipes are those of the papers; a wrong value would waste days of training."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_posenc.encodings import ENCODINGS, build_encoding
from fairseq_posenc.encodings.contract.registry import has_scalars
from posenc_experiments.base.flags import flag_words
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.recipe import Generate
from posenc_experiments.evaluation.measurements.parameters import describe
from posenc_experiments.evaluation.tables.paper_table import read_table
from posenc_experiments.workflow.sweep import choose_experiments

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
COMMON = {
    **{"max-tokens": "4096", "adam-betas": "(0.9, 0.98)", "adam-eps": "1e-9", "lr-scheduler": "inverse_sqrt"},
    **{"warmup-updates": "4000", "label-smoothing": "0.1", "lenpen": "0.6", "max-len-a": "1", "max-len-b": "50"},
    **{"batch": 32768, "vocabulary": 32768, "length_penalty": "wu", "tokenized": True, "share-all-embeddings": ""},
    **{"encoder-ffn-embed-dim": None, "decoder-ffn-embed-dim": None, "pairs": None},  # those of the size and the corpus
}
BASE = COMMON | {"size": "wmt_en_de", "dropout": "0.1", "lr": "6.99e-4", "max-update": "100000", "beam": "4"}
BASE |= {"average": (1, "epochs"), "shaw": "shaw-k16"}
BIG = COMMON | {"size": "vaswani_wmt_en_de_big", "lr": "4.94e-4", "max-update": "300000", "beam": "4"}
BIG |= {"average": (20, "updates"), "shaw": "shaw-k8"}
CONFS = {
    "wmt14/shaw-base": BASE | {"encoder-ffn-embed-dim": "1024", "decoder-ffn-embed-dim": "1024"},
    "wmt14/shaw-base-t2t": BASE | {"encoder-ffn-embed-dim": "2048", "decoder-ffn-embed-dim": "2048"},
    "wmt14/shaw-big-en-de": BIG | {"dropout": "0.3", "pairs": ["en-de", "de-en"]},
    "wmt14/shaw-big-en-fr": BIG | {"dropout": "0.1", "pairs": ["en-fr", "fr-en"]},
    "wmt18/diet": BASE | {"max-update": "250000", "beam": "10"},
}


@pytest.mark.parametrize("name", CONFS)
def test_wmt_recipes_have_the_settings_of_the_papers(name: str) -> None:
    recipe = read_recipe(RECIPES / f"{name}.yaml")
    settings = {
        **{"batch": recipe.train.batch_tokens, "vocabulary": recipe.prepare.vocabulary, "size": recipe.model.size},
        **{"length_penalty": recipe.generate.length_penalty, "tokenized": bool(recipe.score.tokenized)},
        **{"average": (recipe.generate.average, recipe.generate.average_by), "shaw": recipe.default_experiments[1]},
        **({} if recipe.pairs == recipe.corpus.pairs else {"pairs": recipe.pairs}),
        **(recipe.model.flags | recipe.train.flags | recipe.generate.flags),
    }
    assert {key: settings.get(key) for key in CONFS[name]} == CONFS[name]
    assert recipe.default_experiments == ["sinusoidal", settings["shaw"], "diet_rel"]


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


@pytest.mark.parametrize("name", ["kftt", "multi30k"])
def test_each_corpus_has_the_rows_of_places(name):
    recipe, names = choose_experiments(read_recipe(RECIPES / name / "places.yaml"), [])
    rows = [recipe.experiments[row] for row in names]
    assert rows
    assert names == [row.experiment for row in read_table(RECIPES / name, "places").rows]
    for encoding, *flags in rows:
        assert describe(f"transformer_{encoding}_tiny", ["--encoder-layers", "3", "--decoder-layers", "3", *flags])
