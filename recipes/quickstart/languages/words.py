"""Words with what each language needs to know of them, the closed classes, and the categories of the grammar.

The closed classes are written here, in English and German; the open ones (nouns, adjectives, verbs, manner
adverbs) are invented in lexicon.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Case(Enum):
    NOMINATIVE, ACCUSATIVE, DATIVE = range(3)


class Gender(Enum):
    MASCULINE, FEMININE, NEUTER = range(3)


class Frame(Enum):
    """What a verb takes beside its subject."""

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
    """A word with one form in each language: adverbs, conjunctions, adjectives' stems."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Preposition:
    source: str
    target: str
    governs: Case


@dataclass(frozen=True, slots=True)
class Determiner:
    """`target` is the stem before the case ending; `indefinite` ones drop some: ein Hund, dies-er Hund."""

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
    """Stems; `prefix` is the target verb's separable prefix, empty where it has none."""

    source: str
    target: str
    frame: Frame
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class Tense:
    """An auxiliary in each language (empty in the present) and the full verb's form beside it."""

    source_auxiliary: str
    source_ending: str
    target_auxiliary: str
    target_mark: str  # stands between separable prefix and stem
    target_ending: str


PRESENT = Tense("", "s", "", "", "t")
PERFECT = Tense("has", "ed", "hat", "ge", "t")
MODALS = (
    Tense("will", "", "wird", "", "en"),
    Tense("can", "", "kann", "", "en"),
    Tense("must", "", "muss", "", "en"),
)
TENSES = (PRESENT, PERFECT, *MODALS)

THE = Determiner("the", "", indefinite=False)  # der, die, das: the one with forms of its own
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
