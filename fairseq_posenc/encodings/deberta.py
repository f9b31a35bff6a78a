"""Disentangled attention of He et al. (2021), "DeBERTa", https://arxiv.org/abs/2006.03654."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import FlagError
from ..positions import Clipped, Positions
from .contract.base import Facts, PositionEncoding, Projection, Projections
from .contract.options import CLIPPING_DISTANCE, MAX_DISTANCE, integer, option, parse_bool
from .contract.registry import register_encoding
from .shared.buckets import by_clamped_distance, signed_log_buckets
from .shared.tables import logits_of_keys, logits_of_queries


def _idle_options(given: Collection[str]) -> dict[str, str]:
    if "position_buckets" in given:
        return {"clipping_distance": "with --position-buckets, which uses --max-distance"}
    return {"max_distance": "without --position-buckets"}


@register_encoding("deberta")
class DeBERTa(PositionEncoding):
    r"""Logits of content queries with relative keys, and of content keys with relative queries.

    .. math:: A_{ij} = \frac{q_i k_j^T + q_i (k^r_{\delta(i, j)})^T + k_j (q^r_{\delta(i, j)})^T}{\sqrt{3d}}  \quad (4)

    delta(i, j) is the clipped distance, with 2K values: the paper's i - j runs from -K to K - 1, this package's
    j - i from -(K - 1) to K. In the last term the paper prints delta(j, i), whereas the authors' code and all other
    implementations use delta(i, j). The default follows the code; ``position_index`` "paper" follows the paper. Without
    one of the two terms the scale is 1/sqrt(2d), without both 1/sqrt(d).

    DeBERTa-v2 and v3 differ by two options. With ``position_buckets`` N, delta is the bucket of the distance (see
    :func:`.shared.buckets.signed_log_buckets`, with ``max_distance``): 2N rows, N in each direction, in decoders too.
    With ``share_key_projection``, k^r and q^r are made with the content's own projections of keys and queries, biases
    included, which attention passes to ``read_layer``.

    Parameters: ``relative_vectors`` (2K, H d), one table for all layers of a stack; row t is distance
    j - i = t - (K - 1), the reverse of the authors' order; or (2N, H d) by bucket, in the same order. Unless
    projections are shared, each layer also has ``key_projection.weight`` and ``query_projection.weight``, each
    (H d, H d) as in nn.Linear, and ``query_projection.bias`` (H d), which is in the authors' code but not in the paper.
    k^r = relative_vectors key_projection^T, and q^r likewise.
    Extra time O(K (H d)^2 + B H (T + S) K d) and memory O(B H (T + S) K), K or N at most the length.
    """

    clipping_distance: int = option(128, CLIPPING_DISTANCE)
    content_to_position: bool = option(True, parse_bool, "include the term of query and relative key, true or false")
    position_to_content: bool = option(True, parse_bool, "include the term of key and relative query, true or false")
    position_index: str = option(
        "code",
        str,
        "index of the distance in the position-to-content term: as in the authors' code or as in the paper",
        ("code", "paper"),
    )
    position_buckets: int | None = option(
        None, integer, "number of distance buckets in each direction, half of them logarithmic, instead of clipping"
    )
    max_distance: int = option(512, MAX_DISTANCE)  # the authors'
    share_key_projection: bool = option(
        False,
        parse_bool,
        "project relative vectors with the projections of queries and keys, true, or with their own, false",
    )
    facts = Facts(idle_options=_idle_options)
    shared_by_layers = ("relative_vectors",)
    #: the row of each distance from -(max_distance - 1) to max_distance - 1
    bucket_rows: Tensor

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__(num_heads, head_dim, **options)
        if self.clipping_distance < 1:
            raise FlagError(f"--clipping-distance must be 1 or more for deberta, not {self.clipping_distance}.")
        if not (self.content_to_position or self.position_to_content):
            raise FlagError(
                "deberta with both --content-to-position and --position-to-content false has no position information: "
                "use nopos."
            )
        self.terms = 1 + self.content_to_position + self.position_to_content
        side = self.clipping_distance
        if self.position_buckets is not None:
            side = self.position_buckets
            buckets = signed_log_buckets(side, self.max_distance)
            # Also kept as a list, so that slicing the table does not synchronize with a GPU.
            self._bucket_rows = [min(max(bucket + side - 1, 0), 2 * side - 1) for bucket in buckets]
            self.register_buffer("bucket_rows", torch.tensor(self._bucket_rows), persistent=False)
        width = num_heads * head_dim
        owns_key = self.content_to_position and not self.share_key_projection
        owns_query = self.position_to_content and not self.share_key_projection
        self.relative_vectors = nn.Parameter(torch.empty(2 * side, width))
        self.key_projection = nn.Linear(width, width, bias=False) if owns_key else None
        self.query_projection = nn.Linear(width, width) if owns_query else None
        #: attention's projections of queries and of keys, set by ``read_layer``
        self.content_projections: Projections | None = None
        for name, parameter in self.named_parameters():
            nn.init.normal_(parameter, std=0.0 if name.endswith("bias") else 0.02)  # the authors'

    @property
    def scaling(self) -> float:
        return (self.terms * self.head_dim) ** -0.5

    def read_layer(self, x: Tensor, projections: Projections | None) -> None:
        if self.share_key_projection and projections is not None:
            self.content_projections = projections

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        rows, index, *_ = self._clipped(positions)
        row_of_span = index.new_zeros(len(positions.span)).scatter(0, positions.span_index.flatten(), index.flatten())
        return {"relative_vectors": self.relative_vectors[None, rows][:, row_of_span]}

    def prepare(self, positions: Positions, dtype: torch.dtype) -> list[Tensor | None]:
        """q^r and k^r of all rows."""
        return [
            None if projection is None else self._split_heads(projection(self.relative_vectors))
            for projection in self._projections()
        ]

    def bias(
        self, q: Tensor, k: Tensor, positions: Positions, prepared: Sequence[Tensor | None] = (None, None)
    ) -> Tensor:
        clipped = self._clipped(positions)
        query_projection, key_projection = self._projections()
        prepared_query, prepared_key = prepared
        terms = []
        if key_projection is not None:
            vectors = self._vectors(key_projection, clipped.rows, positions, prepared_key)
            terms.append(logits_of_queries(q, vectors, clipped))
        if query_projection is not None:
            rows, index, *_ = clipped
            if self.position_index == "paper":
                rows, index = self._rows_of_opposite_distance(positions)
            vectors = self._vectors(query_projection, rows, positions, prepared_query)
            terms.append(logits_of_keys(k, vectors * self.scaling, index))
        return sum(terms[1:], start=terms[0])

    def _projections(self) -> tuple[Projection | None, Projection | None]:
        """The projections to q^r and to k^r; None for a term that is disabled.

        Raises:
            ValueError: they are shared, but attention has not passed them.
        """
        if not self.share_key_projection:
            return self.query_projection, self.key_projection
        if self.content_projections is None:
            raise ValueError(
                "deberta with --share-key-projection needs attention's projections: give attend "
                "projections=(query, key)."
            )
        query, key = self.content_projections
        return query if self.position_to_content else None, key if self.content_to_position else None

    def _vectors(self, projection: Projection, rows: slice, positions: Positions, prepared: Tensor | None) -> Tensor:
        """k^r or q^r of these rows, (H, rows, d); blocks and a generation project rows once."""
        if prepared is not None:
            return prepared[:, rows]
        if positions.cache.generation is None or positions.queries > 1:
            # The key is the parameter: the layers, which share it, slice it once.
            key = self.relative_vectors, rows.start, rows.stop
            vectors: Tensor = positions.cache.get(key, lambda: self.relative_vectors[rows], learned=True)
            return self._split_heads(projection(vectors))

        def project(keys: int) -> Tensor:
            first = min(rows.start, self._clipped(Positions(1, keys, device=positions.device)).rows.start)
            return self._split_heads(projection(self.relative_vectors[first : rows.stop])).contiguous()

        # The rows of one query end at the same row for any number of keys: more keys only add rows before them.
        return positions.cache.get_for_generation(projection, positions.keys, project)[:, rows.start - rows.stop :]

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(-1, self.num_heads, self.head_dim).transpose(0, 1)

    def _clipped(self, positions: Positions) -> Clipped:
        """Indices into the table by the distances j - i."""
        if self.position_buckets is None:
            return positions.clipped(self.clipping_distance - 1, self.clipping_distance)

        def find() -> Clipped:
            furthest = self.max_distance - 1
            distances, index, band, _ = positions.clipped(furthest, furthest)
            rows = self._bucket_rows[distances]
            return Clipped(slice(rows[0], rows[-1] + 1), (self.bucket_rows[distances] - rows[0])[index], band)

        return positions.cache.get(("log buckets", self.position_buckets, self.max_distance), find)

    def _rows_of_opposite_distance(self, positions: Positions) -> tuple[slice, Tensor]:
        """All rows, and indices (T, S) into them by the distance i - j."""
        k = self.clipping_distance

        def find() -> Tensor:
            if self.position_buckets is not None:
                return by_clamped_distance(self.bucket_rows, -positions.distances)
            return (-positions.distances).clamp(1 - k, k) + k - 1

        key = "opposite", k, self.position_buckets, self.max_distance
        return slice(0, len(self.relative_vectors)), positions.cache.get(key, find)
