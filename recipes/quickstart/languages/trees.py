"""The meaning of sentences: trees without word order and inflection, from which both languages are made."""

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
    """A verb with the arguments of its frame; in a relative clause, the role of the pronoun is None."""

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
