"""No encoding, and encodings that fairseq adds to the embeddings; in attention they do nothing."""

from .base import PositionEncoding
from .registry import register_encoding


@register_encoding("nopos")
class NoPositions(PositionEncoding):
    """No position information at all; only the decoder's causal mask tells order."""


@register_encoding("sinusoidal")
class Sinusoidal(PositionEncoding):
    """Vaswani et al. (2017), section 3.5, as stock fairseq adds it to the embeddings. Nothing in attention."""

    input_positions = "sinusoidal"


@register_encoding("learned")
class Learned(PositionEncoding):
    """A learned vector for each absolute position (Gehring et al., 2017), as stock fairseq adds it to the embeddings.
    Nothing in attention.
    """

    input_positions = "learned"
