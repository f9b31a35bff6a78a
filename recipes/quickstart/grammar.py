"""Generates the quickstart's corpus: parallel text from a synchronous grammar and a seed.

    python recipes/quickstart/grammar.py --seed 1 --train 40000 --valid 500 --test 500 OUTDIR

writes train.xa train.xb valid.xa valid.xb test.xa test.xb: one sentence a line, words separated by spaces. `xa`
and `xb` are invented languages, with codes that SacreBLEU and Moses do not know. The generator invents the open
classes of words; the closed classes are English and German, so that the sentences can be followed:

    xa  because the blim smorks today a grelt tove which this wug has fropped will dask the rell
    xb  weil der Knur heute pfumst wird ein gleiner Schotz den dieser Mand gezurkt hat die Biel anlorden

Each sentence is sampled as a tree without word order; both languages make words of it by their own rules
(languages.py). In the source, only the order tells subject from objects; in the
target, which has German's word order, the case does:

    rule                 source (xa)                         target (xb)
    -------------------  ----------------------------------  -------------------------------------------------
    main clause          (T) S V D (to I) (T) (C)            verb-second: one of T, S, B; finite verb; middle
                                                             field; right bracket; C
    subordinate clause   as the main clause                  verb-final: middle field; verbs, finite last; C
    middle field         -                                   (S) T I D M: time, then dative, then object
    right bracket        -                                   separable prefix, participle or infinitive
    present              V-s                                 V-t .. P          subordinate: P-V-t
    perfect              has V-ed                            hat .. P-ge-V-t   subordinate: P-ge-V-t hat
    modal                will|can|must V                     wird|kann|muss .. P-V-en      P-V-en wird
    manner adverb M      before the full verb: has M V-ed    end of the middle field
    complement C         that + clause                       dass + subordinate clause
    adverbial clause B   because|when|although + clause,     weil|wenn|obwohl + subordinate clause; if it is
                         before or after the main clause     first, the main clause's finite verb is next
    noun phrase          Det Adj* N (PP | relative)          same; Det and Adj agree with N's case and gender
    prepositional PP     Prep NP                             Prep NP in the dative or accusative, by Prep
    relative clause      which V ..       (subject gap)      der|die|das + subordinate clause
                         which S V ..     (object gap)       den|die|das or dem|der|dem, by the verb
                         to whom S V D    (indirect gap)     dem|der|dem + subordinate clause

S subject (nominative), D object (accusative; with some verbs dative), I indirect object (dative), T time
adverb, P separable prefix (of some verbs). Clauses contain noun phrases, and these clauses, to a depth of 2: every
prepositional phrase, relative clause, complement and adverbial clause is a level. Sources have at most 20 words.

Two restrictions ensure that every source sentence has one reading, and so one translation: no time adverb in a
relative clause, nor at the front of a main clause that follows an adverbial one; and a noun has a prepositional
phrase or a relative clause, not both.

After every sentence comes its twin, in the same split: the same tree with the nouns rotated by one place. Twins
have the same source words in another order. A model that sees only the bag of words must translate both in the
same way, and so one of them wrongly.

`--deeper 500` also writes test sets of 500 sentences that nest deeper than all others. They follow the same rules and
have the same words; sources have at most 40 words. The other files do not change by a byte. With seed 1:

    files            depth of every sentence   source words, and their mean
    ---------------  ------------------------  ----------------------------
    test.xa .xb      0 to 2                    9 to 20, 15.4
    test_depth3.xa   3                         16 to 40, 29.9
    test_depth4.xa   4                         19 to 40, 33.4
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import click

if __name__ == "__main__":
    # For a script, Python searches for modules in the script's directory, not in the repository.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recipes.quickstart.languages import (
    CONJUNCTIONS,
    DEFINITE_ARTICLE,
    DETERMINERS,
    FRAMES,
    MODALS,
    PERFECT,
    PREFIXES,
    PREPOSITIONS,
    PRESENT,
    TENSES,
    TIMES,
    Case,
    Clause,
    Gender,
    Marked,
    Noun,
    NounPhrase,
    PrepositionalPhrase,
    Sentence,
    Tense,
    Verb,
    Word,
    closed_classes,
)

# Parts of syllables: onsets, vowels, and codas; a second syllable begins with one of INNER.
SOUNDS_XA = (
    "b bl br d dr f fl g gl gr h j k kr l m n p pl pr qu r s sk sl sm sn sp st t th tr tw v w",
    "a e i o u ai ea oo ou",
    "b ck d ff g lk ll lt m mp n nd nk p rb rk rl rt sk t tch x",
)
SOUNDS_XB = (
    "b bl br d dr f fl g gl gr h k kl kn kr l m n p pf pl r sch schl schn schw sp st str t tr w z zw",
    "a e i o u ä ö ü au ei ie",
    "b ch ck ff g lb ld lg lm lz m mpf n nd ng nz r rb rf rk rm rn rz sch ss tz",
)
INNER = ("b", "bl", "br", "d", "dr", "f", "fl", "g")
NOUNS, ADJECTIVES, MANNERS = 110, 50, 15
VERBS = {"intransitive": 15, "accusative": 35, "dative": 12, "ditransitive": 15, "clausal": 10}
SEPARABLE_SHARE, SECOND_SYLLABLE_SHARE = 0.4, 0.4

DEPTH = 2  # maximum nesting of relative clauses, complements and prepositional phrases
DEEPER = {f"test_depth{depth}": depth for depth in (DEPTH + 1, DEPTH + 2)}
MAX_SOURCE_WORDS, MAX_DEEPER_WORDS = 20, 40  # up to DEPTH, and deeper
MIN_NOUNS = 3  # with fewer, twins would differ little
P_ADJECTIVE = (0.5, 0.38, 0.12)  # none, one, two
P_RELATIVE, P_PREPOSITIONAL = 0.2, 0.15
P_PRESENT, P_PERFECT = 0.5, 0.25  # otherwise a modal
P_TIME, P_TIME_FIRST, P_MANNER = 0.4, 0.6, 0.25
P_ADVERBIAL, P_ADVERBIAL_FIRST = 0.25, 0.5
P_CLAUSAL = 0.2
# Gaps, and the verb frames for each, weighted by repetition; no gap: all but relative clauses.
GAPS = ("subject",) * 4 + ("direct",) * 4 + ("indirect",)
ANY_FRAME = ("intransitive", *["accusative"] * 4, *["dative"] * 2, *["ditransitive"] * 3)
GAP_FRAMES = {
    "": ANY_FRAME,
    "subject": ANY_FRAME,
    "direct": (*["accusative"] * 3, "dative", "ditransitive"),
    "indirect": ("ditransitive",),
}
PHENOMENA = ("gender", "case", "relative", "prefix")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """Chooses one of `items` by random(), the only method whose numbers for a seed are the same in every Python."""
    return items[int(rng.random() * len(items))]


# --- The invented words ---


class Lexicon(NamedTuple):
    nouns: Sequence[Noun]
    adjectives: Sequence[Word]
    verbs: dict[str, Sequence[Verb]]  # by frame
    manners: Sequence[Word]


def stem(
    rng: random.Random, sounds: tuple[str, ...], taken: set[str], forms: Callable[[str], set[str]] = lambda stem: {stem}
) -> str:
    """Invents a pronounceable stem; none of its `forms` is in `taken`, to which they are added."""
    onsets, vowels, codas = (sound.split() for sound in sounds)
    while True:
        new = pick(rng, onsets) + pick(rng, vowels)
        if rng.random() < SECOND_SYLLABLE_SHARE:
            new += pick(rng, INNER) + pick(rng, vowels)
        new += pick(rng, codas)
        if taken.isdisjoint(forms(new)):
            taken |= forms(new)
            return new


def make_lexicon(rng: random.Random) -> Lexicon:
    """Invents words; no two have a form in common."""
    taken_source, taken_target = closed_classes()
    source = partial(stem, rng, SOUNDS_XA, taken_source)
    target = partial(stem, rng, SOUNDS_XB, taken_target)

    def noun() -> Noun:
        return Noun(source(), target(lambda stem: {stem.capitalize()}).capitalize(), pick(rng, tuple(Gender)))

    def adjective() -> Word:
        # Strong datives (alt-em) do not occur, as all dative determiners have an ending.
        return Word(source(), target(lambda stem: {stem + ending for ending in ("e", "en", "er", "es")}))

    def verb(frame: str) -> Verb:
        prefix = pick(rng, PREFIXES) if rng.random() < SEPARABLE_SHARE else ""
        new = target(lambda stem: {stem + "t", *(Verb("", stem, frame, prefix).full(tense) for tense in TENSES)})
        return Verb(source(lambda stem: {stem + tense.source_ending for tense in TENSES}), new, frame, prefix)

    def manner() -> Word:
        return Word(source(lambda stem: {stem + "ly"}) + "ly", target(lambda stem: {stem + "lich"}) + "lich")

    return Lexicon(
        [noun() for _ in range(NOUNS)],
        [adjective() for _ in range(ADJECTIVES)],
        {frame: [verb(frame) for _ in range(count)] for frame, count in VERBS.items()},
        [manner() for _ in range(MANNERS)],
    )


# --- The sentences ---


class Sampler:
    """Samples trees that nest at most `depth` levels deep.

    `phrases` are the noun phrases of the latest tree, in the order in which they were made; `left` is the number of
    levels that it leaves unused.
    """

    def __init__(self, rng: random.Random, lexicon: Lexicon, depth: int = DEPTH) -> None:
        self.rng = rng
        self.lexicon = lexicon
        self.depth = self.left = depth
        self.phrases: list[NounPhrase] = []

    def sentences(self) -> Iterator[tuple[Sentence, str]]:
        """Yields trees with their source, without end: neither too long nor with too few nouns, and exactly `depth`
        levels deep if that is more than DEPTH, so that none can be in a training text.
        """
        longest = MAX_SOURCE_WORDS if self.depth <= DEPTH else MAX_DEEPER_WORDS
        while True:
            tree = self.sentence()
            words = tree.source()
            if len(self.phrases) >= MIN_NOUNS and len(words) <= longest and not (self.depth > DEPTH and self.left):
                yield tree, " ".join(words)

    def sentence(self) -> Sentence:
        self.phrases, self.left = [], self.depth
        if self.rng.random() >= P_ADVERBIAL:
            return Sentence(self.clause(self.depth, may_front=True))
        first = self.rng.random() < P_ADVERBIAL_FIRST
        conjunction, adverbial = pick(self.rng, CONJUNCTIONS), self.clause(self.depth - 1, may_front=True)
        # Only one constituent comes before the finite verb: a clause or a time adverb, not both.
        return Sentence(self.clause(self.depth - 1, may_front=not first), conjunction, adverbial, first)

    def clause(
        self, depth: int, gap: str = "", p_clausal: float = P_CLAUSAL, times: bool = True, may_front: bool = False
    ) -> Clause:
        """A clause in which a complement has a chance of `p_clausal`, and a time adverb may be if `times`."""
        self.left = min(self.left, depth)
        clausal = depth > 0 and self.rng.random() < p_clausal
        frame = "clausal" if clausal else pick(self.rng, GAP_FRAMES[gap])
        clause = Clause(pick(self.rng, self.lexicon.verbs[frame]), self._tense(), gap=gap)
        clause.arguments = {role: self.noun_phrase(depth) for role in FRAMES[frame] if role != gap}
        if clausal:
            # Within a relative clause, at any depth, a time adverb could also belong to the main clause.
            clause.complement = self.clause(depth - 1, p_clausal=0.0, times=not gap)
        if self.rng.random() < P_MANNER:
            clause.manner = pick(self.rng, self.lexicon.manners)
        if times and self.rng.random() < P_TIME:
            clause.time = pick(self.rng, TIMES)
            clause.time_first = may_front and self.rng.random() < P_TIME_FIRST
        return clause

    def noun_phrase(self, depth: int) -> NounPhrase:
        chance = self.rng.random()
        count = 0 if chance < P_ADJECTIVE[0] else 1 if chance < P_ADJECTIVE[0] + P_ADJECTIVE[1] else 2
        adjectives = tuple(pick(self.rng, self.lexicon.adjectives) for _ in range(count))
        phrase = NounPhrase(pick(self.rng, DETERMINERS), adjectives, pick(self.rng, self.lexicon.nouns))
        self.phrases.append(phrase)
        self.left = min(self.left, depth)
        chance = self.rng.random() if depth > 0 else 1.0
        if chance < P_RELATIVE:
            gap = pick(self.rng, GAPS)
            p_clausal = P_CLAUSAL if gap == "subject" else 0.0
            phrase.modifier = self.clause(depth - 1, gap, p_clausal, times=False)
        elif chance < P_RELATIVE + P_PREPOSITIONAL:
            phrase.modifier = PrepositionalPhrase(pick(self.rng, PREPOSITIONS), self.noun_phrase(depth - 1))
        return phrase

    def _tense(self) -> Tense:
        chance = self.rng.random()
        if chance < P_PRESENT:
            return PRESENT
        return PERFECT if chance < P_PRESENT + P_PERFECT else pick(self.rng, MODALS)


def sentence_pairs(rng: random.Random, lexicon: Lexicon, depth: int = DEPTH) -> Iterator[tuple[str, str]]:
    """Yields (source, target) lines without end; source lines are unique, and every second pair is a twin."""
    sampler = Sampler(rng, lexicon, depth)
    seen: set[str] = set()
    for tree, source in sampler.sentences():
        pair = source, " ".join(tree.target())
        # Each noun phrase gets the noun of the one before it: the same source words get another meaning.
        nouns = [phrase.noun for phrase in sampler.phrases]
        for phrase, noun in zip(sampler.phrases, nouns[-1:] + nouns[:-1], strict=True):
            phrase.noun = noun
        twin = " ".join(tree.source()), " ".join(tree.target())
        if pair[0] != twin[0] and seen.isdisjoint((pair[0], twin[0])):
            seen |= {pair[0], twin[0]}
            yield pair
            yield twin


# --- Contrastive pairs ---


class Contrast(NamedTuple):
    """A target and the same target with one error, and the distance between the words that must fit.

    phenomenon  error                                                   distance in target words
    ----------  ------------------------------------------------------  ----------------------------------------
    gender      a determiner has the form of another gender             from the determiner to its noun
    case        an argument (its determiner and adjectives) has         between the determiner and the full verb
                another case
    relative    a relative pronoun has another case                     from the pronoun to its clause's full verb
    prefix      the separable prefix of a main clause is another        from the finite verb to the prefix

    The wrong form of `gender` is no form of the determiner for this noun in any case; that of `case` and `relative` is.
    """

    phenomenon: str
    distance: int
    source: str
    correct: str
    contrastive: str


def make_contrasts(rng: random.Random, lexicon: Lexicon, taken: Iterable[str], number: int) -> list[Contrast]:
    """`number` pairs of each phenomenon, whose sources are not `taken`; a source has at most one pair of each."""
    seen = set(taken)
    chosen: dict[str, list[Contrast]] = {phenomenon: [] for phenomenon in PHENOMENA}
    sentences = Sampler(rng, lexicon).sentences()
    while any(len(pairs) < number for pairs in chosen.values()):
        tree, source = next(sentences)
        if source in seen:
            continue
        seen.add(source)
        every = list(contrasts(tree))
        for phenomenon, pairs in chosen.items():
            possible = [contrast for contrast in every if contrast.phenomenon == phenomenon]
            if len(pairs) < number and possible:
                pairs.append(pick(rng, possible))
    return [contrast for pairs in chosen.values() for contrast in pairs]


def contrasts(tree: Sentence) -> Iterator[Contrast]:
    """Every contrastive pair of a sentence."""
    source, words = " ".join(tree.source()), tree.target()
    marked = {(id(word.node), word.is_prefix): at for at, word in enumerate(words) if isinstance(word, Marked)}

    def contrast(phenomenon: str, distance: int, at: int, wrong: Sequence[str]) -> Contrast:
        contrastive = [*words[:at], *wrong, *words[at + len(wrong) :]]
        return Contrast(phenomenon, distance, source, " ".join(words), " ".join(contrastive))

    clauses = [tree.main, *([tree.adverbial] if tree.adverbial else [])]
    for clause in clauses:  # which grows by the clauses inside
        clauses += [clause.complement] if clause.complement else []
        verb, at = marked[id(clause), False], marked.get((id(clause), True))
        for prefix in PREFIXES:
            if at is not None and prefix != clause.verb.prefix:
                yield contrast("prefix", at - verb, at, [prefix])
        for phrase, case in clause.cases():
            at = marked[id(phrase), False]
            for wrong in map(phrase.inflected, Case):
                if wrong != phrase.inflected(case):
                    yield contrast("case", abs(verb - at), at, wrong)
            while True:  # the argument, and the phrases that prepositions join to it
                at, distance, gender = marked[id(phrase), False], 1 + len(phrase.adjectives), phrase.noun.gender
                forms = {phrase.determiner.form(any_case, gender) for any_case in Case}
                for form in (phrase.determiner.form(case, any_gender) for any_gender in Gender):
                    if form not in forms:
                        yield contrast("gender", distance, at, [form])
                if not isinstance(phrase.modifier, PrepositionalPhrase):
                    break
                case, phrase = phrase.modifier.preposition.governs, phrase.modifier.noun_phrase
            if isinstance(phrase.modifier, Clause):
                clauses.append(phrase.modifier)
                at += distance + 1
                for row in DEFINITE_ARTICLE:
                    if row[gender] != words[at]:
                        yield contrast("relative", marked[id(phrase.modifier), False] - at, at, [row[gender]])


# --- The files ---


def write_corpus(directory: Path, seed: int, sizes: dict[str, int], deeper: int = 0, contrasts: int = 0) -> None:
    """Writes the corpus to `directory`; files appear only when all are complete.

    Args:
        directory: where to.
        seed: of words and sentences.
        sizes: numbers of lines of train, valid and test.
        deeper: lines of each test set of DEEPER; 0: they are not written.
        contrasts: contrastive pairs of each phenomenon in contrast.tsv; 0: it is not written.

    Raises:
        OSError: `directory` cannot be written.
    """
    rng = random.Random(seed)
    lexicon = make_lexicon(rng)
    pairs = sentence_pairs(rng, lexicon)
    # Training text is generated last, so that the test set does not depend on its size.
    text = {split: list(islice(pairs, sizes[split])) for split in ("test", "valid", "train")}
    for split, depth in DEEPER.items() if deeper else ():
        # Random numbers of its own, so that the other splits are the same without it; so have the contrastive pairs.
        text[split] = list(islice(sentence_pairs(random.Random(f"{seed} {split}"), lexicon, depth), deeper))
    files = {
        f"{split}.{language}": [pair[side] for pair in lines]
        for split, lines in text.items()
        for side, language in enumerate(("xa", "xb"))
    }
    if contrasts:
        taken = [source for lines in text.values() for source, _ in lines]
        rows = make_contrasts(random.Random(f"contrasts {seed}"), lexicon, taken, contrasts)
        files["contrast.tsv"] = ["\t".join(map(str, row)) for row in (Contrast._fields, *rows)]
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".grammar-", dir=directory) as workplace:
        for name, lines in files.items():
            Path(workplace, name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        for name in sorted(files):
            os.replace(Path(workplace, name), directory / name)


def size(name: str, default: int, least: int, help: str) -> Callable[[F], F]:
    """An option with a number."""
    return click.option(
        name, type=click.IntRange(min=least), default=default, show_default=True, metavar="N", help=help
    )


@click.command()
@size("--seed", 1, 0, "Same seed, same bytes.")
@size("--train", 40000, 1, "Training pairs.")
@size("--valid", 500, 1, "Validation pairs.")
@size("--test", 500, 1, "Test pairs.")
@size("--deeper", 0, 0, f"Also test sets of N pairs that nest deeper than all other text: {' and '.join(DEEPER)}.")
@size("--contrast", 0, 0, "Also N contrastive pairs of each phenomenon, in contrast.tsv.")
@click.argument("outdir", type=click.Path(file_okay=False, path_type=Path))
def main(seed: int, train: int, valid: int, test: int, deeper: int, contrast: int, outdir: Path) -> None:
    """Writes train, valid and test (.xa source, .xb target) to OUTDIR."""
    try:
        write_corpus(outdir, seed, {"train": train, "valid": valid, "test": test}, deeper, contrast)
    except OSError as error:
        raise click.ClickException(f"Cannot write to {outdir} ({error.strerror}): choose another OUTDIR.") from error


if __name__ == "__main__":
    main()
