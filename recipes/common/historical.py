"""The BLEU that papers of the time printed, Shaw et al. (2018) among them: tokenized, and comparable with nothing else.

What tensor2tensor's get_ende_bleu.sh does to hypotheses and references: Moses' replace-unicode-punctuation and
tokenizer, for German compounds split as in `rich-text` -> `rich ##AT##-##AT## text` (more and easier n-grams), then
multi-bleu.perl: cased, not smoothed. Here by sacremoses and by SacreBLEU's BLEU on text that it does not tokenize,
which is what multi-bleu.perl computes. sacremoses is a port of Moses: of newstest2014's 3,003 references it makes other
tokens than Moses' own script of today in 8 (de), 6 (fr) and 9 (cs), all with a full stop after an abbreviation at the
end of the line, which moves BLEU by 0.01 at most.
"""

import re
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from typing import Any

NAME = "tokenized BLEU (historical)"
# As perl's s{(\S)-(\S)}{...}g on bytes: a match takes its neighbours, so the second hyphen of a-b-c stays.
COMPOUND = re.compile(rb"(\S)-(\S)")


def split_compounds(line: str) -> str:
    """Hyphens between words as tokens of their own, as the Stanford WMT14 data and GNMT have them."""
    return COMPOUND.sub(rb"\1 ##AT##-##AT## \2", line.encode("utf-8")).decode("utf-8")


def tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Each line as the historical score sees it."""
    from sacremoses import MosesPunctNormalizer, MosesTokenizer

    punctuation, moses = MosesPunctNormalizer(language), MosesTokenizer(language)
    tokenized = [moses.tokenize(punctuation.replace_unicode_punct(line), return_str=True) for line in lines]
    return [split_compounds(line) for line in tokenized] if language == "de" else tokenized


def signature(language: str) -> str:
    """All that one must know to get the same number, beginning with what not to do with it."""
    compounds = "split" if language == "de" else "whole"
    return (
        f"historical tokenized BLEU, not comparable with SacreBLEU|nrefs:1|case:mixed|punctuation:unicode-replaced|"
        f"tok:moses-{language}|compounds:{compounds}|smooth:none|like:multi-bleu.perl|"
        f"sacremoses:{version('sacremoses')}|sacrebleu:{version('sacrebleu')}"
    )


def historical_bleu(hypotheses: Sequence[str], references: Sequence[str], language: str) -> list[dict[str, Any]]:
    """The score, in the form of SacreBLEU's JSON."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize="none", force=True, smooth_method="none", effective_order=False)
    score = bleu.corpus_score(tokenize(hypotheses, language), [tokenize(references, language)])
    verbose = score.format(width=2, is_json=False).partition(" = ")[2].partition(" ")[2]
    return [{"name": NAME, "score": round(score.score, 2), "signature": signature(language), "verbose_score": verbose}]
