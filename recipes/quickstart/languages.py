"""The quickstart's two languages: their closed classes of words, and trees that are written in both.

A tree is the meaning of a sentence, without word order and inflection. `source` writes it in xa, where only the order
of words tells subject from objects, and `target` in xb, which has the clause structure, cases and agreement of German.
Words may be empty; only Sentence leaves them out. grammar.py invents the words of the open classes (nouns, adjectives,
verbs, manner adverbs) and makes the trees.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

Case = IntEnum("Case", "NOMINATIVE ACCUSATIVE DATIVE", start=0)
Gender = IntEnum("Gender", "MASCULINE FEMININE NEUTER", start=0)

#: the roles of a verb's arguments by its frame, with their cases in xb
FRAMES = {
    "intransitive": {"subject": Case.NOMINATIVE},
    "accusative": {"subject": Case.NOMINATIVE, "direct": Case.ACCUSATIVE},
    "dative": {"subject": Case.NOMINATIVE, "direct": Case.DATIVE},
    "ditransitive": {"subject": Case.NOMINATIVE, "direct": Case.ACCUSATIVE, "indirect": Case.DATIVE},
    "clausal": {"subject": Case.NOMINATIVE},  # and a complement clause
}
# Rows: nominative, accusative, dative; columns: masculine, feminine, neuter.
DEFINITE_ARTICLE = (("der", "die", "das"), ("den", "die", "das"), ("dem", "der", "dem"))  # and relative pronoun
STRONG_ENDING = (("er", "e", "es"), ("en", "e", "es"), ("em", "er", "em"))
WEAK_ENDING = (("e", "e", "e"), ("en", "e", "e"), ("en", "en", "en"))


class Word(NamedTuple):
    """A word with one form in each language: an adverb, a conjunction or the stem of an adjective."""

    source: str = ""
    target: str = ""


NO_WORD = Word()


class Preposition(NamedTuple):
    source: str
    target: str
    governs: Case


class Determiner(NamedTuple):
    """A determiner: `target` is the stem before the case ending, which `indefinite` ones may lack (ein Hund)."""

    source: str
    target: str
    indefinite: bool = False

    def is_bare(self, case: Case, gender: Gender) -> bool:
        """Whether it has no ending: ein, kein, mein in masculine nominative, neuter nominative and accusative."""
        if not self.indefinite or gender is Gender.FEMININE or case is Case.DATIVE:
            return False
        return gender is Gender.NEUTER or case is Case.NOMINATIVE

    def form(self, case: Case, gender: Gender) -> str:
        if not self.target:
            return DEFINITE_ARTICLE[case][gender]
        return self.target + ("" if self.is_bare(case, gender) else STRONG_ENDING[case][gender])


class Noun(NamedTuple):
    source: str
    target: str
    gender: Gender


class Tense(NamedTuple):
    """An auxiliary in each language (empty in the present), and the form of the full verb with it."""

    source_auxiliary: str
    source_ending: str
    target_auxiliary: str
    target_mark: str  # between separable prefix and stem
    target_ending: str


class Verb(NamedTuple):
    """The stems of a verb; `prefix` is the separable prefix of the target verb, or empty."""

    source: str
    target: str
    frame: str
    prefix: str = ""

    def full(self, tense: Tense) -> str:
        """The target's full verb with its prefix: an-ruf-t, an-ge-ruf-t, an-ruf-en."""
        return self.prefix + tense.target_mark + self.target + tense.target_ending


