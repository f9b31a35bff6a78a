"""Segment attention of Chen et al. (2021), "DIET", https://arxiv.org/abs/2104.08698, to combine with an encoding."""

import torch
from torch import Tensor, nn

from ...positions import Positions, look_up
from .gain import LearnedScalars


class SegmentAttention(LearnedScalars):
    r"""One learned scalar for each head and pair of segments, added to the logits, unscaled.

    .. math:: E_S(S(i), S(j)) = S_{\hat i, \hat j}  \quad (2)

    Parameter: ``segment_bias`` (H, N, N), indexed by head, segment of the query, segment of the key. Segments from N on
    are treated as segment N - 1.
    """

    scalars = {"segment_bias": 0.0}

    def __init__(self, num_heads: int, num_segments: int) -> None:
        super().__init__()
        self.num_segments = num_segments
        self.segment_bias = nn.Parameter(torch.empty(num_heads, num_segments, num_segments))
        nn.init.normal_(self.segment_bias, std=0.02)  # as diet_rel; the paper names no initializer

    def forward(self, positions: Positions) -> Tensor:
        """The bias, (B, H, T, S)."""

        def pairs() -> Tensor:
            i, j = (segments.clamp(max=self.num_segments - 1) for segments in positions.segment_pairs)
            return i[:, :, None] * self.num_segments + j[:, None, :]

        return look_up(
            self.effective("segment_bias").flatten(1), positions.cache.get(("segments", self.num_segments), pairs)
        )
