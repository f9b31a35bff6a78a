"""The quickstart's text: follows its rule table, is unambiguous and reproducible, and needs word order."""

from __future__ import annotations

import hashlib
import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from recipes.quickstart import grammar
from recipes.quickstart.languages import sampling, xa, xb
from recipes.quickstart.languages.lexicon import Lexicon, make_lexicon, vocabulary
from recipes.quickstart.languages.trees import (
    AdverbialClause,
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    RelativeClause,
    Sentence,
)
from recipes.quickstart.languages.words import (
    PERFECT,
    PRESENT,
    THE,
    Determiner,
    Frame,
    Gap,
    Noun,
    Tense,
    Verb,
)
from tests.recipes.handwritten import (
    BECAUSE,
    CHILD,
    DOG,
    FOR,
    GLADLY,
    HELP,
    INVITE,
    LAUGH,
    LISTEN,
    OLD,
    PRAISE,
    SAY,
    SHOW,
    THIS,
    TODAY,
    WILL,
    WITH,
    WOMAN,
    A,
    the,
)

SIZES = {"train": 4000, "valid": 200, "test": 200}

SMALL = Lexicon(
    nouns=(DOG, WOMAN),
    adjectives=(OLD,),
    verbs={
        Frame.INTRANSITIVE: (LAUGH,),
        Frame.ACCUSATIVE: (INVITE,),
        Frame.DATIVE: (HELP,),
        Frame.DITRANSITIVE: (SHOW,),
        Frame.CLAUSAL: (SAY,),
    },
    manners=(GLADLY,),
)


def both(main: Clause, adverbial: AdverbialClause | None = None) -> tuple[str, str]:
    sentence = Sentence(main, adverbial)
    return " ".join(xa.sentence(sentence)), " ".join(xb.sentence(sentence))


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("corpus")
    grammar.write_corpus(directory, 1, SIZES)
    return directory


def lines(directory: Path, name: str) -> list[str]:
    return (directory / name).read_text(encoding="utf-8").splitlines()


# --- The rule table ---


def test_main_clause_is_verb_second() -> None:
    assert both(Clause(PRAISE, PRESENT, the(DOG), the(WOMAN))) == (
        "the dog praiss the woman",
        "der Hund lobt die Frau",
    )


def test_fronted_adverb_pushes_the_subject_behind_the_verb() -> None:
    clause = Clause(PRAISE, PRESENT, the(DOG), the(WOMAN), time=TODAY, time_first=True)
    assert both(clause) == ("today the dog praiss the woman", "heute lobt der Hund die Frau")


def test_time_at_the_end_of_the_source_goes_before_the_objects() -> None:
    clause = Clause(SHOW, PRESENT, the(DOG), the(WOMAN), the(CHILD), time=TODAY, manner=GLADLY)
    assert both(clause) == (
        "the dog gladly shows the woman to the child today",
        "der Hund zeigt heute dem Kind die Frau gern",
    )


def test_separable_prefix_is_at_the_clause_end() -> None:
    assert both(Clause(INVITE, PRESENT, the(WOMAN), the(DOG)))[1] == "die Frau ladt den Hund ein"


def test_participle_and_infinitive_are_at_the_clause_end() -> None:
    assert both(Clause(INVITE, PERFECT, the(WOMAN), the(DOG))) == (
        "the woman has invited the dog",
        "die Frau hat den Hund eingeladt",
    )
    assert both(Clause(INVITE, WILL, the(WOMAN), the(DOG))) == (
        "the woman will invit the dog",
        "die Frau wird den Hund einladen",
    )


@pytest.mark.parametrize(("tense", "verbs"), [(PRESENT, "zuhört"), (PERFECT, "zugehört hat"), (WILL, "zuhören wird")])
def test_subordinate_clause_is_verb_final(tense: Tense, verbs: str) -> None:
    complement = Clause(LISTEN, tense, the(WOMAN), the(DOG), time=TODAY)
    assert both(Clause(SAY, PRESENT, the(CHILD), complement=complement))[1] == (
        f"das Kind sagt dass die Frau heute dem Hund {verbs}"
    )


def test_complement_clause_follows_the_right_bracket() -> None:
    complement = Clause(LAUGH, PRESENT, the(DOG))
    assert both(Clause(SAY, PERFECT, the(CHILD), complement=complement)) == (
        "the child has claimed that the dog laughs",
        "das Kind hat gesagt dass der Hund lacht",
    )


