"""A seeded generator of a parallel corpus from a synchronous grammar: the quickstart's text, made on the spot.

    python recipes/quickstart/grammar.py --seed 1 --train 40000 --valid 500 --test 500 OUTDIR

writes train.xa train.xb valid.xa valid.xb test.xa test.xb: one sentence a line, words separated by a space. `xa` and
`xb` are invented languages (codes that nobody, SacreBLEU and Moses included, takes for real ones). Their open-class
words are made up by the generator; their closed-class words are English and German, so that one can follow a sentence:

    xa  because the blim smorks today a grelt tove which this wug has fropped will dask the rell
    xb  weil der Knur heute pfumst wird ein gleiner Schotz den dieser Mand gezurkt hat die Biel anlorden

A sentence is sampled once, as a language-neutral tree (`Sentence`, `Clause`, `NounPhrase`, ...), and each language
spells that tree out by its own rules. Word order is the source's only marking of who does what to whom; the target
says it by case and has German's word order:

    rule                 source (xa)                             target (xb)
    -------------------  --------------------------------------  --------------------------------------------------------
    main clause          (T) S V D (to I) (T) (C)                V2: T|S|B first, then finite verb, rest of the middle
                                                                 field, right bracket, C
    subordinate clause   same order as a main clause             verb-final: S T I D M, right bracket, finite verb, C
    middle field         S .. D to I .. T                        (S) T I D M: time first, dative before accusative
    right bracket        (none: the verb is one piece)           separable prefix | participle | infinitive
    present              V-s                                     V-t;  separable: V-t .. P,  subordinate P+V-t
    perfect              has V-ed                                hat .. (P+)ge-V-t,  subordinate (P+)ge-V-t hat
    modal                will|can|must V                         wird|kann|muss .. (P+)V-en,  subordinate (P+)V-en wird
    manner adverb M      before the full verb: has M V-ed        end of the middle field
    complement clause C  that + clause                           dass + subordinate clause, after the right bracket
    adverbial clause B   because|when|although + clause,         weil|wenn|obwohl + subordinate clause; where it comes
                         before or after the main clause         first the finite verb of the main clause follows at once
    noun phrase          Det Adj* N (PP | relative)              same order; Det and Adj agree with case and gender
    prepositional PP     Prep NP                                 Prep NP, the preposition governs dative or accusative
    relative clause      which V ..   (subject gap)              der|die|das    + subordinate clause
                         which S V .. (object gap)               den|die|das or dem|der|dem, by the verb's case
                         to whom S V D (indirect-object gap)     dem|der|dem    + subordinate clause

S, D, I: subject (nominative), object (accusative; dative with some verbs), indirect object (dative). T: time adverb.
P: separable prefix. Subjects, objects and prepositional phrases recurse through relative and complement clauses.

Three restrictions leave each source sentence with one reading, hence one translation: inside a relative clause there
is no time adverb; a clause that has a complement clause has no time adverb at its end; a noun phrase has a
prepositional phrase or a relative clause, not both.

Each sentence comes with its twin, in the same split: the same tree with its nouns moved round by one place. Both have
the very same bag of source words, so what sees only the bag must give both the same translation.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TypeVar

import click

SOURCE, TARGET = "xa", "xb"
SPLITS = ("train", "valid", "test")

T = TypeVar("T")


# --- Categories ---------------------------------------------------------------------------------------------------


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


# --- Words --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Word:
    """A word that has one form in each language: adverbs, conjunctions."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class Preposition:
    source: str
    target: str
    governs: Case


@dataclass(frozen=True, slots=True)
class Determiner:
    """`target` is the stem before the case ending; `strong_gaps`: ein-words lack an ending where der-words have one."""

    source: str
    target: str
    strong_gaps: bool


@dataclass(frozen=True, slots=True)
class Adjective:
    source: str
    target: str


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
    """An auxiliary in each language (empty in the present) and the form of the full verb that goes with it."""

    source_auxiliary: str
    source_ending: str
    target_auxiliary: str
    target_mark: str
    target_ending: str


PRESENT = Tense("", "s", "", "", "t")
PERFECT = Tense("has", "ed", "hat", "ge", "t")
MODALS = tuple(
    Tense(source, "", target, "", "en") for source, target in (("will", "wird"), ("can", "kann"), ("must", "muss"))
)

