"""The quickstart's text: follows its rule table, is unambiguous and reproducible, and needs word order; its contrastive
pairs have one error each. A handwritten lexicon makes the target nearly German.
"""

import hashlib
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from posenc_experiments.analysis.contrastive_sets import read_set
from recipes.quickstart import grammar
from recipes.quickstart.languages import (
    DETERMINERS,
    PERFECT,
    PREFIXES,
    PREPOSITIONS,
    PRESENT,
    THE,
    Clause,
    Gender,
    Noun,
    NounPhrase,
    PrepositionalPhrase,
    Sentence,
    Verb,
    Word,
)

SPLITS = [f"{split}.{side}" for split in ("train", "valid", "test") for side in ("xa", "xb")]
DEEPER = [f"test_depth{depth}.{side}" for depth in (3, 4) for side in ("xa", "xb")]
SIZES = ["--train=4000", "--valid=200", "--test=200"]
DOG = Noun("dog", "Hund", Gender.MASCULINE)
WOMAN = Noun("woman", "Frau", Gender.FEMININE)
CHILD = Noun("child", "Kind", Gender.NEUTER)
OLD, GLADLY, TODAY, BECAUSE = (
    Word(*words) for words in (("old", "alt"), ("gladly", "gern"), ("today", "heute"), ("because", "weil"))
)
LAUGH = Verb("laugh", "lach", "intransitive")
INVITE = Verb("invit", "lad", "accusative", "ein")
HELP = Verb("help", "helf", "dative")
LISTEN = Verb("hear", "hör", "dative", "zu")
SHOW = Verb("show", "zeig", "ditransitive")
SAY = Verb("claim", "sag", "clausal")
A, WITH = DETERMINERS[3], PREPOSITIONS[0]


def the(noun: Noun, modifier: Any = None) -> NounPhrase:
    return NounPhrase(THE, (), noun, modifier)


def clause(verb: Verb, tense: Any, *nouns: Noun | NounPhrase, gap: str = "", **others: Any) -> Clause:
    """A clause with the arguments of the verb in the order subject, direct, indirect, without the gap."""
    roles = [role for role in ("subject", "direct", "indirect") if role != gap]
    phrases = [the(noun) if isinstance(noun, Noun) else noun for noun in nouns]
    return Clause(verb, tense, dict(zip(roles, phrases, strict=False)), gap, **others)


INVITED = clause(INVITE, PERFECT, WOMAN, DOG)
OLD_DOG = NounPhrase(A, (OLD,), DOG)


@pytest.mark.parametrize(
    ("sentence", "source", "target"),
    [
        (  # a fronted adverb pushes the subject behind the verb
            Sentence(clause(INVITE, PRESENT, DOG, WOMAN, time=TODAY, time_first=True)),
            "today the dog invits the woman",
            "heute ladt der Hund die Frau ein",
        ),
        (  # T I D M, and adjectives that agree with an indefinite article
            Sentence(clause(SHOW, PRESENT, OLD_DOG, WOMAN, OLD_DOG, time=TODAY, manner=GLADLY)),
            "a old dog gladly shows the woman to a old dog today",
            "ein alter Hund zeigt heute einem alten Hund die Frau gern",
        ),
        (
            Sentence(clause(SAY, PERFECT, CHILD, complement=clause(LISTEN, PERFECT, WOMAN, DOG, time=TODAY))),
            "the child has claimed that the woman has heared the dog today",
            "das Kind hat gesagt dass die Frau heute dem Hund zugehört hat",
        ),
        (
            Sentence(INVITED, BECAUSE, clause(HELP, PRESENT, DOG, CHILD), adverbial_first=True),
            "because the dog helps the child the woman has invited the dog",
            "weil der Hund dem Kind helft hat die Frau den Hund eingeladt",
        ),
        (
            Sentence(clause(LAUGH, PRESENT, the(DOG, clause(SHOW, PRESENT, WOMAN, CHILD, gap="indirect")))),
            "the dog to whom the woman shows the child laughs",
            "der Hund dem die Frau das Kind zeigt lacht",
        ),
    ],
)
def test_sentences_follow_the_rule_table(sentence, source, target):
    """Examples, since the bytes of the whole text are tested below."""
    assert (" ".join(sentence.source()), " ".join(sentence.target())) == (source, target)


