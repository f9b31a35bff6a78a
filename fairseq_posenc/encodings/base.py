"""The contract of a position encoding, and the registry in which one is a single row."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from .. import flex
from ..errors import FlagError
from ..masks import Masks, four_dimensions
from ..positions import Positions
from .gain import LearnedScalars, modules_with_scalars, parse_gain, resolve_gain
from .segments import SegmentAttention


@dataclass(frozen=True)
class Option:
    """One option of an encoding: a keyword of its constructor and, unless the model decides it, a flag of
    fairseq-train."""

    parse: Callable[[Any], Any]
    help: str
    choices: tuple[Any, ...] | None = None
    #: whether it is a flag; else the model sets it, from the place where the attention stands
    is_flag: bool = True


def parse_bool(text: Any) -> bool:
    """true or false, as typed on a command line or in YAML."""
    try:
        return {"true": True, "false": False}[str(text).lower()]
    except KeyError:
        raise ValueError(f"say true or false, not {text!r}") from None


def integer(value: Any) -> int:
    """A whole number, as typed on a command line or in YAML."""
    try:
        return int(str(value))  # of 4.5 or True, int() itself would make a number
    except ValueError:
        raise ValueError(f"say a whole number, not {value!r}") from None


def positive_integer(value: Any) -> int:
    """A whole number of things of which there must be one at least."""
    number = integer(value)
    if number < 1:
        raise ValueError(f"it must be 1 or more, not {number}")
    return number


#: how attention makes queries or keys of the words' vectors, (..., H d) of (..., H d)
Projection = Callable[[Tensor], Tensor]

SHARING = ("none", "head", "layer", "all")
SHARED_BY_LAYERS = ("layer", "all")

# Notions that several encodings have; one flag each, with one meaning.
CLIPPING_DISTANCE = Option(integer, "distances beyond K are clipped to K (Shaw et al.'s k); 0 means no order")
POSITION_SHARING = Option(
    str,
    "which position parameters are shared: none (own ones for each layer and head), head (one table for the heads of "
    "a layer), layer (one table for all layers of a stack, own rows for each head), all (one for a stack); encoder and "
    "decoder never share",
    SHARING,
)
NUM_BUCKETS = Option(integer, "buckets of distances; both directions together in the encoder")
MAX_DISTANCE = Option(integer, "distances from here on share the last bucket")

DEFAULT_NUM_SEGMENTS = 2
NUM_SEGMENTS = Option(
    positive_integer,
    f"segments that are told apart, {DEFAULT_NUM_SEGMENTS} by default; later ones count as the last",
)
BIAS_GAIN = Option(
    parse_gain,
    "a constant factor G on the learned scalars of the logits and on learned input positions, a positive number or "
    "auto, the square root of a head's width for those and of the embeddings' width for these; 1 by default, as in the "
    "papers; only the speed of learning changes",
)

# What an encoding may have to know of the place where it stands; the model says it, not the user.
BIDIRECTIONAL = Option(parse_bool, "whether queries see keys after them: not in a decoder", is_flag=False)
MAX_POSITIONS = Option(
    positive_integer, "longest sequence: --max-source-positions or --max-target-positions of the model", is_flag=False
)


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


ENCODINGS: dict[str, type[PositionEncoding]] = {}


def register_encoding(name: str) -> Callable[[type[PositionEncoding]], type[PositionEncoding]]:
    """Class decorator: makes an encoding available under ``name``, and with it its architectures and flags.

    Raises:
        ValueError: the name is taken, the class is no PositionEncoding, or its options are not keywords with defaults.
    """

    def register(cls: type[PositionEncoding]) -> type[PositionEncoding]:
        if name in ENCODINGS:
            raise ValueError(f"the encoding {name!r} is registered already, by {ENCODINGS[name].__name__}.")
        if not (isinstance(cls, type) and issubclass(cls, PositionEncoding)):
            raise ValueError(f"{cls!r} must derive from PositionEncoding to be registered as {name!r}.")
        if set(default_options(cls)) != set(cls.options):
            raise ValueError(
                f"{cls.__name__}.options must name exactly the keywords with defaults of its constructor, "
                f"{sorted(default_options(cls))}."
            )
        for option, meaning in cls.options.items():
            if known_options().get(option, meaning) != meaning:
                raise ValueError(f"the option {option!r} of {name!r} has another meaning in another encoding.")
        cls.name = name
        ENCODINGS[name] = cls
        return cls

    return register


def known_options() -> dict[str, Option]:
    """Every option of every registered encoding."""
    return {name: option for cls in ENCODINGS.values() for name, option in cls.options.items()}


def flags_of(options: dict[str, Option]) -> dict[str, Option]:
    """Those that a user types."""
    return {name: option for name, option in options.items() if option.is_flag}


def default_options(cls: type[PositionEncoding]) -> dict[str, Any]:
    """The defaults of an encoding's options, read from its constructor."""
    parameters = inspect.signature(cls).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}


