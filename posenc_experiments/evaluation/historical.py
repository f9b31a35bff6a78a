"""Tokenized BLEU, as papers print it: comparable with theirs where the tokens are made alike, and with nothing else.

The kind `split` is that of papers of the time of Shaw et al. (2018): what tensor2tensor's get_ende_bleu.sh does to
hypotheses and references. Moses' replace-unicode-punctuation and tokenizer, for German compounds split as in
`rich-text` -> `rich ##AT##-##AT## text` (more and easier n-grams), then multi-bleu.perl: cased, not smoothed. Here by
sacremoses and by SacreBLEU's BLEU on text that it does not tokenize, which is what multi-bleu.perl computes. sacremoses
is a port of Moses: of newstest2014's 3,003 references it makes other tokens than Moses' own script of today in 8 (de),
6 (fr) and 9 (cs), all with a full stop after an abbreviation at the end of the line, which moves BLEU by 0.01 at most.

The kind `lowercase` is that of papers on Multi30k, which score the text that their models learn from: lowercased, with
punctuation normalized, as Moses tokens with whole compounds. From test_2016_flickr's references it makes the tokens
that Multi30k's authors distribute, in all 1,000 lines of German, English and Czech and in 999 of French.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

from posenc_experiments.data.normalize import normalizer
from posenc_experiments.evaluation.metrics import KINDS

# As perl's s{(\S)-(\S)}{...}g on bytes: a match takes its neighbours, so the second hyphen of a-b-c stays.
COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Hyphens between words as tokens of their own, as the Stanford WMT14 data and GNMT have them."""
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode("utf-8")).decode("utf-8")


def tokenize(lines: Iterable[str], language: str, kind: str = "split") -> list[str]:
    """Each line as this kind of score sees it."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    punctuation, moses = MosesPunctNormalizer(language), MosesTokenizer(language)
    if kind == "lowercase":
        change = normalizer(language, lowercase=True, punctuation=True)
        return [moses.tokenize(change(line), return_str=True) for line in lines]
    tokenized = [moses.tokenize(punctuation.replace_unicode_punct(line), return_str=True) for line in lines]
    return [split_compounds(line) for line in tokenized] if language == "de" else tokenized


def name_of(kind: str) -> str:
    """What the score is called in files."""
    return f"tokenized BLEU ({KINDS[kind]})"


def signature(language: str, kind: str = "split") -> str:
    """All that one must know to get the same number, beginning with what not to do with it."""
    compounds = "split" if language == "de" and kind == "split" else "whole"
    case, punctuation = {"split": ("mixed", "unicode-replaced"), "lowercase": ("lc", "normalized")}[kind]
    return (
        f"{KINDS[kind]} tokenized BLEU, not comparable with SacreBLEU|nrefs:1|case:{case}|punctuation:{punctuation}|"
        f"tok:moses-{language}|compounds:{compounds}|smooth:none|like:multi-bleu.perl|"
        f"sacremoses:{version('sacremoses')}|sacrebleu:{version('sacrebleu')}"
    )


def historical_bleu(
    hypotheses: Sequence[str], references: Sequence[str], language: str, kind: str = "split"
) -> list[dict[str, Any]]:
    """The score, in the form of SacreBLEU's JSON."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", force=True, smooth_method="none", effective_order=False)
    score = bleu.corpus_score(tokenize(hypotheses, language, kind), [tokenize(references, language, kind)])
    verbose = score.format(width=2, is_json=False).partition(" = ")[2].partition(" ")[2]
    found = {"score": round(score.score, 2), "signature": signature(language, kind), "verbose_score": verbose}
    return [{"name": name_of(kind), **found}]
