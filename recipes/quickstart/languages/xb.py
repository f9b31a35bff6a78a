"""The target language, with the clause structure, cases and agreement of German."""

from __future__ import annotations

from recipes.quickstart.languages.trees import (
    Clause,
    NounPhrase,
    PrepositionalPhrase,
    RelativeClause,
    Sentence,
)
from recipes.quickstart.languages.words import (
    CONJUNCTIONS,
    DETERMINERS,
    MODALS,
    PERFECT,
    PREFIXES,
    PREPOSITIONS,
    PRESENT,
    TENSES,
    THE,
    TIMES,
    Case,
    Determiner,
    Frame,
    Gap,
    Gender,
    Tense,
    Verb,
    Word,
)

DASS = "dass"

# Rows: nominative, accusative, dative; columns: masculine, feminine, neuter.
DEFINITE_ARTICLE = (
    ("der", "die", "das"),
    ("den", "die", "das"),
    ("dem", "der", "dem"),
)  # and relative pronoun
STRONG_ENDING = (("er", "e", "es"), ("en", "e", "es"), ("em", "er", "em"))
WEAK_ENDING = (("e", "e", "e"), ("en", "e", "e"), ("en", "en", "en"))


# --- Clauses: first field, finite verb, middle field, right bracket, last field ---


def sentence(tree: Sentence) -> list[str]:
    adverbial = tree.adverbial
    if adverbial is None:
        return main_clause(tree.main)
    words = [adverbial.conjunction.target, *subordinate_clause(adverbial.clause)]
    return main_clause(tree.main, first=words) if adverbial.first else main_clause(tree.main) + words


def main_clause(tree: Clause, first: list[str] | None = None) -> list[str]:
    """The words of a main clause: one constituent (`first`, a fronted time adverb or the subject), then the verb."""
    subject, time = subject_phrase(tree), tree.time
    if first is None and time and tree.time_first:
        first, time = [time.target], None
    if first is None:
        first, subject = subject, []
    finite, bracket = separated_verb(tree.verb, tree.tense)
    return [*first, finite, *subject, *middle_field(tree, time), *bracket, *last_field(tree)]


def subordinate_clause(tree: Clause) -> list[str]:
    """The words of a subordinate clause: subject and middle field, then all verbs, the finite one last."""
    verbs = verb_cluster(tree.verb, tree.tense)
    return [*subject_phrase(tree), *middle_field(tree, tree.time), *verbs, *last_field(tree)]


def subject_phrase(tree: Clause) -> list[str]:
    return noun_phrase(tree.subject, Case.NOMINATIVE) if tree.subject else []


def middle_field(tree: Clause, time: Word | None) -> list[str]:
    """The words T I D M, which follow the subject."""
    words = [time.target] if time else []
    if tree.indirect:
        words += noun_phrase(tree.indirect, Case.DATIVE)
    if tree.direct:
        words += noun_phrase(tree.direct, object_case(tree.verb))
    if tree.manner:
        words.append(tree.manner.target)
    return words


def last_field(tree: Clause) -> list[str]:
    return [DASS, *subordinate_clause(tree.complement)] if tree.complement else []


def relative_clause(tree: RelativeClause, gender: Gender) -> list[str]:
    """The words of a relative clause; its pronoun has the gender of the antecedent and the case that its verb needs."""
    if tree.gap is Gap.OBJECT:
        case = object_case(tree.clause.verb)
    else:
        case = Case.NOMINATIVE if tree.gap is Gap.SUBJECT else Case.DATIVE
    return [DEFINITE_ARTICLE[case.value][gender.value], *subordinate_clause(tree.clause)]


# --- Verbs ---


def object_case(verb: Verb) -> Case:
    return Case.DATIVE if verb.frame is Frame.DATIVE else Case.ACCUSATIVE


def separated_verb(verb: Verb, tense: Tense) -> tuple[str, list[str]]:
    """The finite verb and right bracket of a main clause: ruf-t .. an, hat .. an-ge-ruf-t, wird .. an-ruf-en."""
    if tense.target_auxiliary:
        return tense.target_auxiliary, [non_finite(verb, tense)]
    return verb.target + tense.target_ending, [verb.prefix] if verb.prefix else []


def verb_cluster(verb: Verb, tense: Tense) -> list[str]:
    """The verbs of a subordinate clause: an-ruf-t, an-ge-ruf-t hat, an-ruf-en wird."""
    if tense.target_auxiliary:
        return [non_finite(verb, tense), tense.target_auxiliary]
    return [verb.prefix + verb.target + tense.target_ending]


def non_finite(verb: Verb, tense: Tense) -> str:
    return verb.prefix + tense.target_mark + verb.target + tense.target_ending


# --- Noun phrases ---


def noun_phrase(tree: NounPhrase, case: Case) -> list[str]:
    """The words Det Adj* N (PP | relative clause); determiner and adjectives agree in the noun's gender and `case`."""
    gender = tree.noun.gender
    ending = adjective_ending(tree.determiner, case, gender)
    words = [determiner(tree.determiner, case, gender)]
    words += [adjective.target + ending for adjective in tree.adjectives]
    words.append(tree.noun.target)
    modifier = tree.modifier
    if isinstance(modifier, PrepositionalPhrase):
        preposition = modifier.preposition
        words += [preposition.target, *noun_phrase(modifier.noun_phrase, preposition.governs)]
    elif modifier:
        words += relative_clause(modifier, gender)
    return words


def determiner(word: Determiner, case: Case, gender: Gender) -> str:
    if word is THE:
        return DEFINITE_ARTICLE[case.value][gender.value]
    if is_bare(word, case, gender):
        return word.target
    return word.target + STRONG_ENDING[case.value][gender.value]


def adjective_ending(word: Determiner, case: Case, gender: Gender) -> str:
    """The ending of adjectives: strong after a determiner without ending (ein alt-er), else weak (dies-er alt-e)."""
    table = STRONG_ENDING if is_bare(word, case, gender) else WEAK_ENDING
    return table[case.value][gender.value]


def is_bare(word: Determiner, case: Case, gender: Gender) -> bool:
    """Whether a determiner has no ending: ein, kein, mein in masculine nominative, neuter nominative and accusative."""
    if not word.indefinite or gender is Gender.FEMININE or case is Case.DATIVE:
        return False
    return gender is Gender.NEUTER or case is Case.NOMINATIVE


# --- Vocabulary ---


def verb_forms(verb: Verb) -> list[str]:
    """All forms of a verb, without auxiliaries and separated prefixes."""
    present = [separated_verb(verb, PRESENT)[0], *verb_cluster(verb, PRESENT)]
    return list(dict.fromkeys([*present, *(non_finite(verb, tense) for tense in (PERFECT, MODALS[0]))]))


def adjective_forms(stem: str) -> list[str]:
    """All forms of an adjective; strong datives (alt-em) do not occur, as all dative determiners have an ending."""
    return [stem + ending for ending in ("e", "en", "er", "es")]


def closed_class() -> set[str]:
    """All words of the language that are not invented."""
    determiners = {determiner(word, case, gender) for word in DETERMINERS for case in Case for gender in Gender}
    auxiliaries = {tense.target_auxiliary for tense in TENSES if tense.target_auxiliary}
    listed = (*PREPOSITIONS, *CONJUNCTIONS, *TIMES)
    return {DASS, *PREFIXES} | {word.target for word in listed} | determiners | auxiliaries
