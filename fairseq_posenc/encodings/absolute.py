"""Encodings without effect in attention: none at all, and those that fairseq adds to the embeddings."""

from .contract.base import Facts, PositionEncoding
from .contract.registry import register_encoding


@register_encoding("nopos")
class NoPositions(PositionEncoding):
    """No position information; only the decoder's causal mask depends on order."""

    facts = Facts(reads="nothing")


@register_encoding("sinusoidal")
class Sinusoidal(PositionEncoding):
    """Sinusoids of Vaswani et al. (2017), section 3.5, which stock fairseq adds to the embeddings."""

    facts = Facts(reads="nothing", input_positions="sinusoidal")


@register_encoding("learned")
class Learned(PositionEncoding):
    """A learned vector per absolute position (Gehring et al., 2017), which stock fairseq adds to the embeddings."""

    facts = Facts(reads="nothing", input_positions="learned")
