"""Disentangled attention of He et al. (2021), "DeBERTa", https://arxiv.org/abs/2006.03654."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..positions import Positions
from .base import CLIPPING_DISTANCE, Option, PositionEncoding, parse_bool, register_encoding
from .tables import logits_of_keys, logits_of_queries


@register_encoding("deberta")
class DeBERTa(PositionEncoding):
    r"""Relative position vectors with query and key projections of their own meet the keys and queries of the words.

    .. math:: A_{ij} = \frac{q_i k_j^T + q_i (k^r_{\delta(i, j)})^T + k_j (q^r_{\delta(i, j)})^T}{\sqrt{3d}}  \quad (4)

    delta(i, j) is the clipped distance, of which there are 2K: the paper's i - j runs from -K to K - 1, this package's
    j - i from -(K - 1) to K. In the last term the paper prints delta(j, i); the authors' code, and every other, looks
    up delta(i, j). The code's is the default, ``position_index`` "paper" takes the printed one. A term that is switched
    off leaves the scale too: 1/sqrt(2d), 1/sqrt(d).

    Parameters: ``relative_vectors`` (2K, H d), one table for all layers of a stack, row t is distance
    j - i = t - (K - 1), so the authors' table upside down; ``key_projection.weight`` and ``query_projection.weight``,
    each (H d, H d) as of nn.Linear, and ``query_projection.bias`` (H d), which the authors' code has and the paper has
    not: each layer's own. k^r = relative_vectors key_projection^T, and q^r likewise.
    Extra time O(K (H d)^2 + B H (T + S) K d) and memory O(B H (T + S) K), K at most the length.
    """

    options = {
        "clipping_distance": CLIPPING_DISTANCE,
        "content_to_position": Option(parse_bool, "the term of query and relative key, true or false"),
        "position_to_content": Option(parse_bool, "the term of key and relative query, true or false"),
        "position_index": Option(
            str, "distance looked up for position to content: as in the authors' code or as printed", ("code", "paper")
        ),
    }

    def __init__(
        self,
        num_heads: int,
        head_dim: int,
        clipping_distance: int = 128,
        content_to_position: bool = True,
        position_to_content: bool = True,
        position_index: str = "code",
    ) -> None:
        super().__init__(num_heads, head_dim)
        if clipping_distance < 1:
            raise ValueError(f"--clipping-distance must be 1 or more for deberta, not {clipping_distance}.")
        if not (content_to_position or position_to_content):
            raise ValueError(
                "deberta without --content-to-position and --position-to-content has no positions: use nopos."
            )
        self.clipping_distance = clipping_distance
        self.position_index = position_index
        self.terms = 1 + content_to_position + position_to_content
        width = num_heads * head_dim
        self.relative_vectors = nn.Parameter(torch.empty(2 * clipping_distance, width))
        self.key_projection = nn.Linear(width, width, bias=False) if content_to_position else None
        self.query_projection = nn.Linear(width, width) if position_to_content else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, std=0.0 if name.endswith("bias") else 0.02)  # the authors'

    @property
    def scaling(self) -> float:
        return (self.terms * self.head_dim) ** -0.5

    def tie(self, first: PositionEncoding) -> None:
        assert isinstance(first, DeBERTa)
        self.relative_vectors = first.relative_vectors

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        rows, index = positions.clipped(self.clipping_distance - 1, self.clipping_distance)
        terms = []
        if self.key_projection is not None:
            terms.append(logits_of_queries(q, self._vectors(self.key_projection, rows, positions), index))
        if self.query_projection is not None:
            if self.position_index == "paper":
                rows, index = self._mirrored(positions)
            vectors = self._vectors(self.query_projection, rows, positions)
            terms.append(logits_of_keys(k, vectors * self.scaling, index))
        return sum(terms[1:], start=terms[0])

    def _vectors(self, projection: nn.Linear, rows: slice, positions: Positions) -> Tensor:
        """k^r or q^r of these rows, (H, rows, d); all of them once in a generation."""
        if positions.generation is None:
            return self._split_heads(projection(self.relative_vectors[rows]))
        return positions.kept(projection, lambda _: self._split_heads(projection(self.relative_vectors)))[:, rows]

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(-1, self.num_heads, self.head_dim).transpose(0, 1)

    def _mirrored(self, positions: Positions) -> tuple[slice, Tensor]:
        """Where the distance i - j is looked up: all rows, and (T, S) indices into them."""
        k = self.clipping_distance
        return slice(None), positions.cached(("mirrored", k), lambda: (-positions.distances).clamp(1 - k, k) + k - 1)
