"""What both languages say: trees without word order and without inflection."""

from __future__ import annotations

from dataclasses import dataclass

from recipes.quickstart.languages.words import Determiner, Gap, Noun, Preposition, Tense, Verb, Word


@dataclass(slots=True)
class NounPhrase:
    determiner: Determiner
    adjectives: tuple[Word, ...]
    noun: Noun
    modifier: PrepositionalPhrase | RelativeClause | None = None


@dataclass(slots=True)
class PrepositionalPhrase:
    preposition: Preposition
    noun_phrase: NounPhrase


@dataclass(slots=True)
class Clause:
    """A verb with what its frame asks for; a relative clause lacks (None) the role that its pronoun fills."""

    verb: Verb
    tense: Tense
    subject: NounPhrase | None = None
    direct: NounPhrase | None = None
    indirect: NounPhrase | None = None
    complement: Clause | None = None
    manner: Word | None = None
    time: Word | None = None
    time_first: bool = False


@dataclass(slots=True)
class RelativeClause:
    gap: Gap
    clause: Clause


@dataclass(slots=True)
class AdverbialClause:
    conjunction: Word
    clause: Clause
    first: bool


@dataclass(slots=True)
class Sentence:
    main: Clause
    adverbial: AdverbialClause | None = None
