"""Tokenized BLEU as papers report it, which is comparable only with BLEU of the same tokenization.

The kind `split` follows papers of the time of Shaw et al. (2018), which used tensor2tensor's get_ende_bleu.sh: Moses'
replace-unicode-punctuation and tokenizer; for German, compounds split as in `rich-text` -> `rich ##AT##-##AT## text`,
which adds easy n-grams; then multi-bleu.perl, cased and not smoothed. Here sacremoses tokenizes, and SacreBLEU computes
BLEU without its own tokenization, which equals multi-bleu.perl. sacremoses is a port of Moses: of newstest2014's 3,003
references it tokenizes 8 (de), 6 (fr) and 9 (cs) differently from the current Moses script. All of these end in an
abbreviation and a full stop. They change BLEU by 0.01 at most.

The kind `lowercase` follows papers on Multi30k, which score the text that their models learn from: lowercased, with
punctuation normalized, and Moses tokens with compounds whole. Of test_2016_flickr's references, it reproduces the
tokens that Multi30k's authors distribute for all 1,000 lines of German, English and Czech and for 999 of French.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from posenc_experiments.base.recipe import TOKENIZED_KINDS
from posenc_experiments.data.subwords import normalizer

# Equals perl's s{(\S)-(\S)}{...}g on bytes: matches include the letters beside a hyphen, so a-b-c keeps its second one.
COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """The line with hyphens between words as separate tokens, as in the Stanford WMT14 data and in GNMT."""
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode("utf-8")).decode("utf-8")


def tokenize(lines: Iterable[str], language: str, kind: str = "split") -> list[str]:
    """The lines, tokenized for this kind of score."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    punctuation, moses = MosesPunctNormalizer(language), MosesTokenizer(language)
    if kind == "lowercase":
        change = normalizer(language, lowercase=True, punctuation=True)
        return [moses.tokenize(change(line), return_str=True) for line in lines]
    tokenized = [moses.tokenize(punctuation.replace_unicode_punct(line), return_str=True) for line in lines]
    return [split_compounds(line) for line in tokenized] if language == "de" else tokenized


def name_of(kind: str) -> str:
    """The name of this kind of score in files."""
    return f"tokenized BLEU ({TOKENIZED_KINDS[kind]})"


def signature(language: str, kind: str = "split") -> str:
    """All settings that the number depends on, after a warning about its use."""
    compounds = "split" if language == "de" and kind == "split" else "whole"
    case, punctuation = {"split": ("mixed", "unicode-replaced"), "lowercase": ("lc", "normalized")}[kind]
    return (
        f"{TOKENIZED_KINDS[kind]} tokenized BLEU, not comparable with SacreBLEU|nrefs:1|case:{case}|"
        f"punctuation:{punctuation}|tok:moses-{language}|compounds:{compounds}|smooth:none|like:multi-bleu.perl|"
        f"sacremoses:{version('sacremoses')}|sacrebleu:{version('sacrebleu')}"
    )


def historical_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, kind: str = "split"
) -> list[dict[str, Any]]:
    """Computes the score; returns it in the form of SacreBLEU's JSON."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", force=True, smooth_method="none", effective_order=False)
    score = bleu.corpus_score(tokenize(hypotheses, language, kind), [tokenize(references, language, kind)])
    verbose = score.format(width=2, is_json=False).partition(" = ")[2].partition(" ")[2]
    facts = {"name": name_of(kind), "score": round(score.score, 2), "signature": signature(language, kind)}
    return [facts | {"verbose_score": verbose}]