@pytest.mark.parametrize(("depth", "nouns", "least"), [(2, (DOG, WOMAN), 150), (3, (DOG,), 100)])
def test_no_source_sentence_has_two_translations(depth, nouns, least, monkeypatch):
    """With few words, the same source sentence is sampled often, from every tree of this depth that yields it."""
    few = {"DETERMINERS": (THE,), "PREPOSITIONS": (WITH,), "CONJUNCTIONS": (BECAUSE,), "TIMES": (TODAY,)}
    few |= {"P_ADJECTIVE": (1.0, 0.0, 0.0), "P_PRESENT": 1.0, "P_MANNER": 0.0, "P_ADVERBIAL": 0.5, "P_CLAUSAL": 0.4}
    frames = ("intransitive", "accusative", "dative", "ditransitive")
    few["GAP_FRAMES"] = {**grammar.GAP_FRAMES, "": frames, "subject": frames}
    for name, value in few.items():
        monkeypatch.setattr(grammar, name, value)
    verbs = {verb.frame: (verb,) for verb in (LAUGH, INVITE, HELP, SHOW, SAY)}
    sampler = grammar.Sampler(random.Random(1), grammar.Lexicon(nouns, (OLD,), verbs, (GLADLY,)), depth)
    translations, repeated = {}, 0
    for _ in range(15000):
        sentence = sampler.sentence()
        source, target = " ".join(sentence.source()), " ".join(sentence.target())
        repeated += source in translations and sampler.left == 0
        assert translations.setdefault(source, target) == target, source
    assert repeated > least


def write_text(directory: Path, *words: str) -> Path:
    result = CliRunner().invoke(grammar.main, [*words, str(directory)])
    assert result.exit_code == 0, result.output
    return directory


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """By the command line, in a process with another hash seed."""
    directory = tmp_path_factory.mktemp("plain")
    command = [sys.executable, grammar.__file__, "--seed=1", *SIZES, str(directory)]
    subprocess.run(command, env={"PYTHONHASHSEED": "4711"}, check=True)
    return directory


@pytest.fixture(scope="module")
def full(tmp_path_factory):
    """The same with deeper test sets and contrastive pairs."""
    return write_text(tmp_path_factory.mktemp("full"), *SIZES, "--deeper=100", "--contrast=50")


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def digest(directory: Path, names: list[str]) -> str:
    return hashlib.sha256(b"".join((directory / name).read_bytes() for name in names)).hexdigest()


def test_same_bytes_on_every_python(plain, full):
    """Of any hash seed and with any other option; intended changes of the grammar change the hashes."""
    assert digest(plain, SPLITS) == "e8b9803f7e12acf578d8fd051ffa4dc32327b5998934d03f3faf7be9851d3602"
    assert digest(full, SPLITS) == digest(plain, SPLITS)
    assert digest(full, DEEPER) == "821f1e6dc17292fb57dad56626d1457d9f54be9365cb3b718ad0a2b9e40a1945"
    assert digest(full, ["contrast.tsv"]) == "0b4ec69af4f5263338e4bd2c5aa296c90e3a69efcc018f01197f18ee9b33814f"
    assert {path.name for path in plain.iterdir()} == set(SPLITS)
    assert {path.name for path in full.iterdir()} == {*SPLITS, *DEEPER, "contrast.tsv"}


def test_test_set_does_not_depend_on_training_size(plain, tmp_path):
    assert digest(write_text(tmp_path, "--train=10", *SIZES[1:]), SPLITS[2:]) == digest(plain, SPLITS[2:])