# Rows: case; columns: gender (masculine, feminine, neuter).
DEFINITE = (("der", "die", "das"), ("den", "die", "das"), ("dem", "der", "dem"))
STRONG_ENDING = (("er", "e", "es"), ("en", "e", "es"), ("em", "er", "em"))
WEAK_ADJECTIVE_ENDING = (("e", "e", "e"), ("en", "e", "e"), ("en", "en", "en"))

THE = Determiner("the", "", strong_gaps=False)
DETERMINERS = (
    THE,
    Determiner("this", "dies", strong_gaps=False),
    Determiner("every", "jed", strong_gaps=False),
    Determiner("a", "ein", strong_gaps=True),
    Determiner("no", "kein", strong_gaps=True),
    Determiner("my", "mein", strong_gaps=True),
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
FUNCTION_WORDS = (Word("that", "dass"), Word("which", ""), Word("to", ""), Word("whom", ""))


# --- Trees: what both languages say -------------------------------------------------------------------------------


@dataclass(slots=True)
class NounPhrase:
    determiner: Determiner
    adjectives: tuple[Adjective, ...]
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


# --- Source language: order alone says who does what ----------------------------------------------------------------


def source_sentence(sentence: Sentence) -> list[str]:
    main = source_clause(sentence.main)
    if sentence.adverbial is None:
        return main
    adverbial = [sentence.adverbial.conjunction.source, *source_clause(sentence.adverbial.clause)]
    return adverbial + main if sentence.adverbial.first else main + adverbial


def source_clause(clause: Clause) -> list[str]:
    """(T) S V D (to I) (T) (that C); every role may be missing."""
    words = [clause.time.source] if clause.time and clause.time_first else []
    if clause.subject:
        words += source_noun_phrase(clause.subject)
    words += source_verb(clause)
    if clause.direct:
        words += source_noun_phrase(clause.direct)
    if clause.indirect:
        words += ["to", *source_noun_phrase(clause.indirect)]
    if clause.time and not clause.time_first:
        words.append(clause.time.source)
    if clause.complement:
        words += ["that", *source_clause(clause.complement)]
    return words


def source_verb(clause: Clause) -> list[str]:
    words = [clause.tense.source_auxiliary] if clause.tense.source_auxiliary else []
    if clause.manner:
        words.append(clause.manner.source)
    words.append(clause.verb.source + clause.tense.source_ending)
    return words


def source_noun_phrase(phrase: NounPhrase) -> list[str]:
    words = [phrase.determiner.source, *(adjective.source for adjective in phrase.adjectives), phrase.noun.source]
    if isinstance(phrase.modifier, PrepositionalPhrase):
        words += [phrase.modifier.preposition.source, *source_noun_phrase(phrase.modifier.noun_phrase)]
    elif phrase.modifier:
        pronoun = ["to", "whom"] if phrase.modifier.gap is Gap.INDIRECT else ["which"]
        words += pronoun + source_clause(phrase.modifier.clause)
    return words


# --- Target language: topological fields, case and agreement ------------------------------------------------------


def target_sentence(sentence: Sentence) -> list[str]:
    adverbial = sentence.adverbial
    if adverbial is None:
        return target_main_clause(sentence.main)
    words = [adverbial.conjunction.target, *target_subordinate_clause(adverbial.clause)]
    if adverbial.first:
        return target_main_clause(sentence.main, first=words)
    return target_main_clause(sentence.main) + words


def target_main_clause(clause: Clause, first: list[str] | None = None) -> list[str]:
    """Verb-second: one constituent (`first`, else a fronted time adverb, else the subject), then the finite verb."""
    subject = target_noun_phrase(clause.subject, Case.NOMINATIVE) if clause.subject else []
    time_inside = clause.time
    if first is None and clause.time and clause.time_first:
        first, time_inside = [clause.time.target], None
    if first is None:
        first, subject = subject, []
    finite, bracket = target_verb_second(clause.verb, clause.tense)
    middle = subject + middle_field(clause, time_inside)
    return [*first, finite, *middle, *bracket, *target_complement(clause)]


def target_subordinate_clause(clause: Clause) -> list[str]:
    """Verb-final: everything before the verbs, and the finite verb after the others."""
    subject = target_noun_phrase(clause.subject, Case.NOMINATIVE) if clause.subject else []
    return [*subject, *middle_field(clause, clause.time), *target_verb_final(clause.verb, clause.tense), *target_complement(clause)]


def middle_field(clause: Clause, time: Word | None) -> list[str]:
    """T I D M: time, dative, object, manner (the subject, where it is here, comes before)."""
    words = [time.target] if time else []
    if clause.indirect:
        words += target_noun_phrase(clause.indirect, Case.DATIVE)
    if clause.direct:
        words += target_noun_phrase(clause.direct, object_case(clause.verb))
    if clause.manner:
        words.append(clause.manner.target)
    return words


def target_complement(clause: Clause) -> list[str]:
    return ["dass", *target_subordinate_clause(clause.complement)] if clause.complement else []


def target_verb_second(verb: Verb, tense: Tense) -> tuple[str, list[str]]:
    """The finite verb and the right bracket of a main clause."""
    if tense.target_auxiliary:
        return tense.target_auxiliary, [non_finite(verb, tense)]
    return verb.target + tense.target_ending, [verb.prefix] if verb.prefix else []


def target_verb_final(verb: Verb, tense: Tense) -> list[str]:
    """The verbs at the end of a subordinate clause; a separable prefix is written together with its verb."""
    if tense.target_auxiliary:
        return [non_finite(verb, tense), tense.target_auxiliary]
    return [verb.prefix + verb.target + tense.target_ending]


def non_finite(verb: Verb, tense: Tense) -> str:
    """Participle (an-ge-ruf-t) or infinitive (an-ruf-en)."""
    return verb.prefix + tense.target_mark + verb.target + tense.target_ending


def object_case(verb: Verb) -> Case:
    return Case.DATIVE if verb.frame is Frame.DATIVE else Case.ACCUSATIVE


def target_noun_phrase(phrase: NounPhrase, case: Case) -> list[str]:
    gender = phrase.noun.gender
    words = [target_determiner(phrase.determiner, case, gender)]
    ending = adjective_ending(phrase.determiner, case, gender)
    words += [adjective.target + ending for adjective in phrase.adjectives]
    words.append(phrase.noun.target)
    if isinstance(phrase.modifier, PrepositionalPhrase):
        preposition = phrase.modifier.preposition
        words += [preposition.target, *target_noun_phrase(phrase.modifier.noun_phrase, preposition.governs)]
    elif phrase.modifier:
        words += target_relative_clause(phrase.modifier, gender)
    return words


def target_determiner(determiner: Determiner, case: Case, gender: Gender) -> str:
    if determiner is THE:
        return DEFINITE[case.value][gender.value]
    if lacks_ending(determiner, case, gender):
        return determiner.target
    return determiner.target + STRONG_ENDING[case.value][gender.value]


def adjective_ending(determiner: Determiner, case: Case, gender: Gender) -> str:
    """Strong where the determiner shows no case, weak after one that does."""
    table = STRONG_ENDING if lacks_ending(determiner, case, gender) else WEAK_ADJECTIVE_ENDING
    return table[case.value][gender.value]


def lacks_ending(determiner: Determiner, case: Case, gender: Gender) -> bool:
    """ein, kein, mein: bare in the masculine nominative and the neuter nominative and accusative."""
    if not determiner.strong_gaps:
        return False
    if gender is Gender.NEUTER:
        return case is not Case.DATIVE
    return gender is Gender.MASCULINE and case is Case.NOMINATIVE


def target_relative_clause(relative: RelativeClause, gender: Gender) -> list[str]:
    """The pronoun has its antecedent's gender, and its case from its own clause's verb."""
    clause = relative.clause
    case = {
        Gap.SUBJECT: Case.NOMINATIVE,
        Gap.OBJECT: object_case(clause.verb),
        Gap.INDIRECT: Case.DATIVE,
    }[relative.gap]
    return [DEFINITE[case.value][gender.value], *target_subordinate_clause(clause)]


# --- Lexicon: invented, pronounceable, no two words alike ------------------------------------------------------------

SOURCE_SYLLABLES = (
    "b bl br d dr f fl g gl gr h j k kr l m n p pl pr qu r s sk sl sm sn sp st t th tr tw v w".split(),
    "a e i o u ai ea oo ou".split(),
    "b ck d ff g lk ll lt m mp n nd nk p rb rk rl rt sk t tch x".split(),
)
TARGET_SYLLABLES = (
    "b bl br d dr f fl g gl gr h k kl kn kr l m n p pf pl r sch schl schn schw sp st str t tr w z zw".split(),
    "a e i o u ä ö ü au ei ie".split(),
    "b ch ck ff g lb ld lg lm lz m mpf n nd ng nz r rb rf rk rm rn rz sch ss tz".split(),
)
SOURCE_ENDINGS = {Noun: ("",), Adjective: ("",), Word: ("ly",), Verb: ("s", "ed", "")}
MANNER_ENDING = "s"

NOUNS, ADJECTIVES, MANNERS = 110, 50, 15
VERBS = {
    Frame.INTRANSITIVE: 15,
    Frame.ACCUSATIVE: 35,
    Frame.DATIVE: 12,
    Frame.DITRANSITIVE: 15,
    Frame.CLAUSAL: 10,
}
SEPARABLE_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Lexicon:
    nouns: tuple[Noun, ...]
    adjectives: tuple[Adjective, ...]
    verbs: dict[Frame, tuple[Verb, ...]]
    manners: tuple[Word, ...]


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """One of `items`; by random(), the one method whose sequence Python promises to keep across versions."""
    return items[int(rng.random() * len(items))]


def source_verb_forms(stem: str) -> list[str]:
    return [stem + tense.source_ending for tense in (PRESENT, PERFECT, MODALS[0])]


def target_verb_forms(verb: Verb) -> list[str]:
    """Every form of a verb, without auxiliaries and without a prefix that stands alone."""
    forms = [target_verb_second(verb, PRESENT)[0], target_verb_final(verb, PRESENT)[0]]
    return forms + [non_finite(verb, tense) for tense in (PERFECT, MODALS[0])]


def adjective_forms(stem: str) -> list[str]:
    return [stem + ending for ending in ("e", "en", "er", "es")]


def closed_class_words() -> tuple[set[str], set[str]]:
    """All words of the source and of the target that the generator does not invent."""
    tenses = (PERFECT, *MODALS)
    fixed = (*PREPOSITIONS, *CONJUNCTIONS, *TIMES, *FUNCTION_WORDS)
    source = {w.source for w in (*fixed, *DETERMINERS)} | {t.source_auxiliary for t in tenses}
    target = {w.target for w in fixed if w.target} | {t.target_auxiliary for t in tenses} | set(PREFIXES)
    target |= {target_determiner(d, case, gender) for d in DETERMINERS for case in Case for gender in Gender}
    return source, target


def vocabulary(lexicon: Lexicon) -> tuple[set[str], set[str]]:
    """Every word that a sentence over `lexicon` may hold, in the source and in the target."""
    source, target = closed_class_words()
    for word in (*lexicon.nouns, *lexicon.manners):
        source.add(word.source)
        target.add(word.target)
    for adjective in lexicon.adjectives:
        source.add(adjective.source)
        target.update(adjective_forms(adjective.target))
    for verb in (verb for verbs in lexicon.verbs.values() for verb in verbs):
        source.update(source_verb_forms(verb.source))
        target.update(target_verb_forms(verb))
    return source, target


class WordMaker:
    """Invents stems whose inflected forms collide with no form given out before."""

    def __init__(self, rng: random.Random, syllables: tuple[list[str], ...], taken: Iterable[str]) -> None:
        self.rng = rng
        self.syllables = syllables
        self.taken = set(taken)

    def stem(self, forms: Callable[[str], list[str]] = lambda stem: [stem]) -> str:
        """A new stem; `forms` says what is made of it."""
        while True:
            onsets, vowels, codas = self.syllables
            stem = pick(self.rng, onsets) + pick(self.rng, vowels)
            if self.rng.random() < 0.4:
                stem += pick(self.rng, onsets[:8]) + pick(self.rng, vowels)
            stem += pick(self.rng, codas)
            new = set(forms(stem))
            if not new & self.taken:
                self.taken |= new
                return stem


def make_lexicon(rng: random.Random) -> Lexicon:
    source_taken, target_taken = closed_class_words()
    source = WordMaker(rng, SOURCE_SYLLABLES, source_taken)
    target = WordMaker(rng, TARGET_SYLLABLES, target_taken)

    def verb(frame: Frame) -> Verb:
        prefix = pick(rng, PREFIXES) if rng.random() < SEPARABLE_SHARE else ""
        stem = target.stem(lambda stem: target_verb_forms(Verb("", stem, frame, prefix)))
        return Verb(source.stem(source_verb_forms), stem, frame, prefix)

    return Lexicon(
        nouns=tuple(
            Noun(source.stem(), target.stem(lambda stem: [stem.capitalize()]).capitalize(), pick(rng, tuple(Gender)))
            for _ in range(NOUNS)
        ),
        adjectives=tuple(Adjective(source.stem(), target.stem(adjective_forms)) for _ in range(ADJECTIVES)),
        verbs={frame: tuple(verb(frame) for _ in range(count)) for frame, count in VERBS.items()},
        manners=tuple(
            Word(source.stem(lambda stem: [stem + "ly"]) + "ly", target.stem(lambda stem: [stem + "lich"]) + "lich")
            for _ in range(MANNERS)
        ),
    )


# --- Sampling -----------------------------------------------------------------------------------------------------

DEPTH = 2  # how many relative, complement and prepositional phrases may stand inside one another
MAX_SOURCE_WORDS = 28
MIN_NOUNS = 3  # fewer leave little to mix up

P_ADJECTIVE = (0.5, 0.38, 0.12)  # none, one, two
P_RELATIVE, P_PREPOSITIONAL = 0.2, 0.15
P_PRESENT, P_PERFECT = 0.5, 0.25  # else a modal
P_TIME, P_TIME_FIRST, P_MANNER = 0.4, 0.6, 0.25
P_ADVERBIAL, P_ADVERBIAL_FIRST = 0.25, 0.5

# Verb frames by what is wanted of them, with weights by repetition.
ANY_FRAME = (
    Frame.INTRANSITIVE,
    *(Frame.ACCUSATIVE,) * 4,
    *(Frame.DATIVE,) * 2,
    *(Frame.DITRANSITIVE,) * 3,
)
GAP_FRAMES = {
    Gap.SUBJECT: ANY_FRAME,
    Gap.OBJECT: (*(Frame.ACCUSATIVE,) * 3, Frame.DATIVE, Frame.DITRANSITIVE),
    Gap.INDIRECT: (Frame.DITRANSITIVE,),
}
P_CLAUSAL = 0.2
GAPS = (*(Gap.SUBJECT,) * 4, *(Gap.OBJECT,) * 4, Gap.INDIRECT)


class Sampler:
    """Samples trees; `phrases` are the noun phrases of the latest one, in order of birth."""

    def __init__(self, rng: random.Random, lexicon: Lexicon) -> None:
        self.rng = rng
        self.lexicon = lexicon
        self.phrases: list[NounPhrase] = []

    def sentence(self) -> Sentence:
        self.phrases = []
        if self.rng.random() >= P_ADVERBIAL:
            return Sentence(self.clause(DEPTH))
        first = self.rng.random() < P_ADVERBIAL_FIRST
        adverbial = AdverbialClause(pick(self.rng, CONJUNCTIONS), self.clause(DEPTH - 1), first)
        # Only one constituent fits before the finite verb: what is fronted already leaves no room for a time adverb.
        return Sentence(self.clause(DEPTH - 1, may_front=not first), adverbial)

    def clause(self, depth: int, may_front: bool = True) -> Clause:
        """A main, complement or adverbial clause."""
        return self._adverbs(self._arguments(depth, None, P_CLAUSAL), times=True, may_front=may_front)

    def relative_clause(self, depth: int) -> RelativeClause:
        gap = pick(self.rng, GAPS)
        p_clausal = P_CLAUSAL if gap is Gap.SUBJECT else 0.0
        return RelativeClause(gap, self._adverbs(self._arguments(depth, gap, p_clausal), times=False))

    def noun_phrase(self, depth: int) -> NounPhrase:
        chance = self.rng.random()
        count = 0 if chance < P_ADJECTIVE[0] else 1 if chance < P_ADJECTIVE[0] + P_ADJECTIVE[1] else 2
        adjectives = tuple(pick(self.rng, self.lexicon.adjectives) for _ in range(count))
        phrase = NounPhrase(pick(self.rng, DETERMINERS), adjectives, pick(self.rng, self.lexicon.nouns))
        self.phrases.append(phrase)
        if depth > 0:
            chance = self.rng.random()
            if chance < P_RELATIVE:
                phrase.modifier = self.relative_clause(depth - 1)
            elif chance < P_RELATIVE + P_PREPOSITIONAL:
                preposition = pick(self.rng, PREPOSITIONS)
                phrase.modifier = PrepositionalPhrase(preposition, self.noun_phrase(depth - 1))
        return phrase

    def _arguments(self, depth: int, gap: Gap | None, p_clausal: float) -> Clause:
        if depth > 0 and self.rng.random() < p_clausal:
            frame = Frame.CLAUSAL
        else:
            frame = pick(self.rng, ANY_FRAME if gap is None else GAP_FRAMES[gap])
        clause = Clause(pick(self.rng, self.lexicon.verbs[frame]), self._tense())
        if gap is not Gap.SUBJECT:
            clause.subject = self.noun_phrase(depth)
        if frame in (Frame.ACCUSATIVE, Frame.DATIVE, Frame.DITRANSITIVE) and gap is not Gap.OBJECT:
            clause.direct = self.noun_phrase(depth)
        if frame is Frame.DITRANSITIVE and gap is not Gap.INDIRECT:
            clause.indirect = self.noun_phrase(depth)
        if frame is Frame.CLAUSAL:
            # Below a relative clause no time adverb may stand, however deep: it could belong to the main clause.
            inner = self._arguments(depth - 1, None, 0.0)
            clause.complement = self._adverbs(inner, times=gap is None, may_front=False)
        return clause

    def _adverbs(self, clause: Clause, times: bool, may_front: bool = False) -> Clause:
        if self.rng.random() < P_MANNER:
            clause.manner = pick(self.rng, self.lexicon.manners)
        if times and self.rng.random() < P_TIME:
            time_first = self.rng.random() < P_TIME_FIRST
            if (may_front and time_first) or (not time_first and clause.complement is None):
                clause.time, clause.time_first = pick(self.rng, TIMES), time_first
        return clause

    def _tense(self) -> Tense:
        chance = self.rng.random()
        if chance < P_PRESENT:
            return PRESENT
        return PERFECT if chance < P_PRESENT + P_PERFECT else pick(self.rng, MODALS)


def rotate_nouns(phrases: Sequence[NounPhrase]) -> None:
    """Give each noun phrase the noun of the one before it: another meaning in the same source words."""
    nouns = [phrase.noun for phrase in phrases]
    for phrase, noun in zip(phrases, nouns[-1:] + nouns[:-1], strict=True):
        phrase.noun = noun


def sentence_pairs(rng: random.Random, lexicon: Lexicon) -> Iterator[tuple[str, str]]:
    """Endless (source, target) lines, no source line twice; every second one is the twin of the one before it."""
    sampler = Sampler(rng, lexicon)
    seen: set[str] = set()
    while True:
        sentence = sampler.sentence()
        words = source_sentence(sentence)
        if len(sampler.phrases) < MIN_NOUNS or len(words) > MAX_SOURCE_WORDS:
            continue
        pair = " ".join(words), " ".join(target_sentence(sentence))
        rotate_nouns(sampler.phrases)
        twin = " ".join(source_sentence(sentence)), " ".join(target_sentence(sentence))
        if pair[0] == twin[0] or pair[0] in seen or twin[0] in seen:
            continue
        seen.update((pair[0], twin[0]))
        yield pair
        yield twin


# --- Files --------------------------------------------------------------------------------------------------------


def write_corpus(directory: Path, seed: int, sizes: dict[str, int]) -> None:
    """Write the splits named in `sizes` (lines each) to `directory`; a file appears whole or not at all.

    Raises OSError where `directory` cannot be written.
    """
    rng = random.Random(seed)
    pairs = sentence_pairs(rng, make_lexicon(rng))
    directory.mkdir(parents=True, exist_ok=True)
    workplace = Path(tempfile.mkdtemp(prefix=".grammar-", dir=directory))
    try:
        # Training comes last, so that the same seed gives the same test set whatever the size of the training set.
        for split in sorted(sizes, key=SPLITS.index, reverse=True):
            write_split(workplace, split, [next(pairs) for _ in range(sizes[split])])
        for file in sorted(workplace.iterdir()):
            os.replace(file, directory / file.name)
    finally:
        shutil.rmtree(workplace)


def write_split(directory: Path, split: str, pairs: list[tuple[str, str]]) -> None:
    for side, language in enumerate((SOURCE, TARGET)):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        (directory / f"{split}.{language}").write_bytes(text.encode())


@click.command()
@click.option("--seed", type=click.IntRange(min=0), default=1, show_default=True, help="Same seed, same bytes.")
@click.option("--train", type=click.IntRange(min=1), default=40000, show_default=True, help="Training pairs.")
@click.option("--valid", type=click.IntRange(min=1), default=500, show_default=True, help="Validation pairs.")
@click.option("--test", type=click.IntRange(min=1), default=500, show_default=True, help="Test pairs.")
@click.argument("outdir", type=click.Path(file_okay=False, path_type=Path))
def main(seed: int, train: int, valid: int, test: int, outdir: Path) -> None:
    """Write train, valid and test (.xa source, .xb target) to OUTDIR."""
    try:
        write_corpus(outdir, seed, {"train": train, "valid": valid, "test": test})
    except OSError as error:
        raise click.ClickException(f"Cannot write to {outdir} ({error.strerror}): choose another OUTDIR.") from error


if __name__ == "__main__":
    main()