def test_adverbial_clause_first_is_followed_by_the_finite_verb() -> None:
    main, because = Clause(PRAISE, PERFECT, the(WOMAN), the(DOG)), Clause(HELP, PRESENT, the(DOG), the(CHILD))
    assert both(main, AdverbialClause(BECAUSE, because, first=True)) == (
        "because the dog helps the child the woman has praised the dog",
        "weil der Hund dem Kind helft hat die Frau den Hund gelobt",
    )
    assert both(main, AdverbialClause(BECAUSE, because, first=False)) == (
        "the woman has praised the dog because the dog helps the child",
        "die Frau hat den Hund gelobt weil der Hund dem Kind helft",
    )


def relative(
    gap: Gap, verb: Verb, subject: NounPhrase | None = None, direct: NounPhrase | None = None
) -> RelativeClause:
    return RelativeClause(gap, Clause(verb, PRESENT, subject, direct))


@pytest.mark.parametrize(
    ("clause", "source", "target"),
    [
        (relative(Gap.SUBJECT, INVITE, direct=the(WOMAN)), "which invits the woman", "der die Frau einladt"),
        (relative(Gap.OBJECT, INVITE, subject=the(WOMAN)), "which the woman invits", "den die Frau einladt"),
        (relative(Gap.OBJECT, HELP, subject=the(WOMAN)), "which the woman helps", "dem die Frau helft"),
        (
            relative(Gap.INDIRECT, SHOW, subject=the(WOMAN), direct=the(CHILD)),
            "to whom the woman shows the child",
            "dem die Frau das Kind zeigt",
        ),
    ],
)
def test_relative_clauses(clause: RelativeClause, source: str, target: str) -> None:
    assert both(Clause(LAUGH, PRESENT, the(DOG, modifier=clause))) == (
        f"the dog {source} laughs",
        f"der Hund {target} lacht",
    )


def test_relative_pronoun_has_the_gender_of_its_noun() -> None:
    clause = relative(Gap.OBJECT, HELP, subject=the(DOG))
    assert both(Clause(LAUGH, PRESENT, the(WOMAN, modifier=clause)))[1] == "die Frau der der Hund helft lacht"


def test_prepositions_govern_their_case() -> None:
    with_dog = the(WOMAN, modifier=PrepositionalPhrase(WITH, the(DOG)))
    for_dog = the(WOMAN, modifier=PrepositionalPhrase(FOR, the(DOG)))
    assert both(Clause(PRAISE, PRESENT, with_dog, for_dog)) == (
        "the woman with the dog praiss the woman for the dog",
        "die Frau mit dem Hund lobt die Frau für den Hund",
    )


@pytest.mark.parametrize(
    ("determiner", "noun", "nominative", "accusative", "dative"),
    [
        (THE, DOG, "der alte Hund", "den alten Hund", "dem alten Hund"),
        (THE, WOMAN, "die alte Frau", "die alte Frau", "der alten Frau"),
        (THE, CHILD, "das alte Kind", "das alte Kind", "dem alten Kind"),
        (THIS, DOG, "dieser alte Hund", "diesen alten Hund", "diesem alten Hund"),
        (THIS, WOMAN, "diese alte Frau", "diese alte Frau", "dieser alten Frau"),
        (THIS, CHILD, "dieses alte Kind", "dieses alte Kind", "diesem alten Kind"),
        (A, DOG, "ein alter Hund", "einen alten Hund", "einem alten Hund"),
        (A, WOMAN, "eine alte Frau", "eine alte Frau", "einer alten Frau"),
        (A, CHILD, "ein altes Kind", "ein altes Kind", "einem alten Kind"),
    ],
)
def test_determiners_and_adjectives_agree(
    determiner: Determiner, noun: Noun, nominative: str, accusative: str, dative: str
) -> None:
    phrase = NounPhrase(determiner, (OLD,), noun)
    assert both(Clause(SHOW, PRESENT, phrase, phrase, phrase))[1] == f"{nominative} zeigt {dative} {accusative}"


# --- One source, one target ---


