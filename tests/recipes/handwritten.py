"""A handwritten lexicon for the quickstart's grammar.

It makes the target nearly German, so that readers can check the expected sentences.
"""

from __future__ import annotations

from recipes.quickstart.languages.trees import NounPhrase, PrepositionalPhrase, RelativeClause
from recipes.quickstart.languages.words import DETERMINERS, MODALS, PREPOSITIONS, THE, Frame, Gender, Noun, Verb, Word

DOG, WOMAN, CHILD = (
    Noun("dog", "Hund", Gender.MASCULINE),
    Noun("woman", "Frau", Gender.FEMININE),
    Noun("child", "Kind", Gender.NEUTER),
)
OLD = Word("old", "alt")
LAUGH = Verb("laugh", "lach", Frame.INTRANSITIVE)
PRAISE = Verb("prais", "lob", Frame.ACCUSATIVE)
INVITE = Verb("invit", "lad", Frame.ACCUSATIVE, "ein")
HELP = Verb("help", "helf", Frame.DATIVE)
LISTEN = Verb("hear", "hör", Frame.DATIVE, "zu")
SHOW = Verb("show", "zeig", Frame.DITRANSITIVE)
SAY = Verb("claim", "sag", Frame.CLAUSAL)
GLADLY = Word("gladly", "gern")
TODAY = Word("today", "heute")
BECAUSE = Word("because", "weil")
A = next(determiner for determiner in DETERMINERS if determiner.source == "a")
THIS = next(determiner for determiner in DETERMINERS if determiner.source == "this")
WITH, FOR = (next(p for p in PREPOSITIONS if p.source == source) for source in ("with", "for"))
WILL = MODALS[0]


def the(noun: Noun, modifier: PrepositionalPhrase | RelativeClause | None = None) -> NounPhrase:
    return NounPhrase(THE, (), noun, modifier)