PRESENT = Tense("", "s", "", "", "t")
PERFECT = Tense("has", "ed", "hat", "ge", "t")
MODALS = [
    Tense(source, "", target, "", "en") for source, target in (("will", "wird"), ("can", "kann"), ("must", "muss"))
]
TENSES = (PRESENT, PERFECT, *MODALS)
THE = Determiner("the", "")  # der, die, das: the only one without a stem
DETERMINERS = (
    THE,
    Determiner("this", "dies"),
    Determiner("every", "jed"),
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


def closed_classes() -> tuple[set[str], set[str]]:
    """All words that are not invented, of the source and of the target."""
    words = [(word.source, word.target) for word in (*CONJUNCTIONS, *TIMES)]
    words += [(preposition.source, preposition.target) for preposition in PREPOSITIONS]
    words += [(tense.source_auxiliary, tense.target_auxiliary) for tense in TENSES]
    forms = {word.form(case, gender) for word in DETERMINERS for case in Case for gender in Gender}
    source = {"that", "which", "to", "whom", *(word.source for word in DETERMINERS), *(source for source, _ in words)}
    return source, {"dass", *PREFIXES, *forms, *(target for _, target in words)}


class Marked(str):
    """A word of the target, and the node of the tree by which contrastive pairs find it."""

    node: Clause | NounPhrase
    is_prefix: bool

    def __new__(cls, word: str, node: Clause | NounPhrase, is_prefix: bool = False) -> Marked:
        marked = super().__new__(cls, word)
        marked.node, marked.is_prefix = node, is_prefix
        return marked


class PrepositionalPhrase(NamedTuple):
    preposition: Preposition
    noun_phrase: NounPhrase


@dataclass
class NounPhrase:
    """The words Det Adj* N (PP | relative clause)."""

    determiner: Determiner
    adjectives: tuple[Word, ...]
    noun: Noun
    modifier: PrepositionalPhrase | Clause | None = None

    def source(self) -> list[str]:
        words = [self.determiner.source, *(adjective.source for adjective in self.adjectives), self.noun.source]
        if isinstance(self.modifier, Clause):
            return [
                *words,
                *(("to", "whom") if self.modifier.gap == "indirect" else ("which",)),
                *self.modifier.source(),
            ]
        if self.modifier:
            words += [self.modifier.preposition.source, *self.modifier.noun_phrase.source()]
        return words

    def target(self, case: Case) -> list[str]:
        determiner, *adjectives = self.inflected(case)
        words = [Marked(determiner, self), *adjectives, self.noun.target]
        if isinstance(self.modifier, Clause):
            pronoun = DEFINITE_ARTICLE[FRAMES[self.modifier.verb.frame][self.modifier.gap]][self.noun.gender]
            return [*words, pronoun, *self.modifier.subordinate()]
        if self.modifier:
            preposition, phrase = self.modifier
            words += [preposition.target, *phrase.target(preposition.governs)]
        return words

    def inflected(self, case: Case) -> list[str]:
        """The target's Det Adj*, in the noun's gender. Adjectives are strong after a determiner without ending (ein
        alt-er), else weak (dies-er alt-e).
        """
        gender = self.noun.gender
        endings = STRONG_ENDING if self.determiner.is_bare(case, gender) else WEAK_ENDING
        adjectives = [adjective.target + endings[case][gender] for adjective in self.adjectives]
        return [self.determiner.form(case, gender), *adjectives]


@dataclass
class Clause:
    """A verb with its arguments by role; a relative clause lacks one, its `gap`, which the pronoun fills."""

    verb: Verb
    tense: Tense
    arguments: dict[str, NounPhrase] = field(default_factory=dict)
    gap: str = ""
    complement: Clause | None = None
    manner: Word = NO_WORD
    time: Word = NO_WORD
    time_first: bool = False

    def cases(self) -> Iterator[tuple[NounPhrase, Case]]:
        """The arguments with their cases."""
        for role, phrase in self.arguments.items():
            yield phrase, FRAMES[self.verb.frame][role]

    def source(self) -> list[str]:
        """The words (T) S V D (to I) (T) (that C); V is (auxiliary) (M) V."""
        by_role = {role: phrase.source() for role, phrase in self.arguments.items()}
        words = [self.time.source] if self.time_first else []
        words += [*by_role.get("subject", ()), self.tense.source_auxiliary, self.manner.source]
        words += [self.verb.source + self.tense.source_ending, *by_role.get("direct", ())]
        words += ["to", *by_role["indirect"]] if "indirect" in by_role else []
        words += [] if self.time_first else [self.time.source]
        return [*words, "that", *self.complement.source()] if self.complement else words

    def main(self, first: list[str]) -> list[str]:
        """The words of the target's main clause: one constituent (`first`, a fronted time adverb or the subject), the
        finite verb, the middle field, the right bracket (ruf-t .. an, hat .. an-ge-ruf-t), and a complement clause.
        """
        subject, time = self._target("subject"), self.time.target
        if not first and self.time_first:
            first, time = [time], ""
        elif not first:
            first, subject = subject, []
        finite, bracket = self.tense.target_auxiliary, Marked(self.verb.full(self.tense), self)
        if not finite:
            finite = Marked(self.verb.target + self.tense.target_ending, self)
            bracket = Marked(self.verb.prefix, self, is_prefix=True)
        return [*first, finite, *subject, *self._middle(time), bracket, *self._complement()]

    def subordinate(self) -> list[str]:
        """The words of the target's subordinate clause: subject and middle field, then all verbs, the finite one last
        (an-ruf-t, an-ge-ruf-t hat, an-ruf-en wird), and a complement clause.
        """
        verbs = [Marked(self.verb.full(self.tense), self), self.tense.target_auxiliary]
        return [*self._target("subject"), *self._middle(self.time.target), *verbs, *self._complement()]

    def _middle(self, time: str) -> list[str]:
        """The words T I D M."""
        return [time, *self._target("indirect"), *self._target("direct"), self.manner.target]

    def _complement(self) -> list[str]:
        return ["dass", *self.complement.subordinate()] if self.complement else []

    def _target(self, role: str) -> list[str]:
        return self.arguments[role].target(FRAMES[self.verb.frame][role]) if role in self.arguments else []


@dataclass
class Sentence:
    main: Clause
    conjunction: Word = NO_WORD
    adverbial: Clause | None = None
    adverbial_first: bool = False

    def source(self) -> list[str]:
        main, adverbial = self.main.source(), self.adverbial.source() if self.adverbial else []
        adverbial = [self.conjunction.source, *adverbial]
        return [word for word in (adverbial + main if self.adverbial_first else main + adverbial) if word]

    def target(self) -> list[str]:
        adverbial = self.adverbial.subordinate() if self.adverbial else []
        adverbial = [self.conjunction.target, *adverbial]
        words = self.main.main(adverbial) if self.adverbial_first else self.main.main([]) + adverbial
        return [word for word in words if word]
