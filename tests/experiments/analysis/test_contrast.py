"""Contrastive accuracy: its sets in their own formats, its intervals, and the table of several models."""

import csv
import json
from dataclasses import asdict
from itertools import product
from typing import Any

import pytest

from posenc_experiments.analysis.contrast import report
from posenc_experiments.analysis.contrastive_sets import COLUMNS, Contrast, read_set
from posenc_experiments.analysis.targets import Model, Pair, score_targets
from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.recipe import Prepare
from tests.experiments.analysis.test_targets import run, table
from tests.toy import binarize, make_corpus

#: as in LingEval97's README
ENTRY: dict[str, Any] = {
    "source": "Prague Stock Market falls",
    "reference": "Die Prager Börse stürzt.",
    "errors": [
        {"type": "np_agreement", "distance": 2, "frequency": 2020, "contrastive": "Der Prager Börse stürzt."},
        {"type": "polarity_particle_nicht_ins", "contrastive": "Die Prager Börse stürzt nicht."},
    ],
}
#: with the keys of ContraPro's contrapro.json
PRONOUN: dict[str, Any] = {
    "ante distance": 1,
    "corpus": "opensubs1926-ende",
    "document id": "1926_1_2.de",
    "errors": [
        {
            "contrastive": "Es ist alt.",
            "replacement": "Es",
            "replacement gender": "Neut",
            "type": "pronominal coreference",
        },
        {
            "contrastive": "Er ist alt.",
            "replacement": "Er",
            "replacement gender": "Masc",
            "type": "pronominal coreference",
        },
    ],
    "intrasegmental": False,
    "ref ante head": "Uhr",
    "ref pronoun": "Sie",
    "ref segment": "Sie ist alt.",
    "segment id": 48,
    "src pronoun": "It",
    "src segment": "It is old.",
}


def write_table(path, *rows):
    path.write_text("".join("\t".join(row) + "\n" for row in [COLUMNS, *rows]), encoding="utf-8")
    return path


