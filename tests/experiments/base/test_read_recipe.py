"""The recipe: its values, and errors for wrong ones."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import flag_words, parse_flags
from posenc_experiments.base.read_recipe import read_recipe
from posenc_experiments.base.recipe import Generate, Scoring
from tests.experiments.tiny import CONF, make_recipe


def test_values(tmp_path: Path) -> None:
    more = "average: 20\n  average-by: updates\n  length-penalty: wu"
    scoring = "\nscore:\n  tokenized: split\n  testsets: {test: wmt14/full}\n"
    recipe = read_recipe(make_recipe(tmp_path, CONF.replace("average: 2", more) + scoring)[0])
    assert recipe.corpus.pairs == ["en-de", "de-en"]
    assert (recipe.corpus.downloads, recipe.corpus.archives) == ("tiny/download", tmp_path / "recipe/archives.tsv")
    assert recipe.train.batch_tokens == 400
    assert recipe.generate == Generate(20, "updates", "wu", {"beam": "2"})  # of these, only the last is fairseq's
    assert recipe.train.flags["lr"] == "1e-2"  # flags stay as they are written
    assert "batch-tokens" not in recipe.train.flags
    assert recipe.score == Scoring({"test": "wmt14/full"}, "split")
    assert recipe.experiments["shaw-k2"] == ["shaw", "--clipping-distance", "2"]
    assert recipe.default_experiments == ["shaw-k2"]


FAULTS = [
    ("prepare.subwords", "wordpiece", "'wordpiece' is not one of sentencepiece"),
    ("prepare.vocabluary", "8000", "is not an option (did you mean vocabulary?); the options are subwords"),
    ("prepare.vocabulary", "many", "'many' of type 'str' could not be converted to Integer"),
    ("prepare.normalize", "identity", "needs 'subwords: sentencepiece'"),
    ("prepare.context", "1", "needs documents"),
    ("prepare.context", "2", "'2' is not one of 0, 1"),
    ("generate.average-by", "hours", "epochs, updates"),
    ("generate.average-by", "", "epochs, updates"),
    ("generate.path", "model.pt", "averaged checkpoint"),
    ("train.local-rank", "3", "leave it out"),
    ("score.testsets", "{dev: wmt14/full}", "'dev' is not one of corpus.tests, test"),
    ("score.tokenize", "mecab", "ja-mecab"),
    ("corpus.pairs", "ende", "'ende' is not a pair"),
    ("corpus.train-by-pair", "{en-fr: [train]}", "'en-fr' is not one of the pairs, en-de, de-en"),
    ("corpus.name", "../tiny", "'../tiny' is not a name"),
    ("corpus.sources", "none.tsv", "there is no file"),
    ("corpus.sources", "sources.tsv\n  generator: sources.tsv", "one of 'sources', 'generator' and 'text'"),
    ("model.pairs", "en-fr", "'en-fr' is not one of corpus.pairs, en-de, de-en"),
    ("train.max-tokens", "", "batch-tokens needs it"),
    ("train.--lr", "1e-2", "without dashes"),
    ("train.encoder-layers", "2", "model.encoder-layers, too: leave one out"),
    ("experiments.shaw-k2", "shaw 'x", "cannot be split"),
    ("experiments.shaw-k2", "shaw --arch transformer", "--arch is set by the pipeline"),
    ("experiments.shaw-k2", "", "starts with an encoding's name"),
    ("experiments.default", "shaw-k3", "'shaw-k3' is not an experiment"),
    ("experiments.default", "[[shaw-k2]]", "'['shaw-k2']' is not a name"),
    ("corpus.sources", "[sources.tsv]", "'['sources.tsv']' is not a path"),
]


@pytest.mark.parametrize(("key", "value", "problem"), FAULTS, ids=[f"{key}={value}" for key, value, _ in FAULTS])
def test_faults_name_file_key_and_problem(tmp_path: Path, key: str, value: str, problem: str) -> None:
    make_recipe(tmp_path)
    child, (section, _, name) = tmp_path / "recipe/child.yaml", key.partition(".")
    child.write_text(f"extends: tiny.yaml\n{section}:\n  {name}: {value}\n")
    with pytest.raises(RecipeError) as error:
        read_recipe(child)
    assert str(error.value).startswith(f"{child}, {key}: ")
    assert problem in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("  name: tiny\n", "", "corpus.name: is missing"),
        ("generate:", "generation:", "generation is not a section"),
        ("  beam: 2", "  beam: 2\n  beam: 3", "duplicate key beam"),
        ("  beam: 2", "  beam: [2", "is not a valid recipe"),
        ("prepare:\n  subwords: none", "prepare: none", "with `key: value` below"),
        ("corpus:\n", "extends: none.yaml\ncorpus:\n", "extends: there is no file"),
        ("corpus:\n", "extends: ../recipe/tiny.yaml\ncorpus:\n", "extends itself"),
        ("corpus:\n", "extends: [[a.yaml]]\ncorpus:\n", "extends: .* is no file name"),
    ],
)
def test_faults_of_a_whole_file(tmp_path: Path, old: str, new: str, words: str) -> None:
    conf, _ = make_recipe(tmp_path, CONF.replace(old, new, 1))
    with pytest.raises(RecipeError, match=words) as error:
        read_recipe(conf)
    assert str(conf) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("override", ["train", "train.lr", "training.lr=1", ".lr=1", "corpus.pairs=[a-b, c"])
def test_faults_of_set(tmp_path: Path, override: str) -> None:
    with pytest.raises(RecipeError, match=f"^--set {override.partition('=')[0]}"):
        read_recipe(make_recipe(tmp_path)[0], [override])


def test_training_data_of_a_pair_is_that_of_its_reverse(tmp_path: Path) -> None:
    more = "train: a b\n  train-by-pair: {de-en: [c]}"
    text = CONF.replace("train: train", more).replace("en-de de-en", "en-de de-en en-fr")
    corpus = read_recipe(make_recipe(tmp_path, text)[0]).corpus
    assert [corpus.train_splits(pair) for pair in corpus.pairs] == [["c"], ["c"], ["a", "b"]]


def test_flags_survive_the_round_trip() -> None:
    words = ["--a", "1", "--bare", "--negative=-1", "--text", "(0.9, 0.98)"]
    assert flag_words(parse_flags(words, "here")) == words


def test_a_recipe_extends_others_key_by_key(tmp_path: Path) -> None:
    make_recipe(tmp_path)
    for name, value in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.yaml").write_text(f"train:\n  clip-norm: {value}\n")
    child = tmp_path / "child.yaml"
    child.write_text(
        "extends: [recipe/tiny.yaml, a.yaml, b.yaml]\ntrain:\n  lr: 2\nexperiments:\n  default: sinusoidal"
    )
    recipe = read_recipe(child, ["train.max-epoch=9", "corpus.name=other", "corpus.tests=[a, b]"])
    # Of two extended files, the later wins.
    flags = {"lr": "2", "max-epoch": "9", "optimizer": "adam", "clip-norm": "2"}
    assert recipe.train.flags | flags == recipe.train.flags
    assert (recipe.corpus.name, recipe.corpus.tests) == ("other", ["a", "b"])
    assert recipe.corpus.sources == tmp_path / "recipe" / "sources.tsv"  # relative to the file that names it
    assert recipe.default_experiments == ["sinusoidal"]
    assert recipe.overridden == {"max-epoch": "9"}
    assert recipe.where("train", "lr") == f"{child}, train.lr"
    assert recipe.where("train", "optimizer") == f"{child.parent / 'recipe/tiny.yaml'}, train.optimizer"
    assert recipe.where("train", "max-epoch") == "--set train.max-epoch"
