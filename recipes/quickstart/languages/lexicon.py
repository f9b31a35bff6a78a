"""Invents pronounceable words; no two have a form in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from recipes.quickstart.languages import xa, xb
from recipes.quickstart.languages.words import PREFIXES, Frame, Gender, Noun, Verb, Word

NOUNS, ADJECTIVES, MANNERS = 110, 50, 15
VERBS = {
    Frame.INTRANSITIVE: 15,
    Frame.ACCUSATIVE: 35,
    Frame.DATIVE: 12,
    Frame.DITRANSITIVE: 15,
    Frame.CLAUSAL: 10,
}
SEPARABLE_SHARE = 0.4
SECOND_SYLLABLE_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Sounds:
    """The parts of syllables, separated by spaces; a second syllable begins with one of `inner`."""

    onsets: str
    inner: str
    vowels: str
    codas: str


SOUNDS_XA = Sounds(
    onsets="b bl br d dr f fl g gl gr h j k kr l m n p pl pr qu r s sk sl sm sn sp st t th tr tw v w",
    inner="b bl br d dr f fl g",
    vowels="a e i o u ai ea oo ou",
    codas="b ck d ff g lk ll lt m mp n nd nk p rb rk rl rt sk t tch x",
)
SOUNDS_XB = Sounds(
    onsets="b bl br d dr f fl g gl gr h k kl kn kr l m n p pf pl r sch schl schn schw sp st str t tr w z zw",
    inner="b bl br d dr f fl g",
    vowels="a e i o u ä ö ü au ei ie",
    codas="b ch ck ff g lb ld lg lm lz m mpf n nd ng nz r rb rf rk rm rn rz sch ss tz",
)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Lexicon:
    """The invented words of the open classes."""

    nouns: tuple[Noun, ...]
    adjectives: tuple[Word, ...]
    verbs: dict[Frame, tuple[Verb, ...]]
    manners: tuple[Word, ...]


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """Chooses one of `items` by random(), the only method whose numbers for a seed are the same in every Python."""
    return items[int(rng.random() * len(items))]


class WordMaker:
    """Invents stems whose forms differ from all earlier ones."""

    def __init__(self, rng: random.Random, sounds: Sounds, taken: set[str]) -> None:
        self.rng = rng
        self.onsets, self.inner = sounds.onsets.split(), sounds.inner.split()
        self.vowels, self.codas = sounds.vowels.split(), sounds.codas.split()
        self.taken = set(taken)

    def stem(self, forms: Callable[[str], Sequence[str]] = lambda stem: [stem]) -> str:
        """A new stem; `forms` lists all word forms of a stem."""
        while True:
            stem = self._pronounceable()
            new = set(forms(stem))
            if new.isdisjoint(self.taken):
                self.taken |= new
                return stem

    def _pronounceable(self) -> str:
        stem = pick(self.rng, self.onsets) + pick(self.rng, self.vowels)
        if self.rng.random() < SECOND_SYLLABLE_SHARE:
            stem += pick(self.rng, self.inner) + pick(self.rng, self.vowels)
        return stem + pick(self.rng, self.codas)


def make_lexicon(rng: random.Random) -> Lexicon:
    source = WordMaker(rng, SOUNDS_XA, xa.closed_class())
    target = WordMaker(rng, SOUNDS_XB, xb.closed_class())

    def noun() -> Noun:
        name = source.stem()
        capitalized = target.stem(lambda stem: [stem.capitalize()]).capitalize()
        return Noun(name, capitalized, pick(rng, tuple(Gender)))

    def verb(frame: Frame) -> Verb:
        prefix = pick(rng, PREFIXES) if rng.random() < SEPARABLE_SHARE else ""
        stem = target.stem(lambda stem: xb.verb_forms(Verb("", stem, frame, prefix)))
        return Verb(source.stem(xa.verb_forms), stem, frame, prefix)

    def manner() -> Word:
        return Word(source.stem(lambda stem: [stem + "ly"]) + "ly", target.stem(lambda stem: [stem + "lich"]) + "lich")

    return Lexicon(
        nouns=tuple(noun() for _ in range(NOUNS)),
        adjectives=tuple(Word(source.stem(), target.stem(xb.adjective_forms)) for _ in range(ADJECTIVES)),
        verbs={frame: tuple(verb(frame) for _ in range(count)) for frame, count in VERBS.items()},
        manners=tuple(manner() for _ in range(MANNERS)),
    )


def vocabulary(lexicon: Lexicon) -> tuple[set[str], set[str]]:
    """All words that sentences may contain, of the source and of the target."""
    source, target = xa.closed_class(), xb.closed_class()
    source |= {noun.source for noun in lexicon.nouns} | {manner.source for manner in lexicon.manners}
    target |= {noun.target for noun in lexicon.nouns} | {manner.target for manner in lexicon.manners}
    for adjective in lexicon.adjectives:
        source.add(adjective.source)
        target.update(xb.adjective_forms(adjective.target))
    for verb in (verb for verbs in lexicon.verbs.values() for verb in verbs):
        source.update(xa.verb_forms(verb.source))
        target.update(xb.verb_forms(verb))
    return source, target
