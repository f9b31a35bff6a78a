"""The contract of a position encoding: the hooks that attention calls, and what other parts read about it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from ...kernels.flex import ScoreMod, dense_score_mod
from ...masks import four_dimensions
from ...positions import Positions
from .gain import LearnedScalars
from .options import SHARED_BY_HEADS, SHARED_BY_LAYERS, Option
from .segments import SegmentAttention
from .urpe import ToeplitzFactors

#: what the names of parameters of segments and URPE begin with, which are added to any encoding
ADDED = ("segments.", "urpe.")
#: attention's projection of its input to queries or keys, (..., H d) to (..., H d)
Projection = Callable[[Tensor], Tensor]
#: those to queries and to keys
Projections = tuple[Projection, Projection]
#: the places where position information can enter attention, each a method of the encoding
Hook = Literal["read_layer", "transform", "bias", "content", "context"]


@dataclass(frozen=True)
class Facts:
    """What other parts read about a class of encodings.

    Args:
        input_positions: what the architecture adds to the embeddings: "none", "sinusoidal" or "learned".
        reads: what attention reads of positions, which decides what --position-augmentation is defined: "nothing", or
            only their order (nopos); "distances" between columns (shaw); "integers", rows of a table (diet_abs);
            "reals", positions of any value (sinusoidal_qk); or "differences" of such positions, so that a shift has no
            effect (rotary).
        supports_cross_attention: whether it supports cross-attention, where a distance is the source position minus
            the target position.
        projects_length: whether ``transform`` changes the number of keys. It must then exclude padding, since masks of
            the original keys no longer apply.
        in_decoder: name of the encoding that replaces it in a decoder, if it has no causal form.
        bias_by_blocks: whether ``bias`` can compute a block of queries; otherwise a block is sliced from the bias of
            all queries.
        initial_values: version of the initial values, part of an experiment's identity: raise it when the same seed
            gives other values.
        idle_options: the options that have no effect if only those of the collection are set, and the reason as a
            clause that follows "has no meaning".
    """

    input_positions: Literal["none", "sinusoidal", "learned"] = "none"
    reads: Literal["nothing", "distances", "integers", "reals", "differences"] = "distances"
    supports_cross_attention: bool = False
    projects_length: bool = False
    in_decoder: str | None = None
    bias_by_blocks: bool = True
    initial_values: int = 1
    idle_options: Callable[[Collection[str]], dict[str, str]] = lambda given: {}


class PositionEncoding(LearnedScalars):
    """How position information enters attention. The hooks of this base class change nothing.

    Shapes: B batch, H heads, T queries, S keys, d head_dim. In self-attention the queries are the last T of the S keys.

    Attention projects, splits heads, and caches keys and values. An encoding reads the padding from
    ``positions.padding_mask``; it needs the padding only if it mixes keys. To compute a value once, use
    ``positions.cache.get`` (for one pass), ``prepare`` (for all blocks of queries) or
    ``positions.cache.get_for_generation`` (for all steps of a generation).

    A subclass declares its options by :func:`.options.option`, takes them as keyword arguments and passes them to this
    constructor, which makes them attributes. A subclass with learned scalars in the logits lists them in ``scalars``
    and reads them with ``effective``, so that ``--bias-gain`` applies. Checkpoints and experiments do not record
    options at their defaults. Therefore never change a default, and let the default of a new option keep the old
    behaviour.
    """

    #: the hooks that attention calls: those that the class defines, less those that an instance's options do not need
    hooks: tuple[Hook, ...] = ()
    #: what other parts read about it
    facts: ClassVar[Facts] = Facts()
    #: the encoding's options, those of its bases included, by the name of the constructor's keyword
    options: ClassVar[dict[str, Option]] = {}
    #: the registered name, set by :func:`.registry.register_encoding`
    name: ClassVar[str]
    #: whether one instance serves all layers of a stack, or the names of the parameters that layers share
    shared_by_layers: bool | tuple[str, ...] = False
    #: whether ``positions.segments`` must be given
    needs_segments: bool = False

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "attend" in vars(cls):
            raise TypeError(f"{cls.__name__} defines attend, which attention does not call: define context or content.")
        hooks: tuple[Hook, ...] = get_args(Hook)
        cls.hooks = tuple(hook for hook in hooks if getattr(cls, hook) is not getattr(PositionEncoding, hook))
        cls.options = {}
        for base in reversed(cls.__bases__):
            cls.options |= getattr(base, "options", {})
        for attribute, option in list(vars(cls).items()):
            if isinstance(option, Option):
                cls.options[option.name or attribute] = replace(option, attribute=attribute)
                setattr(cls, attribute, option.default)

    def __init__(self, num_heads: int, head_dim: int, **options: Any) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        for name, value in options.items():
            if name not in self.options:
                raise TypeError(f"{type(self).__name__} has no option {name!r}.")
            setattr(self, self.options[name].attribute, value)
        if getattr(self, "position_sharing", None) in SHARED_BY_LAYERS:
            self.shared_by_layers = True
        #: adds a bias for each pair of segments; None without segments
        self.segments: SegmentAttention | None = None
        #: multiplies the weights after the softmax; None without --urpe
        self.urpe: ToeplitzFactors | None = None

    @property
    def scaling(self) -> float:
        """The factor by which attention multiplies q."""
        return self.head_dim**-0.5

    @property
    def table_heads(self) -> int:
        """The number of heads in a table of parameters: 1 if heads share it."""
        return 1 if getattr(self, "position_sharing", None) in SHARED_BY_HEADS else self.num_heads

    def learned_by_distance(self, positions: Positions) -> dict[str, Tensor]:
        """What was learned for every distance of ``positions.span``, as it acts, for analyses. By default nothing is.

        Returns:
            scalars (H or 1, distances) or vectors (H or 1, distances, width) by the name of their parameter, or by the
            names of several that act together, joined by ", ".
        """
        return {}

    def read_layer(self, x: Tensor, projections: Projections | None) -> Tensor | None:
        """Reads the layer's input x (B, n, H d) and attention's projections at the start of each pass.

        Between source and target, x is the encoder's output.

        An encoding that keeps the projections keeps them as this tuple, which nn.Module does not register: they belong
        to attention, which lists them in its own ``parameters`` and ``state_dict`` and moves them to another device.

        Returns:
            what is read of each token, (B, H, n, m), or None. Attention caches it like keys, and gives that of all keys
            to ``bias`` and ``score_mod`` as the argument ``from_input``, where the queries' part begins at
            ``positions.first``. Set padding to zero before a sum over keys.
        """
        return None

    def transform(self, q: Tensor, k: Tensor, v: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Tensor]:
        """Transforms q (B, H, T, d), k and v (B, H, S, d); q is not yet scaled.

        In incremental decoding k and v contain the new keys only; attention caches the result. Between source and
        target, the later steps have no new keys (length 0).
        """
        return q, k, v

    def prepare(self, positions: Positions, dtype: torch.dtype) -> Any:
        """What ``bias`` reads from parameters for all queries at once; None if nothing is worth it.

        Called once for a pass that goes by blocks of queries, so that no block computes it again. A block gives it to
        ``bias`` as the argument ``prepared``.
        """
        return None

    def bias(self, q: Tensor, k: Tensor, positions: Positions, *args: Any, **given: Any) -> Tensor | None:
        """The bias on the content logits, broadcastable to (B, H, T, S); q is scaled.

        An encoding takes ``from_input`` if its ``read_layer`` returns something, and ``prepared`` if its ``prepare``
        does.
        """
        return None

    def score_mod(self, q: Tensor, k: Tensor, positions: Positions, *args: Any, **given: Any) -> ScoreMod | None:
        """The bias as a FlexAttention ``score_mod``, with the arguments of ``bias``; q is scaled.

        By default it reads from ``bias``, which takes memory for each pair of query and key; override it to save that
        memory.
        """
        bias = self.bias(q, k, positions, *args, **given)
        return None if bias is None else dense_score_mod(four_dimensions(bias))

    def content(self, q: Tensor, k: Tensor, positions: Positions) -> Tensor:
        """The content logits (B, H, T, S), to which attention adds bias and masks in place; q is scaled."""
        return q @ k.transpose(-2, -1)

    def needs_logits(self, positions: Positions | None = None) -> bool:
        """Whether a pass needs the logits or the weights, so that no fused kernel computes them.

        Args:
            positions: of the pass; None for a full pass.
        """
        return "content" in self.hooks or "context" in self.hooks

    def context(self, weights: Tensor, positions: Positions) -> Tensor:
        """What is added to the weighted sum of the values, (B, H, T, d); weights (B, H, T, S) are after dropout."""
        raise NotImplementedError

    @property
    def adds_bias(self) -> bool:
        """Whether a bias may be added to the content logits, with some options of the class."""
        return self.segments is not None or "bias" in type(self).hooks

    @property
    def changes_attention(self) -> bool:
        """Whether its class changes attention; if not, the result must be bitwise equal to stock fairseq's."""
        return bool(type(self).hooks) or self.segments is not None or self.urpe is not None
