"""The contract of a position encoding."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar

from torch import Tensor

from ..attention.flex_kernel import ScoreMod, chained, dense_score_mod, flex_kernel
from ..attention.masks import Masks, four_dimensions
from ..attention.positions import Positions
from ..errors import FlagError
from .options import SHARED_BY_LAYERS, Option
from .shared.gain import LearnedScalars, modules_with_scalars, resolve_gain
from .shared.segments import SegmentAttention

#: attention's projection of words to queries or keys, (..., H d) to (..., H d)
Projection = Callable[[Tensor], Tensor]


class PositionEncoding(LearnedScalars):
    """Where and how position information enters attention. Every hook is a no-op here.

    B is batch, H heads, T queries, S keys, d head_dim. Queries are the last T of the S keys.

    Attention projects, splits heads, applies masks and dropout, and caches keys and values. An encoding sees the
    padding, as ``positions.padding_mask``, and needs it only if it mixes keys. It sees the masks in one hook,
    ``attend_with_flex``, and attention's projections if it takes them in ``bind_projections``. What layers or steps
    need again it computes in ``positions.cached`` (one pass), ``cached_for_layers`` (one pass, if layers share the
    encoding) or ``positions.cached_for_generation`` (all steps of a generation).

    A subclass names its options in ``options`` and takes them as keyword arguments with defaults; an option whose
    default depends on num_heads and head_dim defaults to None. If learned scalars act on the logits, it names them in
    ``scalars`` and reads them with ``effective``, for ``--bias-gain``. Checkpoints and experiments record no option at
    its default: a default never changes, and that of a new option is what was computed without it.
    """

    #: what the architecture adds to the embeddings: "none", "sinusoidal" or "learned"
    input_positions: ClassVar[str] = "none"
    #: the encoding's own options, by the name of the constructor's keyword
    options: ClassVar[dict[str, Option]] = {}
    #: whether it is defined in cross-attention, where a distance is the source position minus the target position
    supports_cross_attention: ClassVar[bool] = False
    #: the encoding that replaces it in a decoder, if it is not defined there
    in_decoder: ClassVar[str | None] = None
    #: whether the bias of a block of queries is computed for the block; else it is sliced from the bias of all queries
    bias_by_blocks: ClassVar[bool] = True
    #: the version of its initial values, part of an experiment's identity: raise it when the same seed gives others
    initial_values: ClassVar[int] = 1
    #: which position parameters are shared, one of SHARING
    position_sharing: str = "none"
    #: the registered name, set by :func:`.registry.register_encoding`
    name: ClassVar[str]

    def __init__(self, num_heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        #: adds its bias to the encoding's where segments are told apart
        self.segments: SegmentAttention | None = None

    @property
    def scaling(self) -> float:
        """The factor on q."""
        return self.head_dim**-0.5

    @property
    def needs_weights(self) -> bool:
        """Whether the logits or the weights themselves are needed, so that no fused kernel can be used. An encoding
        that overrides ``context`` may return False if its options leave that out.
        """
        return self.overrides("content") or self.overrides("context")

    @property
    def adds_bias(self) -> bool:
        """Whether anything may be added to the content logits."""
        return self.segments is not None or self.overrides("bias")

    @property
    def projects_length(self) -> bool:
        """Whether ``transform`` changes the number of keys. Masks of the old keys then have no meaning, and
        ``transform`` leaves padding out.
        """
        return False

    @property
    def shared_by_layers(self) -> bool:
        """Whether one instance serves all layers of a stack."""
        return self.position_sharing in SHARED_BY_LAYERS

    def cached_for_layers(self, positions: Positions, make: Callable[[], Tensor]) -> Tensor:
        """``make()``, cached for this pass if all layers share this encoding; else not cached."""
        return positions.cached(self, make, learned=True) if self.shared_by_layers else make()

    @property
    def needs_segments(self) -> bool:
        """Whether it must be told the segments of tokens."""
        return self.segments is not None

    def add_segments(self, num_segments: int) -> None:
        """Tells ``num_segments`` segments apart, by a bias that is added to the encoding's own.

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
        """Takes from the first layer's encoding the parameters that all layers share, if they share only a part."""

    def bind_projections(self, query: Projection, key: Projection) -> None:
        """Takes attention's projections of queries and keys, for an encoding that projects its own vectors with them.

        Attention calls this at the start of each pass, so they are also right after the model was copied or a module
        replaced. To run an encoding alone, call it once before ``attend``. The projections stay the caller's: an
        encoding stores them in a tuple, which nn.Module does not register, so ``parameters`` and ``state_dict`` hold
        them once, under attention's names, and moving the encoding does not move them.
        """

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        """What was learned for every distance of ``positions.span``, as it acts, for analyses: by the names of its
        parameters, scalars (H or 1, distances) or vectors (H or 1, distances, width). By default nothing is.
        """
        return {}

    @classmethod
    def idle_options(cls, given: Collection[str]) -> dict[str, str]:
        """Options without effect if only those in ``given`` are set, each with the reason, as it follows "has no
        meaning".
        """
        return {}

    def overrides(self, hook: str) -> bool:
        return getattr(type(self), hook) is not getattr(PositionEncoding, hook)

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        """New q (B, H, T, d), k and v (B, H, S, d); q is not yet scaled. In cached decoding k and v are those of the
        last keys alone; attention caches what this returns.
        """
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

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions) -> ScoreMod | None:
        """The bias as FlexAttention takes it, a function of one logit; q is scaled. By default it reads the whole bias,
        one number for each query and key: an encoding that can do with less memory overrides it.
        """
        bias = self.bias(q, k, positions)
        return None if bias is None else dense_score_mod(four_dimensions(bias))

    def attend_with_flex(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions, masks: Masks) -> Tensor:
        """The output of attention by FlexAttention, (B, H, T, d); q is scaled. An encoding that overrides ``context``
        must override this too, and handle all masks.
        """
        score_mod = self.score_mod(q, k, positions) if self.overrides("bias") else None
        if self.segments is not None:
            score_mod = chained(score_mod, dense_score_mod(self.segments(positions).to(q.dtype)))
        return flex_kernel(q, k, v, positions, masks, score_mod)[0]