def flag(option: str) -> str:
    """The option as it is typed: ``clipping_distance`` is ``--clipping-distance``."""
    return "--" + option.replace("_", "-")


def spelled(name: str, option: Option) -> str:
    """An option as the user knows it: a flag, or a keyword of the constructor alone."""
    return flag(name) if option.is_flag else name


def parse_option(name: str, option: Option, value: Any) -> Any:
    """The value of an option as it was typed.

    Raises:
        ValueError: it is none.
    """
    try:
        parsed = option.parse(value)
    except (TypeError, ValueError) as error:
        raise FlagError(f"{spelled(name, option)} {value!r}: {error}") from None
    if option.choices and parsed not in option.choices:
        raise FlagError(f"{flag(name)} must be one of {', '.join(option.choices)}, not {value!r}.")
    return parsed


def find_encoding(name: str) -> type[PositionEncoding]:
    """The class registered as ``name``.

    Raises:
        ValueError: there is none.
    """
    if name not in ENCODINGS:
        raise FlagError(f"there is no position encoding {name!r}; there are {', '.join(sorted(ENCODINGS))}.")
    return ENCODINGS[name]


def build_encoding(
    name: str,
    num_heads: int,
    head_dim: int,
    num_segments: int | None = None,
    bias_gain: float | str | None = None,
    **options: Any,
) -> PositionEncoding:
    """An encoding of its own, outside any model.

    Args:
        name: as registered, for example "shaw".
        num_heads: H.
        head_dim: d, the width of one head.
        num_segments: adds segment attention between as many segments.
        bias_gain: a positive factor on learned scalars, or "auto" for sqrt(head_dim); 1 by default.
        options: the encoding's options; the others keep their defaults.

    Raises:
        ValueError: no such encoding or option, or a value out of range.
    """
    cls = find_encoding(name)
    values = {}
    for option, value in options.items():
        if option not in cls.options:
            own = ", ".join(spelled(name, option) for name, option in cls.options.items()) or "none"
            raise FlagError(f"{name} has no option {flag(option)} (its options: {own}); leave it out.")
        if value is not None:
            values[option] = parse_option(option, cls.options[option], value)
    for option, reason in cls.idle_options(values).items():
        if option in values:
            raise FlagError(f"{flag(option)} has no meaning for {name} {reason}: leave it out.")
    encoding = cls(num_heads, head_dim, **values)
    if num_segments is not None:
        encoding.add_segments(parse_option("num_segments", NUM_SEGMENTS, num_segments))
    if bias_gain is not None:
        encoding.add_gain(parse_option("bias_gain", BIAS_GAIN, bias_gain))
    return encoding


def table_heads(num_heads: int, position_sharing: str) -> int:
    """Rows of heads in a table: one for each head, or one for all under "head" and "all"."""
    return 1 if position_sharing in ("head", "all") else num_heads


def check_length(encoding: PositionEncoding, length: int, max_positions: int) -> None:
    """Refuses a sequence longer than the encoding's tables.

    Raises:
        ValueError: it is.
    """
    if length > max_positions:
        raise FlagError(
            f"{encoding.name} was built for sequences of at most {max_positions} positions, not {length}: build it "
            "with a larger max_positions (of a model: --max-source-positions, --max-target-positions) or split the "
            "sequence."
        )
