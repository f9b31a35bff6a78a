"""Contrastive accuracy: its sets in their own formats, its intervals, and the table of several models."""

import csv
import json
from typing import Any

import pytest

from posenc_experiments.analysis.contrast import report
from posenc_experiments.analysis.contrastive_sets import COLUMNS, Contrast, read_set
from posenc_experiments.base.errors import RecipeError
from tests.experiments.analysis.test_targets import run, table

#: as in LingEval97's README
ENTRY: dict[str, Any] = {
    "source": "Prague Stock Market falls",
    "reference": "Die Prager Börse stürzt.",
    "errors": [
        {"type": "np_agreement", "distance": 2, "frequency": 2020, "contrastive": "Der Prager Börse stürzt."},
        {"type": "polarity_particle_nicht_ins", "contrastive": "Die Prager Börse stürzt nicht."},
    ],
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
    return [(pair.phenomenon, pair.distance, pair.source, pair.correct, pair.contrastive) for pair in contrasts]


# --- Formats ---


def test_own_table(tmp_path):
    rows = [("case", "3", "a b", "c d", "c e"), ("prefix", "-", "a", "c", "d")]
    contrasts = read_set(write_table(tmp_path / "set.tsv", *rows))
    assert values(contrasts) == [("case", 3, "a b", "c d", "c e"), ("prefix", None, "a", "c", "d")]
    assert contrasts[1].where == f"{tmp_path / 'set.tsv'}, line 3"


def test_lingeval97(tmp_path):
    path = tmp_path / "lingeval97.json"
    path.write_text(json.dumps([ENTRY, {**ENTRY, "errors": []}], ensure_ascii=False), encoding="utf-8")
    errors = ENTRY["errors"]
    assert values(read_set(path)) == [
        (error["type"], error.get("distance"), ENTRY["source"], ENTRY["reference"], error["contrastive"])
        for error in errors
    ]


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
        *(Contrast("prefix", distance, "", "", "", "") for distance in (9, 2, 8, 2)),
        Contrast("case", None, "", "", "", ""),
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
