"""Metrics: their names in tables and in the .tsv of a paper's table, and SacreBLEU's objects that compute them."""

from functools import cache
from typing import Any

from posenc_experiments.base.languages import AT_BLANKS, tokenizer_of, usable_tokenizer
from posenc_experiments.base.recipe import TOKENIZED_KINDS

BLEU, CHRF, CHRF_WORDS, TER, TOKENIZED = "BLEU", "chrF", "chrF++", "TER", "tok. BLEU"
#: the name of all test sets together; like those of other added tests it has a blank, which no test set's name has
ALL_TESTS = "all tests"
#: the score on the sources of all test sets that are longer than the median less that on the others
BY_LENGTH = "longer half of the sources less the shorter"
#: the metrics of SacreBLEU, by their names in its output
SACREBLEU_NAMES = {"BLEU": BLEU, "chrF2": CHRF, "chrF2++": CHRF_WORDS, "TER": TER}
#: the metrics of the stage score; other tools compute others
OWN = (BLEU, CHRF, CHRF_WORDS, TER, TOKENIZED)
#: how the columns of other tools' metrics begin
OTHER = "metric:"
#: seed of the bootstrap, SacreBLEU's default
BOOTSTRAP_SEED = 12345
#: of all intervals
CONFIDENCE = 0.95
#: the metrics that a paper's .tsv may name, and the kind of tokenized BLEU of each; None for SacreBLEU's BLEU
PAPER_METRICS = {"lowercase": "lowercase", "historical": "split", "sacrebleu": None}


def tokenized_name(kind: str) -> str:
    """The name in tables of a kind of tokenized BLEU."""
    return f"{TOKENIZED} ({TOKENIZED_KINDS[kind]})"


def csv_column(metric: str, what: str = "") -> str:
    """The column in a CSV of a metric, or of its interval, spread, signature or seeds: `bleu_interval`.

    Another tool's metric may have any name without a blank, so `metric:` keeps it apart from the other columns.
    """
    name = f"{metric} {what}".rstrip()
    if metric not in OWN:
        return f"{OTHER}{name}"
    return name.replace(TOKENIZED, "tokenized BLEU historical").replace(" ", "_").lower()


def splits_at_blanks(name: str, signature: str) -> bool:
    """Whether a metric takes what stands between blanks and punctuation as words."""
    if name == BLEU:
        return tokenizer_of(signature) in AT_BLANKS
    return name == TOKENIZED or (name == TER and "|asian:yes|" not in signature)


def make_metric(name: str, lowercase: bool, tokenizer: str = "13a", asian: bool = False) -> Any:
    """SacreBLEU's object for a metric.

    Args:
        name: BLEU, CHRF, CHRF_WORDS or TER.
        tokenizer: of BLEU.
        asian: whether TER splits Japanese and Chinese text.
    """
    from sacrebleu.metrics import bleu, chrf, ter

    if name == BLEU:
        usable_tokenizer(tokenizer)
        return bleu.BLEU(lowercase=lowercase, tokenize=tokenizer, force=True)
    if name == TER:
        return ter.TER(normalized=asian, asian_support=asian)
    return chrf.CHRF(word_order=2 if name == CHRF_WORDS else 0, lowercase=lowercase)


@cache
def sacrebleu_metric(name: str, signature: str) -> Any:
    """SacreBLEU's object for a metric with this signature: `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|...`."""
    facts = signature.split("|")
    return make_metric(name, "case:lc" in facts, tokenizer_of(signature), "asian:yes" in facts)
