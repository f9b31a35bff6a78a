"""The source language: without case and gender; only the order of words tells subject from objects."""

from __future__ import annotations

from recipes.quickstart.languages.trees import Clause, NounPhrase, PrepositionalPhrase, Sentence
from recipes.quickstart.languages.words import (
    CONJUNCTIONS,
    DETERMINERS,
    PREPOSITIONS,
    TENSES,
    TIMES,
    Gap,
)

THAT, WHICH, TO, WHOM = "that", "which", "to", "whom"


def sentence(tree: Sentence) -> list[str]:
    words = clause(tree.main)
    if tree.adverbial is None:
        return words
    adverbial = [tree.adverbial.conjunction.source, *clause(tree.adverbial.clause)]
    return adverbial + words if tree.adverbial.first else words + adverbial


def clause(tree: Clause) -> list[str]:
    """The words of a main or subordinate clause: (T) S V D (to I) (T) (that C); a relative clause lacks one role."""
    words = [tree.time.source] if tree.time and tree.time_first else []
    if tree.subject:
        words += noun_phrase(tree.subject)
    words += verb_group(tree)
    if tree.direct:
        words += noun_phrase(tree.direct)
    if tree.indirect:
        words += [TO, *noun_phrase(tree.indirect)]
    if tree.time and not tree.time_first:
        words.append(tree.time.source)
    if tree.complement:
        words += [THAT, *clause(tree.complement)]
    return words


def verb_group(tree: Clause) -> list[str]:
    """The words (auxiliary) (M) V."""
    words = [tree.tense.source_auxiliary] if tree.tense.source_auxiliary else []
    if tree.manner:
        words.append(tree.manner.source)
    words.append(tree.verb.source + tree.tense.source_ending)
    return words


def noun_phrase(tree: NounPhrase) -> list[str]:
    """The words Det Adj* N (PP | relative clause)."""
    words = [tree.determiner.source]
    words += [adjective.source for adjective in tree.adjectives]
    words.append(tree.noun.source)
    modifier = tree.modifier
    if isinstance(modifier, PrepositionalPhrase):
        words += [modifier.preposition.source, *noun_phrase(modifier.noun_phrase)]
    elif modifier:
        words += [TO, WHOM] if modifier.gap is Gap.INDIRECT else [WHICH]
        words += clause(modifier.clause)
    return words


def verb_forms(stem: str) -> list[str]:
    return [stem + ending for ending in dict.fromkeys(tense.source_ending for tense in TENSES)]


def closed_class() -> set[str]:
    """All words of the language that are not invented."""
    listed = (*DETERMINERS, *PREPOSITIONS, *CONJUNCTIONS, *TIMES)
    auxiliaries = {tense.source_auxiliary for tense in TENSES if tense.source_auxiliary}
    return {THAT, WHICH, TO, WHOM} | {word.source for word in listed} | auxiliaries
