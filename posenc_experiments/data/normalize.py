"""Lowercasing and punctuation normalization of text before it is split into tokens.

They apply to the text of a model (prepare.lowercase and normalize-punctuation) and to that of the lowercased score.
"""

from collections.abc import Callable
from functools import cache

import sacremoses

Change = Callable[[str], str]


@cache
def normalizer(language: str, lowercase: bool, punctuation: bool) -> Change:
    """A function that changes one line of `language`.

    It lowercases first, as Multi30k's own script does, and then applies sacremoses' version of normalize-punctuation.
    """
    moses = sacremoses.MosesPunctNormalizer(language) if punctuation else None

    def normalize(line: str) -> str:
        line = line.lower() if lowercase else line
        return line if moses is None else str(moses.normalize(line))

    return normalize
