"""Metrics: their names in tables and in the .tsv of a paper's table, and the seed and confidence of their intervals."""

from posenc_experiments.base.recipe import TOKENIZED_KINDS

BLEU, CHRF, TOKENIZED = "BLEU", "chrF", "tok. BLEU"
#: seed of the bootstrap, SacreBLEU's default
BOOTSTRAP_SEED = 12345
#: of all intervals
CONFIDENCE = 0.95
#: the metrics that a paper's .tsv may name, and the kind of tokenized BLEU of each; None for SacreBLEU's BLEU
PAPER_METRICS = {"lowercase": "lowercase", "historical": "split", "sacrebleu": None}


def paper_name(metric: str) -> str:
    """The name in a table of a metric of a paper's .tsv."""
    kind = PAPER_METRICS[metric]
    return BLEU if kind is None else f"{TOKENIZED_KINDS[kind]} {BLEU}"
