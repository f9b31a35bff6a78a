"""What metrics are called, in tables and in the .tsv of a paper's table."""

BLEU, CHRF, TOKENIZED = "BLEU", "chrF", "tok. BLEU"
#: the kinds of tokenized BLEU by [score] tokenized, with the word that tells them apart
KINDS = {"split": "historical", "lowercase": "lowercased"}
#: the metrics of a paper's .tsv: the kind of tokenized BLEU that each is, or None for SacreBLEU's BLEU
PAPER_METRICS = {"lowercase": "lowercase", "historical": "split", "sacrebleu": None}


def paper_name(metric: str) -> str:
    """What a table calls a metric of a paper's .tsv."""
    kind = PAPER_METRICS[metric]
    return BLEU if kind is None else f"{KINDS[kind]} {BLEU}"
