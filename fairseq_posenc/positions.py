"""The public names of :mod:`fairseq_posenc.attention.positions`."""

from .attention.positions import CrossPositions, Positions

__all__ = ["CrossPositions", "Positions"]
