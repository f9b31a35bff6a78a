"""The quickstart's contrastive pairs: one error each, the distance between the words that must fit, no other byte."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner

from posenc_experiments.analysis.contrastive_sets import COLUMNS as READ
from posenc_experiments.analysis.contrastive_sets import read_set
from recipes.quickstart import grammar
from recipes.quickstart.languages.contrast import COLUMNS, PHENOMENA, contrasts
from recipes.quickstart.languages.trees import Clause, NounPhrase, PrepositionalPhrase, RelativeClause, Sentence
from recipes.quickstart.languages.words import (
    PERFECT,
    PREFIXES,
    PRESENT,
    THE,
    Gap,
)
from tests.recipes.handwritten import CHILD, DOG, HELP, INVITE, LAUGH, OLD, SAY, WITH, WOMAN, A, the

SIZES = {"train": 100, "valid": 20, "test": 20}


def found(phenomenon, main):
    """The contrastive targets of a sentence, with their distances."""
    return {(one.contrastive, one.distance) for one in contrasts(Sentence(main)) if one.phenomenon == phenomenon}


def test_another_prefix_at_the_clause_end():
    clause = Clause(INVITE, PRESENT, the(WOMAN), NounPhrase(THE, (OLD,), DOG))
    others = set(PREFIXES) - {"ein"}
    assert found("prefix", clause) == {(f"die Frau ladt den alten Hund {prefix}", 4) for prefix in others}


@pytest.mark.parametrize(
    "clause",
    [
        Clause(INVITE, PERFECT, the(WOMAN), the(DOG)),
        Clause(SAY, PRESENT, the(WOMAN), complement=Clause(INVITE, PRESENT, the(WOMAN), the(DOG))),
        Clause(HELP, PRESENT, the(WOMAN), the(DOG)),
    ],
)
def test_no_other_prefix_where_it_is_no_word(clause):
    assert found("prefix", clause) == set()


def test_an_argument_in_another_case():
    clause = Clause(HELP, PERFECT, NounPhrase(A, (OLD,), DOG), the(CHILD))
    assert found("case", clause) == {
        ("einen alten Hund hat dem Kind gehelft", 6),
        ("einem alten Hund hat dem Kind gehelft", 6),
        ("ein alter Hund hat das Kind gehelft", 2),
    }


def test_the_case_of_arguments_in_a_subordinate_clause():
    clause = Clause(SAY, PRESENT, the(WOMAN), complement=Clause(INVITE, PRESENT, the(WOMAN), the(DOG)))
    assert found("case", clause) == {
        ("der Frau sagt dass die Frau den Hund einladt", 2),
        ("die Frau sagt dass der Frau den Hund einladt", 4),
        ("die Frau sagt dass die Frau der Hund einladt", 2),
        ("die Frau sagt dass die Frau dem Hund einladt", 2),
    }


def test_a_determiner_of_another_gender():
    phrase = NounPhrase(THE, (OLD,), WOMAN, PrepositionalPhrase(WITH, the(CHILD)))
    # der is a form of the article for a woman, and den is one for neither.
    assert found("gender", Clause(LAUGH, PRESENT, phrase)) == {
        ("das alte Frau mit dem Kind lacht", 2),
        ("die alte Frau mit der Kind lacht", 1),
    }


def test_a_relative_pronoun_in_another_case():
    relative = RelativeClause(Gap.OBJECT, Clause(INVITE, PERFECT, the(WOMAN)))
    assert found("relative", Clause(LAUGH, PRESENT, the(DOG, relative))) == {
        ("der Hund der die Frau eingeladt hat lacht", 3),
        ("der Hund dem die Frau eingeladt hat lacht", 3),
    }


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same corpus without and with contrastive pairs."""
    root = tmp_path_factory.mktemp("corpora")
    grammar.write_corpus(root / "without", 1, SIZES)
    arguments = ["--contrast=50", *(f"--{name}={size}" for name, size in SIZES.items()), str(root / "with")]
    assert CliRunner().invoke(grammar.main, arguments).exit_code == 0
    return root / "without", root / "with"


def test_contrastive_pairs_change_no_byte_of_the_splits(corpora):
    without, with_pairs = corpora
    names = {path.name for path in without.iterdir()}
    assert {path.name for path in with_pairs.iterdir()} == names | {"contrast.tsv"}
    assert all((without / name).read_bytes() == (with_pairs / name).read_bytes() for name in names)


def test_pairs_are_new_sentences_with_one_error(corpora):
    directory = corpora[1]
    pairs = read_set(directory / "contrast.tsv")
    assert COLUMNS == READ
    assert Counter(one.phenomenon for one in pairs) == dict.fromkeys(PHENOMENA, 50)
    known = {line for path in directory.glob("*.xa") for line in path.read_text(encoding="utf-8").splitlines()}
    assert known.isdisjoint(one.source for one in pairs)
    for one in pairs:
        correct, wrong = one.correct.split(), one.contrastive.split()
        places = [place for place, words in enumerate(zip(correct, wrong, strict=True)) if words[0] != words[1]]
        assert places
        assert 0 < one.distance < len(correct)
        if one.phenomenon == "case":  # a determiner and its adjectives, whose endings may be the same in two cases
            assert places[-1] - places[0] <= 2
            assert not any(correct[place][0].isupper() for place in places)
        else:
            assert len(places) == 1
        if one.phenomenon == "gender":
            assert correct[places[0] + one.distance][0].isupper()
            assert not any(word[0].isupper() for word in correct[places[0] : places[0] + one.distance])
        if one.phenomenon == "prefix":
            assert {correct[places[0]], wrong[places[0]]} <= set(PREFIXES)
            assert correct[places[0] - one.distance].endswith("t")
        if one.phenomenon == "relative":
            assert correct[places[0] - 1][0].isupper()


def test_a_source_has_one_pair_of_a_phenomenon(corpora):
    pairs = read_set(corpora[1] / "contrast.tsv")
    assert len({(one.phenomenon, one.source) for one in pairs}) == len(pairs)
    assert len({one.source for one in pairs}) < len(pairs)
