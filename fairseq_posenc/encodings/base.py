"""The contract of a position encoding."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from torch import Tensor

from ..attention import flex_kernel as flex
from ..attention.masks import Masks, four_dimensions
from ..attention.positions import Positions
from ..errors import FlagError
from .options import SHARED_BY_LAYERS, Option
from .shared.gain import LearnedScalars, modules_with_scalars, resolve_gain
from .shared.segments import SegmentAttention

#: how attention makes queries or keys of the words' vectors, (..., H d) of (..., H d)
Projection = Callable[[Tensor], Tensor]


class PositionEncoding(LearnedScalars):
    """Where and how position information enters attention. Every hook is a no-op here.

    B is batch, H heads, T queries, S keys, d head_dim. Queries are the last T of the S keys. Masks, dropout, cache and
    projections stay in attention; an encoding never sees them, unless it asks for the projections
    (``bind_projections``).

    A subclass names its options in ``options`` and takes them as keyword arguments with defaults; an option whose
    default depends on num_heads and head_dim defaults to None. If learned scalars act on the logits, it names them in
    ``scalars`` and reads them by ``effective``, for ``--bias-gain``. Checkpoints and experiments record no option that
    stands at its default, so a default never changes, and that of a new option is what was computed without it.
    """

    #: what the architecture adds to the embeddings: "none", "sinusoidal" or "learned"
    input_positions: ClassVar[str] = "none"
    #: the encoding's own options, by the name of the constructor's keyword
    options: ClassVar[dict[str, Option]] = {}
    #: whether it may stand in encoder-decoder attention too, where a distance is source less target position
    crosses: ClassVar[bool] = False
    #: the encoding that takes its place in a decoder, where this one is not defined
    in_decoder: ClassVar[str | None] = None
    #: whether the bias of a part of the queries is better made for itself than cut out of that of all
    bias_by_blocks: ClassVar[bool] = True
    #: the version of its initial values, part of what tells experiments apart: raise it when the same seed gives others
    initial_values: ClassVar[int] = 1
    #: which position parameters are shared, one of SHARING
    position_sharing: str = "none"
    #: the registered name, set by :func:`register_encoding`
    name: ClassVar[str]

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        #: joins the bias where segments are told apart
        self.segments: SegmentAttention | None = None

    @property
    def scaling(self) -> float:
        """The factor on q."""
        return self.head_dim**-0.5

    @property
    def needs_weights(self) -> bool:
        """Whether the logits or the weights themselves are needed, so that no fused kernel can be used. An encoding
        that overrides ``context`` may say no where its options leave that out."""
        return self.overrides("content") or self.overrides("context")

    @property
    def adds_bias(self) -> bool:
        """Whether anything may be added to the content logits."""
        return self.segments is not None or self.overrides("bias")

    @property
    def projects_length(self) -> bool:
        """Whether ``transform`` replaces the keys by others of another number: masks of the old keys then have no
        meaning, and padding is for ``transform`` to leave out."""
        return False

    @property
    def shared_by_layers(self) -> bool:
        """Whether one instance serves all layers of a stack."""
        return self.position_sharing in SHARED_BY_LAYERS

    def once_for_layers(self, positions: Positions, make: Callable[[], Tensor]) -> Tensor:
        """``make()``, computed once a pass where all layers share this encoding; else kept by nobody."""
        return positions.once(self, make) if self.shared_by_layers else make()

    @property
    def needs_segments(self) -> bool:
        """Whether it must be told the segments of tokens."""
        return self.segments is not None

    def add_segments(self, num_segments: int) -> None:
        """Tells as many segments apart, by a bias that joins the encoding's own.

        Raises:
            ValueError: the encoding cannot.
        """
        if self.projects_length:
            raise FlagError(
                f"{self.name} cannot have segments: what it attends to are mixtures of all keys, which lie in no "
                "segment; leave out --segment-separator."
            )
        self.segments = SegmentAttention(self.num_heads, num_segments)

    @property
    def has_scalars(self) -> bool:
        """Whether its logits get learned scalars, those of segments included."""
        return any(modules_with_scalars(self))

    def add_gain(self, bias_gain: float | str) -> None:
        """Puts a gain on all learned scalars, those of segments included, whose initial values then mean the same.

        Args:
            bias_gain: a positive number, or "auto" for sqrt(head_dim).

        Raises:
            ValueError: there are none.
        """
        if not self.has_scalars:
            raise FlagError(
                f"--bias-gain has no meaning for {self.name}, which learns no scalars in attention: leave it out."
            )
        for _, module in modules_with_scalars(self):
            module.set_gain(resolve_gain(bias_gain, self.head_dim))

    def tie(self, first: PositionEncoding) -> None:
        """Takes over from the first layer's encoding what all layers have in common, where only a part is."""

    def bind_projections(self, query: Projection, key: Projection) -> None:
        """Attention's own projections of queries and keys, for an encoding that projects vectors of its own by them.

        Attention calls this at the start of each pass, so that they are right after a copy of the model or a change of
        modules too. To run an encoding alone, call it once before ``attend``. The projections stay the caller's: an
        encoding keeps them in a tuple, where nn.Module does not look, so that ``parameters`` and ``state_dict`` have
        them once, under attention's names, and moving the encoding does not move them."""

    @classmethod
    def idle_options(cls, given: Collection[str]) -> dict[str, str]:
        """Options that do nothing where just those of ``given`` are given, each with why, as it follows "has no
        meaning"."""
        return {}

    def overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        """New q (B, H, T, d), k and v (B, H, S, d); q not yet scaled. In a step of cached decoding k and v are of the
        last keys alone: what it makes of the others is kept."""
        return q, k, v

    def bias(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor | None:
        """What is added to the scaled content logits, broadcastable to (B, H, T, S); q is scaled."""
        return None

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        """The content logits (B, H, T, S), to which bias and masks are then added in place; q is scaled."""
        return q @ k.transpose(-2, -1)

    def context(self, weights: Tensor, positions: Positions) -> Tensor | None:
        """What is added to ``weights @ v``, (B, H, T, d); weights (B, H, T, S) have been through dropout."""
        return None

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> flex.ScoreMod | None:
        """The bias as FlexAttention wants it, a function of one logit; q is scaled. By default it reads the whole bias,
        of as many numbers as there are pairs: an encoding that can do with less overrides it."""
        bias = self.bias(q, k, positions)
        return None if bias is None else flex.dense_score_mod(four_dimensions(bias))

    def flex(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions, masks: Masks) -> Tensor:
        """Attention by FlexAttention, (B, H, T, d); q is scaled. An encoding that overrides ``context`` must override
        it."""
        score_mod = self.score_mod(q, k, positions) if self.overrides("bias") else None
        if self.segments is not None:
            score_mod = flex.both(score_mod, flex.dense_score_mod(self.segments(positions).to(q.dtype)))
        return flex.kernel(q, k, v, positions, masks, score_mod)[0]
