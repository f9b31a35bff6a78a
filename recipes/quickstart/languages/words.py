"""Classes of words with their grammatical properties, and the words of the closed classes, in English and German.

The words of the open classes (nouns, adjectives, verbs, manner adverbs) are invented in lexicon.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


class Gender(Enum):
    MASCULINE, FEMININE, NEUTER = range(3)


class Frame(Enum):
    """The arguments of a verb beside its subject."""

    INTRANSITIVE = "nothing"
    ACCUSATIVE = "an object in the accusative"
    DATIVE = "an object in the dative"
    DITRANSITIVE = "an object in the accusative and an indirect object in the dative"
    CLAUSAL = "a complement clause"


class Gap(Enum):
    """The role that a relative pronoun fills in its clause."""

    SUBJECT, OBJECT, INDIRECT = range(3)


@dataclass(frozen=True, slots=True)
class Word:
    """A word with one form in each language: an adverb, a conjunction or the stem of an adjective."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Preposition:
    source: str
    target: str
    governs: Case


@dataclass(frozen=True, slots=True)
class Determiner:
    """A determiner: `target` is the stem before the case ending, which `indefinite` ones may lack (ein Hund)."""

    source: str
    target: str
    indefinite: bool


@dataclass(frozen=True, slots=True)
class Noun:
    source: str
    target: str
    gender: Gender


@dataclass(frozen=True, slots=True)
class Verb:
    """The stems of a verb; `prefix` is the separable prefix of the target verb, or empty."""

    source: str
    target: str
    frame: Frame
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Tense:
    """An auxiliary in each language (empty in the present), and the form of the full verb with it."""

    source_auxiliary: str
    source_ending: str
    target_auxiliary: str
    target_mark: str  # between separable prefix and stem
    target_ending: str


PRESENT = Tense("", "s", "", "", "t")
PERFECT = Tense("has", "ed", "hat", "ge", "t")
MODALS = (
    Tense("will", "", "wird", "", "en"),
    Tense("can", "", "kann", "", "en"),
    Tense("must", "", "muss", "", "en"),
)
TENSES = (PRESENT, PERFECT, *MODALS)

THE = Determiner("the", "", indefinite=False)  # der, die, das: the only one without a stem
DETERMINERS = (
    THE,
    Determiner("this", "dies", indefinite=False),
    Determiner("every", "jed", indefinite=False),
    Determiner("a", "ein", indefinite=True),
    Determiner("no", "kein", indefinite=True),
    Determiner("my", "mein", indefinite=True),
)
PREPOSITIONS = (
    Preposition("with", "mit", Case.DATIVE),
    Preposition("of", "von", Case.DATIVE),
    Preposition("beside", "bei", Case.DATIVE),
    Preposition("for", "für", Case.ACCUSATIVE),
    Preposition("without", "ohne", Case.ACCUSATIVE),
    Preposition("against", "gegen", Case.ACCUSATIVE),
)
CONJUNCTIONS = (Word("because", "weil"), Word("when", "wenn"), Word("although", "obwohl"))
TIMES = (
    Word("today", "heute"),
    Word("yesterday", "gestern"),
    Word("often", "oft"),
    Word("soon", "bald"),
    Word("now", "jetzt"),
    Word("never", "nie"),
    Word("always", "immer"),
    Word("sometimes", "manchmal"),
)
PREFIXES = ("ab", "an", "auf", "aus", "ein", "mit", "vor", "zu")
