"""Shaw's vectors on the keys only, with separate clips to the left and to the right, as in Wav2Vec2-BERT.

Barrault et al. (2023), "Seamless", https://arxiv.org/abs/2312.05187.
"""

from typing import Any

import torch
from torch import Tensor, nn

from ..kernels.flex import ScoreMod
from ..positions import Positions
from .contract.base import Facts, PositionEncoding
from .contract.options import POSITION_SHARING, option, whole
from .contract.registry import register_encoding
from .shared.tables import clipped_score_mod, logits_of_queries


@register_encoding("relative_key")
class RelativeKey(PositionEncoding):
    r"""A learned vector of the distance on the keys, clipped further to the left than to the right.

    .. math:: e_{ij} = q_i (k_j + a_{\mathrm{clip}(j - i, -L, R)})^T / \sqrt{d}

    Parameter: ``relative_keys`` (1, L + R + 1, d), shared by heads as in Hugging Face's code, or (H, L + R + 1, d);
    row t is distance t - L. Extra time O(B H T min(L + R, S) d), memory O(B H T min(L + R, S)).
    """

    facts = Facts(supports_cross_attention=True)
    left_clip: int = option(64, whole(0), "distances to the left beyond L are clipped to L")
    right_clip: int = option(8, whole(0), "distances to the right beyond R are clipped to R")
    position_sharing: str = option("head", POSITION_SHARING)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        shape = self.table_heads, self.left_clip + self.right_clip + 1, head_dim
        self.relative_keys = nn.Parameter(torch.empty(shape))
        for head in self.relative_keys:
            nn.init.xavier_uniform_(head)  # as shaw

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        rows = positions.span_rows(self.left_clip, self.right_clip)
        return {"relative_keys": self.relative_keys[:, rows]}

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        clipped = positions.clipped(self.left_clip, self.right_clip)
        return logits_of_queries(q, self.relative_keys[:, clipped.rows], clipped)

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod:
        return clipped_score_mod(q, self.relative_keys, positions, self.left_clip, self.right_clip)
