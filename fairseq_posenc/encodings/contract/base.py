"""The interface of a position encoding."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...errors import FlagError
from ...kernels.flex import ScoreMod, chained, dense_score_mod, flex_kernel
from ...masks import Masks, four_dimensions
from ...positions import Positions
from .gain import LearnedScalars, modules_with_scalars, resolve_gain
from .options import SHARED_BY_LAYERS, Option
from .segments import SegmentAttention
from .urpe import ToeplitzFactors

#: what the names of parameters of segments and URPE begin with, which are added to any encoding
ADDED = ("segments.", "urpe.")
#: attention's projection of its input to queries or keys, (..., H d) to (..., H d)
Projection = Callable[[Tensor], Tensor]


class PositionEncoding(LearnedScalars):
    """How position information enters attention. The hooks of this base class do nothing.

    Shapes: B batch, H heads, T queries, S keys, d head_dim. The queries are the last T of the S keys.

    Attention projects, splits heads, applies masks and dropout, and caches keys and values. An encoding reads the
    padding from ``positions.padding_mask``; it needs the padding only if it mixes keys. Only ``attend_with_flex``
    receives the masks, and ``bind_projections`` attention's projections. To compute a value once, use
    ``positions.cached`` (for one pass), ``cached_for_layers`` (for one pass, if layers share the encoding),
    ``prepare`` (for all blocks of queries) or ``positions.cached_for_generation`` (for all steps of a generation).

    A subclass lists its options in ``options`` and accepts them as keyword arguments with defaults; the default is None
    if it depends on num_heads or head_dim. A subclass with learned scalars in the logits lists them in ``scalars`` and
    reads them with ``effective``, so that ``--bias-gain`` applies. Checkpoints and experiments do not record options
    at their defaults. Therefore never change a default, and let the default of a new option keep the old behaviour.
    """

    #: what the architecture adds to the embeddings: "none", "sinusoidal" or "learned"
    input_positions: ClassVar[str] = "none"
    #: the encoding's own options, by the name of the constructor's keyword
    options: ClassVar[dict[str, Option]] = {}
    #: whether it supports cross-attention, where a distance is the source position minus the target position; it then
    #: overrides neither ``transform`` nor ``from_input``, since the source's keys and values are cached without them
    supports_cross_attention: ClassVar[bool] = False
    #: what attention reads of positions: "nothing", or only their order; "distances" between columns; "integers",
    #: positions that are rows of a table; or "reals", positions of any value. Decides which --position-augmentation is
    #: defined.
    reads: ClassVar[str] = "distances"
    #: whether attention changes if all positions are higher by the same number
    sees_shifts: ClassVar[bool] = False
    #: name of the encoding that replaces it in a decoder, if it has no causal form
    in_decoder: ClassVar[str | None] = None
    #: whether ``bias`` can compute a block of queries; otherwise a block is sliced from the bias of all queries
    bias_by_blocks: ClassVar[bool] = True
    #: version of the initial values, part of an experiment's identity: raise it when the same seed gives other values
    initial_values: ClassVar[int] = 1
    #: which position parameters are shared, one of SHARING
    position_sharing: str = "none"
    #: the registered name, set by :func:`.registry.register_encoding`
    name: ClassVar[str]

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        #: adds a bias for each pair of segments; None without segments
        self.segments: SegmentAttention | None = None
        #: multiplies the weights after the softmax; None without --urpe
        self.urpe: ToeplitzFactors | None = None

    @property
    def scaling(self) -> float:
        """The factor by which attention multiplies q."""
        return self.head_dim**-0.5

    @property
    def needs_weights(self) -> bool:
        """Whether the encoding needs the logits or the weights, so that the fused kernel cannot be used.

        An encoding that overrides ``context`` may return False if its options disable that hook.
        """
        return self.overrides("content") or self.overrides("context")

    @property
    def adds_bias(self) -> bool:
        """Whether a bias may be added to the content logits."""
        return self.segments is not None or self.overrides("bias")

    @property
    def multiplies_weights(self) -> bool:
        """Whether the weights are multiplied after the softmax, so that no fused kernel can be used."""
        return self.urpe is not None or self.overrides("factors")

    @property
    def changes_attention(self) -> bool:
        """Whether it changes attention at all; if not, the result must be bitwise equal to stock fairseq's."""
        return self.adds_bias or self.needs_weights or self.multiplies_weights or self.overrides("transform")

    @property
    def projects_length(self) -> bool:
        """Whether ``transform`` changes the number of keys.

        ``transform`` must then exclude padding, since masks of the original keys no longer apply.
        """
        return False

    @property
    def shared_by_layers(self) -> bool:
        """Whether one instance serves all layers of a stack."""
        return self.position_sharing in SHARED_BY_LAYERS

    def cached_for_layers(self, positions: Positions, make: Callable[[], Tensor]) -> Tensor:
        """``make()``, cached for this pass if all layers share this encoding."""
        return positions.cached(self, make, learned=True) if self.shared_by_layers else make()

    @property
    def needs_segments(self) -> bool:
        """Whether ``positions.segments`` must be given."""
        return self.segments is not None

    def add_segments(self, num_segments: int) -> None:
        """Adds segment attention: a learned bias for each pair of segments, in addition to the encoding's own bias.

        Raises:
            FlagError: the encoding does not support segments.
        """
        if self.projects_length:
            raise FlagError(
                f"{self.name} does not support segments, since it attends to mixtures of all keys: leave "
                "--segment-separator out."
            )
        self.segments = SegmentAttention(self.num_heads, num_segments)

    @classmethod
    def learns_scalars(cls, options: Mapping[str, Any]) -> bool:
        """Whether it has learned scalars in the logits with these options; options left out are at their defaults."""
        return bool(cls.scalars)

    @classmethod
    def supports_urpe(cls) -> bool:
        """Whether it adds a bias to the logits of single keys, so that it can be combined with URPE."""
        return cls.overrides("bias") and not cls.overrides("projects_length")

    def add_urpe(self) -> None:
        """Adds URPE: learned factors by distance on the weights.

        Raises:
            FlagError: the encoding adds no bias.
        """
        if not self.supports_urpe():
            raise FlagError(
                f"--urpe has no meaning for {self.name}, which adds no bias to the logits of single keys: leave it out."
            )
        self.urpe = ToeplitzFactors(self.num_heads)

    @property
    def has_scalars(self) -> bool:
        """Whether learned scalars act on the logits or weights, those of segments and URPE included."""
        return any(modules_with_scalars(self))

    def add_gain(self, bias_gain: float | str) -> None:
        """Sets the gain of all learned scalars without changing their initial effect.

        Args:
            bias_gain: a positive number, or "auto" for sqrt(head_dim).

        Raises:
            FlagError: the encoding has no learned scalars.
        """
        if not self.has_scalars:
            raise FlagError(
                f"--bias-gain has no meaning for {self.name}, which learns no scalars in attention: leave it out."
            )
        for _, module in modules_with_scalars(self):
            module.set_gain(resolve_gain(bias_gain, self.head_dim))

    def tie(self, first: PositionEncoding) -> None:
        """Replaces parameters by those of the first layer's encoding, if layers share only some parameters."""

    def bind_projections(self, query: Projection, key: Projection) -> None:
        """Receives attention's projections of queries and keys, to project the encoding's own vectors with them.

        Attention calls this at the start of each pass, so that the projections stay correct after the model is copied
        or a module is replaced. Call it once before ``attend`` to use an encoding without a model.

        An encoding must store the projections in a tuple, which nn.Module does not register: they belong to attention,
        so ``parameters`` and ``state_dict`` list them once, under attention's names, and moving the encoding to another
        device does not move them.
        """

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        """What was learned for every distance of ``positions.span``, as it acts, for analyses. By default nothing is.

        Returns:
            scalars (H or 1, distances) or vectors (H or 1, distances, width) by the name of their parameter, or by the
            names of several that act together, joined by ", ".
        """
        return {}

    @classmethod
    def idle_options(cls, given: Collection[str]) -> dict[str, str]:
        """The options that have no effect if only the options in ``given`` are set.

        Returns:
            by option, the reason as a clause that follows "has no meaning".
        """
        return {}

    @classmethod
    def overrides(cls, hook: str) -> bool:
        """Whether a subclass overrides this method."""
        return getattr(cls, hook) is not getattr(PositionEncoding, hook)

    def from_input(self, x: Tensor) -> Tensor | None:
        """What the encoding reads of each token from the layer's input (B, n, H d), (B, H, n, m); None if nothing.

        Attention caches it like keys, and the other hooks find that of all keys in ``positions.from_input``; the
        queries' part begins at ``positions.first``. Set padding to zero before a sum over keys. ``forget.py`` is an
        example.
        """
        return None

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        """Transforms q (B, H, T, d), k and v (B, H, S, d); q is not yet scaled.

        In incremental decoding k and v contain the new keys only; attention caches the result.
        """
        return q, k, v

    def recall(self, q: Tensor, k: Tensor, positions: Positions) -> tuple[Tensor, Tensor]:
        """Transforms q and all keys in each step of incremental decoding, after attention has cached the keys.

        Override it together with ``transform`` to cache less than attention reads.
        """
        return q, k

    def prepare(self, positions: Positions, dtype: torch.dtype) -> Any:
        """What ``bias`` reads from parameters for all queries at once; None if nothing is worth it.

        Called once for a pass that goes by blocks of queries, so that no block computes it again. In a block, ``bias``
        finds it in ``positions.prepared``, which is None elsewhere.
        """
        return None

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor | None:
        """The bias on the content logits, broadcastable to (B, H, T, S); q is scaled."""
        return None

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        """The content logits (B, H, T, S), to which attention adds bias and masks in place; q is scaled."""
        return q @ k.transpose(-2, -1)

    def factors(self, positions: Positions) -> Tensor | None:
        """What the weights are multiplied by after the softmax and before dropout, broadcastable to (B, H, T, S)."""
        return None if self.urpe is None else self.urpe(positions)

    def context(self, weights: Tensor, positions: Positions) -> Tensor | None:
        """A term added to ``weights @ v``, (B, H, T, d), from the weights (B, H, T, S) after dropout."""
        return None

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod | None:
        """The bias as a FlexAttention ``score_mod``; q is scaled.

        By default it reads from ``bias``, which takes memory for each pair of query and key; override it to save that
        memory.
        """
        bias = self.bias(q, k, positions)
        return None if bias is None else dense_score_mod(four_dimensions(bias))

    def attend_with_flex(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions, masks: Masks) -> Tensor:
        """Computes attention with FlexAttention, (B, H, T, d); q is scaled.

        An encoding that overrides ``context`` must override this method too, or attention refuses FlexAttention. An
        override must apply all masks and add the bias of segments; if the encoding needs the weights, it need not add
        that bias: attention refuses segments then.
        """
        score_mod = self.score_mod(q, k, positions) if self.overrides("bias") else None
        if self.segments is not None:
            score_mod = chained(score_mod, dense_score_mod(self.segments(positions).to(q.dtype)))
        return flex_kernel(q, k, v, positions, masks, score_mod)
