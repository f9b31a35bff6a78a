"""The .conf: its values, and errors for wrong ones."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.flags import flag_words, parse_flags
from posenc_experiments.base.markers import not_default
from posenc_experiments.base.recipe import Prepare, Scoring
from posenc_experiments.base.settings import read_recipe
from tests.experiments.tiny import CONF, make_recipe

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize("name", ["multi30k", "quickstart"])
def test_the_recipes_own_confs_are_valid(name: str) -> None:
    recipe = read_recipe(ROOT / "recipes" / name / f"{name}.conf")
    assert recipe.corpus.name == name
    assert "sinusoidal" in recipe.default_experiments


def test_values(tmp_path: Path) -> None:
    conf, _ = make_recipe(tmp_path)
    recipe = read_recipe(conf)
    assert recipe.corpus.pairs == ["en-de", "de-en"]
    assert recipe.batch_tokens == 400
    assert (recipe.average, recipe.average_by, recipe.length_penalty) == (2, "epochs", "power")
    assert recipe.generate == {"beam": "2"}
    assert recipe.score == Scoring(historical=False, testsets={})
    assert recipe.train["max-tokens"] == "200"
    assert "batch-tokens" not in recipe.train  # a key of this pipeline, not of fairseq
    assert recipe.experiments["shaw-k2"] == ["shaw", "--clipping-distance", "2"]
    assert recipe.default_experiments == ["shaw-k2"]


def test_values_of_generation_and_scoring(tmp_path: Path) -> None:
    more = "average = 20\naverage-by = updates\nlength-penalty = wu"
    conf, _ = make_recipe(
        tmp_path, CONF.replace("average = 2", more) + "\n[score]\nhistorical = true\ntestsets = test=wmt14/full\n"
    )
    recipe = read_recipe(conf)
    assert (recipe.average, recipe.average_by, recipe.length_penalty) == (20, "updates", "wu")
    assert recipe.generate == {"beam": "2"}  # none of these are flags of fairseq
    assert recipe.score == Scoring(historical=True, testsets={"test": "wmt14/full"})


@pytest.mark.parametrize(
    ("words", "scoring"),
    [
        ("historical = true", Scoring(historical=True)),
        ("tokenized = split", Scoring(historical=True)),
        ("historical = true\ntokenized = lowercase", Scoring(historical=True, tokenized="lowercase")),
        ("tokenized = lowercase", Scoring(historical=True, tokenized="lowercase")),
        ("historical = false", Scoring()),
    ],
)
def test_which_tokenized_score(tmp_path: Path, words: str, scoring: Scoring) -> None:
    assert read_recipe(make_recipe(tmp_path, f"{CONF}\n[score]\n{words}\n")[0]).score == scoring


def test_only_keys_that_are_not_defaults_enter_fingerprints() -> None:
    assert not_default(Prepare()) == {}
    assert not_default(Prepare(lowercase=True)) == {"lowercase": True}
    assert not_default(Prepare(normalize_punctuation=True)) == {"normalize_punctuation": True}
    assert not_default(Scoring()) == {}
    assert not_default(Scoring(True, {}, "lowercase")) == {"historical": True, "tokenized": "lowercase"}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "subwords = none",
            "subwords = wordpiece",
            ["[prepare]", "'subwords'", "wordpiece", "sentencepiece"],
        ),
        (
            "subwords = none",
            "vocabluary = 8000",
            ["[prepare]", "'vocabluary'", "not an option", "vocabulary"],
        ),
        (
            "subwords = none",
            "vocabulary = many",
            ["[prepare]", "'vocabulary'", "'many' is not a whole number"],
        ),
        ("subwords = none", "joined-dictionary = yes", ["'joined-dictionary'", "'yes' is not true or false"]),
        ("average = 2", "average = 0", ["[generate]", "'average'", "at least 1"]),
        ("average = 2", "average-by = hours", ["[generate]", "'average-by'", "epochs, updates"]),
        ("average = 2", "length-penalty = gnmt", ["[generate]", "'length-penalty'", "power, wu"]),
        ("[exp", "[score]\nhistoric = true\n[exp", ["[score]", "'historic'", "not an option", "historical"]),
        ("[exp", "[score]\nhistorical = yes\n[exp", ["[score]", "'historical'", "'yes' is not true or false"]),
        ("[exp", "[score]\ntestsets = dev=wmt14/full\n[exp", ["[score]", "'testsets'", "'dev=wmt14/full'", "(test)"]),
        ("[exp", "[score]\ntokenized = cased\n[exp", ["[score]", "'tokenized'", "split, lowercase"]),
        (
            "[exp",
            "[score]\ntokenized = lowercase\nhistorical = false\n[exp",
            ["[score]", "'tokenized'", "needs 'historical = true'"],
        ),
        ("[exp", "[score]\ntokenize = mecab\n[exp", ["[score]", "'tokenize'", "13a", "ja-mecab", "flores200"]),
        ("subwords = none", "normalize = nfc", ["[prepare]", "'normalize'", "nmt_nfkc, nfkc, identity"]),
        (
            "subwords = none",
            "subwords = none\nnormalize = identity",
            ["[prepare]", "'normalize'", "needs 'subwords = sentencepiece'"],
        ),
        (
            "subwords = none",
            "subwords = none\ncharacter-coverage = 0.9",
            ["[prepare]", "'character-coverage'", "needs 'subwords = sentencepiece'"],
        ),
        ("subwords = none", "character-coverage = 1.5", ["[prepare]", "'1.5' is not a share above 0, 1 at most"]),
        ("subwords = none", "lowercase = 1", ["[prepare]", "'lowercase'", "'1' is not true or false"]),
        ("subwords = none", "normalize-punctuation = on", ["[prepare]", "'normalize-punctuation'", "true or false"]),
        ("[exp", "[score]\ntestsets = test\n[exp", ["[score]", "'testsets'", "'test' is not", "test=wmt14/full"]),
        ("[exp", "[score]\ntestsets = test=wmt1066\n[exp", ["[score]", "'testsets'", "'wmt1066'", "sacrebleu --list"]),
        ("pairs = en-de", "pairs = ende", ["[corpus]", "'pairs'", "'ende'"]),
        ("name = tiny", "", ["[corpus]", "'name'", "is missing"]),
        ("size = tiny", "", ["[model]", "'size'", "is missing"]),
        ("sources = sources.tsv", "sources = none.tsv", ["[corpus]", "'sources'", "none.tsv"]),
        ("sources = sources.tsv", "", ["[corpus]", "one of 'sources', 'generator' and 'text'"]),
        ("max-tokens = 200", "", ["[train]", "'max-tokens'", "is missing"]),
        ("lr = 1e-2", "--lr = 1e-2", ["[train]", "'--lr'", "without dashes"]),
        ("beam = 2", "post-process = sentencepiece", ["[generate]", "'post-process'", "turns tokens into text itself"]),
        ("beam = 2", "dataset-impl = raw", ["[generate]", "'dataset-impl'", "leave it out"]),
        ("lr = 1e-2", "log-format = simple", ["[train]", "'log-format'", "as JSON"]),
        ("lr = 1e-2", "required-batch-size-multiple = 8", ["'required-batch-size-multiple'", "no pair is lost"]),
        ("lr = 1e-2", "write-checkpoints-asynchronously =", ["'write-checkpoints-asynchronously'", "leave it out"]),
        ("lr = 1e-2", "restore-file = x.pt", ["[train]", "'restore-file'", "that is resumed would differ"]),
        ("tests = test", "tests =", ["[corpus]", "'tests'", "at least one"]),
        ("name = tiny", "name = ../tiny", ["[corpus]", "'name'", "'../tiny'"]),
        ("= shaw --clipping", "= shaw 'x --clipping", ["'shaw-k2'", "cannot be split"]),
        ("lr = 1e-2", "seed = 3", ["[train]", "'seed'", "--seeds"]),
        ("beam = 2", "path = model.pt", ["[generate]", "'path'", "averaged checkpoint"]),
        ("--clipping-distance 2", "--arch transformer", ["'shaw-k2'", "--arch is set by the pipeline"]),
        ("default = shaw-k2", "default = shaw-k3", ["[experiments]", "'default'", "shaw-k3", "sinusoidal"]),
        ("sinusoidal = sinusoidal", "sinusoidal =", ["[experiments]", "'sinusoidal'", "encoding"]),
        (
            "= shaw --clipping-distance 2",
            "= shaw 2",
            ["[experiments]", "'shaw-k2'", "'2' belongs to no flag"],
        ),
        ("train = train", "train = a a", ["[corpus]", "'train'", "each once"]),
        ("train = train", "train = a\ntrain.en-fr = b", ["[corpus]", "'train.en-fr'", "en-de, de-en"]),
        ("name = tiny", "name = tiny\ndownloads = ../x", ["[corpus]", "'downloads'", "'../x'"]),
        ("name = tiny", "name = tiny\narchives = none.tsv", ["[corpus]", "'archives'", "none.tsv"]),
        ("subwords = none", "max-ratio = 0.5", ["[prepare]", "'max-ratio'", "at least 1"]),
        ("subwords = none", "train-max-words = -1", ["[prepare]", "'train-max-words'", "'-1'", "at least 0"]),
        (
            "subwords = none",
            "train-min-words = 9\ntrain-max-words = 8",
            ["[prepare]", "'train-min-words'", "9 is more than train-max-words, 8"],
        ),
        ("[generate]", "[generation]", ["[generation]", "not a section"]),
        ("[generate]", "beam = 1\nbeam = 2", ["already exists", "beam"]),
    ],
)
def test_faults_name_file_section_and_key(tmp_path: Path, old: str, new: str, words: list[str]) -> None:
    assert old in CONF
    conf, _ = make_recipe(tmp_path, CONF.replace(old, new, 1))
    with pytest.raises(RecipeError) as error:
        read_recipe(conf)
    for word in [str(conf), *words]:
        assert word in str(error.value)
    assert "\n" not in str(error.value)


def test_training_data_of_a_pair_is_that_of_its_reverse(tmp_path: Path) -> None:
    text = CONF.replace("train = train", "train = a b\ntrain.de-en = c").replace("en-de de-en", "en-de de-en en-fr")
    corpus = read_recipe(make_recipe(tmp_path, text)[0]).corpus
    assert [corpus.train_splits(pair) for pair in corpus.pairs] == [["c"], ["c"], ["a", "b"]]
    assert corpus.downloads == "tiny/download"


def test_flags_survive_the_round_trip() -> None:
    words = ["--a", "1", "--bare", "--negative=-1", "--text", "(0.9, 0.98)"]
    assert flag_words(parse_flags(words, "here")) == words
    with pytest.raises(RecipeError, match="here: --a is given twice"):
        parse_flags(["--a", "1", "--a", "2"], "here")


@pytest.mark.parametrize(
    "conf", sorted((ROOT / "recipes").glob("wmt*/[!c]*.conf")), ids=lambda path: f"{path.parent.name}-{path.stem}"
)
def test_confs_of_one_corpus_have_different_experiment_directories(conf: Path) -> None:
    recipe = read_recipe(conf)
    assert recipe.corpus.name == conf.parent.name
    assert recipe.setup == conf.stem


def test_of_two_extended_files_the_later_wins(tmp_path: Path) -> None:
    make_recipe(tmp_path)
    for name, value in (("a", "1"), ("b", "2")):
        (tmp_path / f"{name}.conf").write_text(f"[train]\nlr = {value}\n")
    child = tmp_path / "child.conf"
    child.write_text("[extends]\nconf = recipe/tiny.conf a.conf b.conf\n")
    assert read_recipe(child).train["lr"] == "2"


def test_a_conf_extends_others_key_by_key(tmp_path: Path) -> None:
    make_recipe(tmp_path)
    child = tmp_path / "child.conf"
    child.write_text("[extends]\nconf = recipe/tiny.conf\n[train]\nlr = 2\n[experiments]\ndefault = sinusoidal\n")
    recipe = read_recipe(child, ["train.max-epoch=9", "corpus.name=other"])
    assert (recipe.train["lr"], recipe.train["max-epoch"], recipe.train["optimizer"]) == ("2", "9", "adam")
    assert recipe.corpus.name == "other"
    assert recipe.corpus.sources == tmp_path / "recipe" / "sources.tsv"  # relative to the file that extends it
    assert recipe.default_experiments == ["sinusoidal"]
    assert recipe.where("train", "lr") == f"{child}, section [train], key 'lr'"
    assert recipe.where("train", "optimizer").startswith(f"{child.parent / 'recipe/tiny.conf'}, ")
    assert recipe.where("train", "max-epoch") == "--set train.max-epoch"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[extends]\nconf = none.conf\n", ["child.conf, section [extends]", "there is no file", "none.conf"]),
        ("[extends]\nconf = child.conf\n", ["key 'conf'", "extends itself"]),
        ("[extends]\nfile = recipe/tiny.conf\n", ["[extends]", "'file'", "not an option"]),
        ("[extends]\nconf = recipe/tiny.conf\n[train]\nbatch-tokens = x\n", ["child.conf", "'batch-tokens'"]),
    ],
)
def test_faults_of_extended_files_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    make_recipe(tmp_path)
    (tmp_path / "child.conf").write_text(text)
    with pytest.raises(RecipeError) as error:
        read_recipe(tmp_path / "child.conf")
    for word in words:
        assert word in str(error.value)