def test_every_sentence_is_unique_short_and_followed_by_its_twin(full):
    """Twins have the same bag of source words, but another translation, so a bag gives at most one of both."""
    everything = []
    for name in (*SPLITS[::2], *DEEPER[::2]):
        source, target = lines(full / name), lines((full / name).with_suffix(".xb"))
        assert len(source) == len(target)
        assert all(line == " ".join(line.split()) for line in source + target)
        assert max(len(line.split()) for line in source) <= (40 if name in DEEPER else 20)
        bags = [sorted(line.split()) for line in source]
        assert bags[::2] == bags[1::2]
        assert all(line != twin for line, twin in zip(target[::2], target[1::2], strict=True))
        everything += source
    assert len(set(everything)) == len(everything) == 4000 + 200 + 200 + 100 + 100


# --- Contrastive pairs ---

CHILD_JOINED = NounPhrase(THE, (OLD,), WOMAN, PrepositionalPhrase(WITH, the(CHILD)))


@pytest.mark.parametrize(
    ("phenomenon", "main", "expected"),
    [
        (
            "prefix",
            clause(INVITE, PRESENT, WOMAN, NounPhrase(THE, (OLD,), DOG)),
            {(f"die Frau ladt den alten Hund {prefix}", 4) for prefix in {*PREFIXES} - {"ein"}},
        ),
        ("prefix", INVITED, set()),  # no word of its own
        (
            "case",
            clause(HELP, PERFECT, OLD_DOG, CHILD),
            {
                ("einen alten Hund hat dem Kind gehelft", 6),
                ("einem alten Hund hat dem Kind gehelft", 6),
                ("ein alter Hund hat das Kind gehelft", 2),
            },
        ),
        (  # der is a form of the article for a woman, and den is one for neither
            "gender",
            clause(LAUGH, PRESENT, CHILD_JOINED),
            {("das alte Frau mit dem Kind lacht", 2), ("die alte Frau mit der Kind lacht", 1)},
        ),
        (
            "relative",
            clause(LAUGH, PRESENT, the(DOG, clause(INVITE, PERFECT, WOMAN, gap="direct"))),
            {("der Hund der die Frau eingeladt hat lacht", 3), ("der Hund dem die Frau eingeladt hat lacht", 3)},
        ),
    ],
)
def test_contrastive_pairs_have_one_error(phenomenon, main, expected):
    pairs = [pair for pair in grammar.contrasts(Sentence(main)) if pair.phenomenon == phenomenon]
    assert {(pair.contrastive, pair.distance) for pair in pairs} == expected


def test_contrastive_pairs_are_of_new_sentences(full):
    pairs = read_set(full / "contrast.tsv")
    assert Counter(pair.phenomenon for pair in pairs) == dict.fromkeys(("gender", "case", "relative", "prefix"), 50)
    assert {line for path in full.glob("*.xa") for line in lines(path)}.isdisjoint(pair.source for pair in pairs)
    assert len({(pair.phenomenon, pair.source) for pair in pairs}) == len(pairs)


# --- Errors ---


def test_an_interrupted_run_keeps_the_old_files(tmp_path, monkeypatch):
    arguments = ["--train=10", "--valid=10", "--test=10"]
    before = digest(write_text(tmp_path, *arguments), SPLITS)

    def full_disk(path, content):
        if path.name == "train.xb":
            raise OSError(28, "No space left on device")
        return write(path, content)

    write = grammar.Path.write_bytes
    monkeypatch.setattr(grammar.Path, "write_bytes", full_disk)
    result = CliRunner().invoke(grammar.main, ["--seed=2", *arguments, str(tmp_path)])
    assert "No space left" in result.output
    assert {path.name for path in tmp_path.iterdir()} == set(SPLITS)
    assert digest(tmp_path, SPLITS) == before