def write_distil(directory, *rows):
    directory.mkdir(parents=True)
    for name, lines in zip(("src.en", "tgt.correct.de", "tgt.incorrect.de"), zip(*rows, strict=True), strict=True):
        (directory / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return directory


def values(contrasts):
    return [(pair.phenomenon, pair.distance, pair.source, pair.correct, *pair.contrastives) for pair in contrasts]


# --- Formats ---


def test_own_table(tmp_path):
    rows = [("case", "3", "a b", "c d", "c e"), ("prefix", "-", "a", "c", "d")]
    contrasts = read_set(write_table(tmp_path / "set.tsv", *rows))
    assert values(contrasts) == [("case", 3, "a b", "c d", "c e"), ("prefix", None, "a", "c", "d")]
    assert contrasts[1].where == f"{tmp_path / 'set.tsv'}, line 3"


def test_lingeval97(tmp_path):
    path = tmp_path / "lingeval97.json"
    text = {**ENTRY["errors"][0], "distance": "0"}  # its own evaluate.py takes "0", too
    entries = [ENTRY, {**ENTRY, "errors": []}, {**ENTRY, "errors": [text]}]
    path.write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    assert values(read_set(path)) == [
        (error["type"], distance, ENTRY["source"], ENTRY["reference"], error["contrastive"])
        for error, distance in zip([*ENTRY["errors"], text], (2, None, 0), strict=True)
    ]


def write_contrapro(directory, entries, source=(), target=()):
    """The files of ContraPro; returns what names them to the command."""
    files = [directory / f"contrapro.{kind}" for kind in ("json", "context.en", "context.de")]
    files[0].write_text(json.dumps(entries, ensure_ascii=False), encoding="utf-8")
    for file, lines in zip(files[1:], (source, target), strict=True):
        file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return files


def test_contrapro_with_the_sentences_before(tmp_path):
    entries = [PRONOUN, {**PRONOUN, "ref pronoun": "es", "ante distance": 0}]
    blocks = [("", "A clock!"), ("See that?", "A clock!")]
    source = [line for block in blocks for line in 3 * block]
    path, *context = write_contrapro(tmp_path, entries, source, [line.upper() for line in source])
    read = read_set(path, context)
    texts = ("It is old.", "Sie ist alt.", "Es ist alt.", "Er ist alt.")
    assert values(read) == [("sie", 1, *texts), ("es", 0, *texts)]
    assert [one.before for one in read] == [tuple((line, line.upper()) for line in block) for block in blocks]
    assert [one.before for one in read_set(path)] == [(), ()]


@pytest.mark.parametrize(
    ("source", "target", "message"),
    [
        (["a"] * 6, ["b"] * 5, r"context\.en has 6 lines and .*context\.de has 5"),
        (["a"] * 7, ["b"] * 7, r"context\.en \(7 lines\) must have N lines for each target .*json, entry 1: extract"),
        ([], [], r"context\.en \(0 lines\) .*json, entry 1: extract"),
        (["a", "a", "a", "b", "b", "c"], ["d"] * 6, r"context\.en \(6 lines\) .*json, entry 2: extract"),
        (["a", "a", "a", "b", "b", "b"], [*"ddddde"], r"json, entry 2: "),
    ],
)
def test_context_of_another_set_is_refused(source, target, message, tmp_path):
    path, *context = write_contrapro(tmp_path, [PRONOUN, PRONOUN], source, target)
    with pytest.raises(RecipeError, match=message):
        read_set(path, context)


def test_distil_lingeval(tmp_path):
    agreement = write_distil(tmp_path / "np_agreement.mt", ("a b", "der Hund", "die Hund"), ("c", "das", "die"))
    write_distil(tmp_path / "clause_omission.human", ("d", "ja ja", "ja"))
    (tmp_path / "README.md").write_text("not a set")
    two = [("np_agreement.mt", None, "a b", "der Hund", "die Hund"), ("np_agreement.mt", None, "c", "das", "die")]
    assert values(read_set(agreement)) == two
    assert values(read_set(tmp_path)) == [("clause_omission.human", None, "d", "ja ja", "ja"), *two]


HEADER = "\t".join(COLUMNS)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("set.tsv", "case\t3\ta\tb\tc\n", "set.tsv: the first row must name the columns phenomenon, distance"),
        ("set.tsv", f"{HEADER}\ncase\tfar\ta\tb\tc\n", "set.tsv, line 2: its distance is 'far'"),
        ("set.tsv", f"{HEADER}\ncase\t3\ta\tb\tb\n", "set.tsv, line 2: .* are equal"),
        ("set.tsv", f"{HEADER}\n", "set.tsv holds no contrastive pair"),
        ("set.json", json.dumps([ENTRY, {"errors": [{}]}]), r"set.json, entry 2: .*'source'"),
        (
            "set.json",
            json.dumps([PRONOUN, {**PRONOUN, "errors": []}]),
            r"set.json, entry 2: this is not as LingEval97 or ContraPro",
        ),
        ("set.json", json.dumps([{**PRONOUN, "ante distance": None}]), r"set.json, entry 1: .*NoneType"),
        ("set.json", json.dumps([{**PRONOUN, "ref segment": "Er  ist alt."}]), r"set.json, entry 1: .* are equal"),
        ("set.json", json.dumps([ENTRY])[:-1], "set.json, entry 1: |set.json: "),
        ("set/src.en", "a\n", r"set must have one file each src\.\*, tgt"),
        ("empty/README", "not a set", "empty holds no contrastive pair"),
    ],
)
def test_bad_sets(name, content, message, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    with pytest.raises(RecipeError, match=message):
        read_set(path if path.parent == tmp_path else path.parent)


# --- Accuracy ---


def test_the_table_counts_by_phenomenon_and_distance():
    contrasts = [
        *(Contrast("prefix", distance, "", "", (), "") for distance in (9, 2, 8, 2)),
        Contrast("case", None, "", "", (), ""),
    ]
    preferences = [[True, False, True, True, False], [True] * 5]
    made = report("set", ["one", "other"], contrasts, preferences, False)
    assert "75.0 [30.1, 95.4]" in made.format("text")  # Wilson's interval
    records = made.data.to_dict("records")
    counts = [(row["model"], row["phenomenon"], row["distance"], row["correct"], row["pairs"]) for row in records]
    assert counts == [
        *[("one", "prefix", "all", 3, 4), ("other", "prefix", "all", 4, 4)],
        *[("one", "prefix", "2", 1, 2), ("other", "prefix", "2", 2, 2)],
        *[("one", "prefix", "8-10", 2, 2), ("other", "prefix", "8-10", 2, 2)],
        *[("one", "case", "all", 0, 1), ("other", "case", "all", 1, 1)],
        *[("one", "all", "all", 3, 5), ("other", "all", "all", 5, 5)],
    ]


# --- The command ---


@pytest.mark.parametrize("flag", [[], ["--normalize"]])
def test_the_command_prefers_what_score_targets_scores_higher(flag, checkpoint, data, tmp_path):
    # The longer one has the lower sum and the higher mean, or the other way round: it depends on the pair.
    rows = [(f"s{n} s{n + 1} s4", f"t{n} t{n + 1} t5", f"t{n} t{n + 1} t5 t{n + 2} t{n + 3}") for n in range(12)]
    rows += [(source, wrong, correct) for source, correct, wrong in rows[:6]]
    contrastive = write_table(tmp_path / "set.tsv", *(("length", "2", *row) for row in rows))
    (tmp_path / "pairs.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))
    path = checkpoint("transformer_sinusoidal_tiny")
    scored = table(run("score-targets", path, tmp_path / "pairs.tsv", "--data", data).stdout)
    scores = [float(row["log_probability"]) / (int(row["length"]) if flag else 1) for row in scored]
    expected = sum(correct > wrong for correct, wrong in zip(scores[::2], scores[1::2], strict=True))
    assert 0 < expected < len(rows)
    printed = run("contrast", path, "--data", data, "--source", contrastive, "--format", "csv", *flag).stdout
    counted = csv.DictReader(printed.splitlines())
    assert [(row["model"], row["correct"], row["pairs"]) for row in counted] == [
        ("untrained.pt", str(expected), "18")
    ] * 3


# --- Context ---


@pytest.fixture
def documents(tmp_path):
    """Data whose dictionaries have the separator, as prepared by a recipe with a context; its model is untrained."""
    corpus = make_corpus(tmp_path / "text", lines={"train": 2})
    for path in corpus.iterdir():
        path.write_text(f"{path.read_text()}<sep>\n")
    return binarize(corpus, tmp_path / "prepared" / "binarized")


def log_probabilities(model, *pairs):
    return [scored.log_probabilities for scored in score_targets(model, pairs, print)]


def test_only_the_sentence_itself_is_scored(checkpoint, documents):
    model = Model("one", checkpoint("transformer_sinusoidal_tiny", data=documents), documents)
    source, target = "s1 <sep> s2 s3 <sep> s4 s5", "t1 <sep> t3 t2 <sep> t5 t4 t6"
    before = (("s1", "t1"), ("s2  s3", "t3 t2"))
    two, one, none = (Pair("s4 s5", "t5 t4 t6", "", before=part) for part in (before, before[1:], ()))
    with_two, with_one, alone = log_probabilities(model, two, one, none)
    whole = log_probabilities(model, Pair(source, target, ""), Pair(source[9:], target[9:], ""))
    assert with_two == pytest.approx(whole[0][-4:], abs=1e-5)
    assert with_one == pytest.approx(whole[1][-4:], abs=1e-5)
    assert len(with_two) == len(alone) == 4
    assert abs(with_two - with_one).max() > 1e-3 < abs(with_one - alone).max()
    (scored,) = score_targets(model, [two], print)
    assert scored.tokens == ["t5", "t4", "t6", "</s>"]
    score_targets(model, [Pair("s4", "t5", "", before=(("s1", "strange"),))], pytest.fail)  # nothing unknown is scored
    # A sentence that is empty on one side is left out, as in training.
    (gap,) = log_probabilities(model, Pair("s4 s5", "t5 t4 t6", "", before=(("s1", ""), before[1])))
    assert gap == pytest.approx(with_one, abs=1e-5)


def test_a_recipes_model_sees_what_it_saw_in_training(checkpoint, documents):
    model = Model("one", checkpoint("transformer_sinusoidal_tiny", data=documents), documents)
    before = (("s1", "t1"), ("s2 s3", "t3 t2"))
    two, one, none = (Pair("s4 s5", "t5 t4", "", before=part) for part in (before, before[1:], ()))
    _, with_one, alone = log_probabilities(model, two, one, none)
    for limit, expected in ((2, with_one), (1, alone)):
        settings = asdict(Prepare(subwords="none", context=1, max_tokens=limit))
        (documents.parent / "prepare.json").write_text(json.dumps({"settings": settings}))
        assert log_probabilities(model, two)[0] == pytest.approx(expected, abs=1e-5)


def test_the_command_with_context(checkpoint, documents, tmp_path):
    path = checkpoint("transformer_sinusoidal_tiny", data=documents)
    befores = [("s1 s2", "t2 t1"), ("s7", "t9"), ("s3 s4 s5", "t5"), ("s9", "t8 t7")]
    texts = [(f"s{n} s{n + 1}", [f"t{n} t5", f"t{n + 1} t5", f"t{n + 2} t5"]) for n in range(3, 8)]
    entries, lines, pairs = [], [], []
    for before, (source, targets) in product(befores, texts):
        errors = [{"contrastive": target} for target in targets[1:]]
        text = {"src segment": source, "ref segment": targets[0], "errors": errors}
        entries.append({**text, "ref pronoun": "Er", "ante distance": 1})
        lines += [before] * 3
        pairs += [Pair(source, target, "", before=(before,)) for target in targets]
    json_file, *context = write_contrapro(tmp_path, entries, *zip(*lines, strict=True))
    sums = [scores.sum() for scores in log_probabilities(Model("one", path, documents), *pairs)]
    expected = sum(correct > max(wrong) for correct, *wrong in zip(sums[::3], sums[1::3], sums[2::3], strict=True))
    words = ("contrast", path, "--data", documents, "--source", json_file, "--format", "csv")
    rows = csv.DictReader(run(*words, "--context", *context).stdout.splitlines())
    counts = [(row["phenomenon"], row["distance"], row["correct"], row["pairs"]) for row in rows]
    assert counts == [(*row, str(expected), "20") for row in (("er", "all"), ("er", "1"), ("all", "all"))]
    assert 0 < expected < 20


def test_a_model_without_context_is_refused(checkpoint, data, tmp_path):
    json_file, *context = write_contrapro(tmp_path, [PRONOUN], ["a"] * 3, ["b"] * 3)
    path = checkpoint("transformer_sinusoidal_tiny")
    result = run("contrast", path, "--data", data, "--source", json_file, "--context", *context, code=1)
    assert (
        f"{path} was trained without context (its dictionaries lack <sep>): leave out --context, or " in result.output
    )
