"""Changes to text before it is split into tokens: to all that a model reads ([prepare] lowercase and
normalize-punctuation), and to what the lowercased score compares.
"""

from collections.abc import Callable
from functools import cache

import sacremoses

Change = Callable[[str], str]


@cache
def normalizer(language: str, lowercase: bool, punctuation: bool) -> Change:
    """The change of one line of `language`: lowercased first, as Multi30k's own script does it, then Moses'
    normalize-punctuation, by sacremoses.
    """
    moses = sacremoses.MosesPunctNormalizer(language) if punctuation else None

    def normalize(line: str) -> str:
        line = line.lower() if lowercase else line
        return line if moses is None else str(moses.normalize(line))

    return normalize