@pytest.mark.parametrize(("depth", "nouns", "least"), [(2, (DOG, WOMAN), 1000), (3, (DOG,), 500), (4, (DOG,), 20)])
def test_no_source_sentence_has_two_translations(
    depth: int, nouns: tuple[Noun, ...], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few words, the same source sentence is sampled often, from every tree of this depth that yields it."""
    few = {
        "DETERMINERS": (THE,),
        "PREPOSITIONS": (WITH,),
        "CONJUNCTIONS": (BECAUSE,),
        "TIMES": (TODAY,),
        "P_ADJECTIVE": (1.0, 0.0, 0.0),
        "P_PRESENT": 1.0,
        "P_MANNER": 0.0,
        "P_ADVERBIAL": 0.5,
        "P_CLAUSAL": 0.4,
        "ANY_FRAME": (Frame.INTRANSITIVE, Frame.ACCUSATIVE, Frame.DATIVE, Frame.DITRANSITIVE),
    }
    for name, value in few.items():
        monkeypatch.setattr(sampling, name, value)
    sampler = sampling.Sampler(random.Random(1), replace(SMALL, nouns=nouns), depth)
    translations: dict[str, str] = {}
    repeated = 0
    for _ in range(40000):
        sentence = sampler.sentence()
        source, target = " ".join(xa.sentence(sentence)), " ".join(xb.sentence(sentence))
        repeated += source in translations and sampler.left == 0
        if translations.setdefault(source, target) != target:
            pytest.fail(f"two translations of {source!r}: {translations[source]!r} and {target!r}")
    assert repeated > least


# --- The lexicon ---


def test_lexicon_has_several_hundred_unique_words() -> None:
    lexicon = make_lexicon(random.Random(3))
    verbs = [verb for verbs in lexicon.verbs.values() for verb in verbs]
    words = len(lexicon.nouns) + len(lexicon.adjectives) + len(verbs) + len(lexicon.manners)
    assert words >= 250
    source, target = vocabulary(lexicon)
    closed_source, closed_target = xa.closed_class(), xb.closed_class()
    single = len(lexicon.nouns) + len(lexicon.manners)
    # A separable verb's present has two spellings (ladt .. ein, einladt), an inseparable one's has one.
    verb_forms = 3 * len(verbs) + sum(bool(verb.prefix) for verb in verbs)
    assert len(source) == len(closed_source) + single + len(lexicon.adjectives) + 3 * len(verbs)
    assert len(target) == len(closed_target) + single + 4 * len(lexicon.adjectives) + verb_forms


# --- The files ---


def test_line_counts_and_shape(corpus: Path) -> None:
    for split, size in SIZES.items():
        source, target = lines(corpus, f"{split}.xa"), lines(corpus, f"{split}.xb")
        assert len(source) == len(target) == size
        assert all(line == " ".join(line.split()) and line for line in source + target)
        assert max(len(line.split()) for line in source) <= sampling.MAX_SOURCE_WORDS
    assert sorted(os.listdir(corpus)) == sorted(f"{split}.{side}" for split in SIZES for side in ("xa", "xb"))


def test_splits_share_no_sentence(corpus: Path) -> None:
    everything = [line for split in SIZES for line in lines(corpus, f"{split}.xa")]
    assert len(set(everything)) == len(everything) == sum(SIZES.values())


def test_each_sentence_is_followed_by_its_twin(corpus: Path) -> None:
    """Twins have the same bag of source words, but another translation, so a bag gives at most one of both."""
    for split in SIZES:
        source, target = lines(corpus, f"{split}.xa"), lines(corpus, f"{split}.xb")
        for one in range(0, len(source), 2):
            assert sorted(source[one].split()) == sorted(source[one + 1].split())
            assert target[one] != target[one + 1]


def test_same_seed_same_bytes_for_any_hash_seed(corpus: Path, tmp_path: Path) -> None:
    """Through the command line, in a process with another hash seed."""
    sizes = [f"--{split}={size}" for split, size in SIZES.items()]
    subprocess.run(
        [sys.executable, grammar.__file__, "--seed=1", *sizes, str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "4711"},
        check=True,
    )
    for split in SIZES:
        for side in ("xa", "xb"):
            assert (tmp_path / f"{split}.{side}").read_bytes() == (corpus / f"{split}.{side}").read_bytes()


def test_same_bytes_on_every_python(corpus: Path) -> None:
    """The hash was computed on Python 3.11 and 3.12; intended changes of the grammar change it."""
    digest = hashlib.sha256()
    for split in grammar.SPLITS:
        for side in ("xa", "xb"):
            digest.update((corpus / f"{split}.{side}").read_bytes())
    assert digest.hexdigest() == "e8b9803f7e12acf578d8fd051ffa4dc32327b5998934d03f3faf7be9851d3602"


def test_test_set_does_not_depend_on_training_size(corpus: Path, tmp_path: Path) -> None:
    grammar.write_corpus(tmp_path, 1, {**SIZES, "train": 10})
    for name in ("test.xa", "test.xb", "valid.xa", "valid.xb"):
        assert lines(tmp_path, name) == lines(corpus, name)


# --- Deeper test sets ---


@pytest.fixture(scope="module")
def deeper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("deeper")
    grammar.write_corpus(directory, 1, SIZES, deeper=100)
    return directory


def test_deeper_test_sets_change_no_other_byte(corpus: Path, deeper: Path) -> None:
    names = {f"{split}.{side}" for split in SIZES for side in ("xa", "xb")}
    assert {file.name for file in deeper.iterdir()} == names | {
        f"test_depth{depth}.{side}" for depth in (3, 4) for side in ("xa", "xb")
    }
    for name in names:
        assert (deeper / name).read_bytes() == (corpus / name).read_bytes()
    assert {file.name for file in corpus.iterdir()} == names


def test_deeper_test_sets_are_the_same_bytes_on_every_python(deeper: Path) -> None:
    digest = hashlib.sha256()
    for split in grammar.DEEPER:
        for side in ("xa", "xb"):
            digest.update((deeper / f"{split}.{side}").read_bytes())
    assert digest.hexdigest() == "821f1e6dc17292fb57dad56626d1457d9f54be9365cb3b718ad0a2b9e40a1945"


def nesting(tree: object) -> int:
    """The levels of a tree, counted from its shape."""
    if isinstance(tree, Sentence):
        clauses = [tree.main] if tree.adverbial is None else [tree.main, tree.adverbial.clause]
        return max(map(nesting, clauses)) + (tree.adverbial is not None)
    if isinstance(tree, Clause):
        phrases = [nesting(one) for one in (tree.subject, tree.direct, tree.indirect) if one]
        return max([0, *phrases, *([1 + nesting(tree.complement)] if tree.complement else [])])
    assert isinstance(tree, NounPhrase)
    if tree.modifier is None:
        return 0
    inside = tree.modifier.clause if isinstance(tree.modifier, RelativeClause) else tree.modifier.noun_phrase
    return 1 + nesting(inside)


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_what_is_left_of_the_depth_is_what_the_tree_does_not_use(depth: int) -> None:
    rng = random.Random(1)
    sampler = sampling.Sampler(rng, make_lexicon(rng), depth)
    found = set()
    for _ in range(1000):
        sentence = sampler.sentence()
        assert nesting(sentence) == depth - sampler.left
        found.add(sampler.left)
    assert found == set(range(depth + 1))


def test_every_sentence_of_a_deeper_test_set_nests_that_deep(
    corpus: Path, deeper: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    depths: dict[str, int] = {}
    write = xa.sentence

    def remembering(tree: Sentence) -> list[str]:
        depths[" ".join(write(tree))] = nesting(tree)
        return write(tree)

    monkeypatch.setattr(xa, "sentence", remembering)
    grammar.write_corpus(deeper, 1, SIZES, deeper=100)
    for split, depth in grammar.DEEPER.items():
        source = lines(deeper, f"{split}.xa")
        assert len(set(source)) == len(lines(deeper, f"{split}.xb")) == 100
        assert {depths[line] for line in source} == {depth}
        assert 20 < max(len(line.split()) for line in source) <= sampling.MAX_DEEPER_WORDS
        for one in range(0, len(source), 2):
            assert sorted(source[one].split()) == sorted(source[one + 1].split())
    assert {depths[line] for split in SIZES for line in lines(corpus, f"{split}.xa")} == {0, 1, 2}
    source_words, target_words = vocabulary(make_lexicon(random.Random(1)))
    for split in grammar.DEEPER:
        assert {word for line in lines(deeper, f"{split}.xa") for word in line.split()} <= source_words
        assert {word for line in lines(deeper, f"{split}.xb") for word in line.split()} <= target_words


# --- Errors ---


@pytest.mark.parametrize("arguments", [["--train", "0"], ["--seed", "-1"], ["--test", "many"], ["--deeper", "-1"], []])
def test_bad_arguments_write_nothing(arguments: list[str], tmp_path: Path) -> None:
    outdir = [str(tmp_path / "out")] if arguments else []
    result = CliRunner().invoke(grammar.main, [*arguments, *outdir])
    assert result.exit_code != 0
    assert "Error: " in result.output
    assert list(tmp_path.iterdir()) == []


def test_an_unwritable_directory_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("taken")
    result = CliRunner().invoke(grammar.main, ["--train=2", "--valid=2", "--test=2", str(tmp_path / "file" / "out")])
    assert result.exit_code == 1
    assert result.output.startswith("Error: Cannot write to ")
    assert "choose another OUTDIR" in result.output


def test_an_interrupted_run_keeps_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"train": 10, "valid": 10, "test": 10}
    grammar.write_corpus(tmp_path, 1, sizes)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    write = grammar.write_split

    def full_disk(directory: Path, split: str, pairs: list[tuple[str, str]]) -> None:
        if split == "train":
            raise OSError(28, "No space left on device")
        write(directory, split, pairs)

    monkeypatch.setattr(grammar, "write_split", full_disk)
    with pytest.raises(OSError, match="No space left"):
        grammar.write_corpus(tmp_path, 2, sizes)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before
