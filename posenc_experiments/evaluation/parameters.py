"""Counts the parameters of an architecture, and those for positions, without data and without allocating the model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.architectures import SIZES
from fairseq_posenc.arguments import SIDES, encoding_of
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.model import PositionTransformer
from posenc_experiments.evaluation.report import Report, Table
from posenc_experiments.experiment.fairseq_flags import read
from posenc_experiments.experiment.unallocated import build_unallocated

VOCABULARY = 32768
#: the parts of a model that position parameters are counted in, and the whole
PARTS = ("encoder", "decoder", "cross", "input", "total")
NOTE = (
    "Position parameters of self-attention in encoder and decoder, of attention between them, and at the input; share: "
    "their part of the total, in %. Parameters that layers or embeddings share count once."
)


@dataclass(frozen=True)
class Description:
    """Numbers of parameters of one model; shared tensors count once."""

    arch: str
    #: the encodings of the encoder and of the decoder
    source_encoding: str
    target_encoding: str
    #: position parameters in the encoder's self-attention, segments included
    encoder: int
    #: in the decoder's self-attention
    decoder: int
    #: in encoder-decoder attention
    cross: int
    #: added to the embeddings of both stacks
    input: int
    #: all parameters of the model, for positions or not
    total: int

    @property
    def positions(self) -> int:
        return self.encoder + self.decoder + self.cross + self.input

    @property
    def share(self) -> float:
        """Position parameters in % of the total."""
        return 100 * self.positions / self.total

    @property
    def encoding(self) -> str:
        """The encodings of encoder and decoder, or one if both are the same."""
        return ", ".join(dict.fromkeys((self.source_encoding, self.target_encoding)))


def describe(arch: str, flags: Sequence[str] = (), vocabulary: int = VOCABULARY) -> Description:
    """Counts the parameters of the model that fairseq-train would build.

    Args:
        arch: an architecture of this package.
        flags: further flags of fairseq-train.
        vocabulary: entries of each language's dictionary, fairseq's four special ones included.

    Raises:
        FlagError: there is no such architecture, or no model can be built with these flags.
    """
    if not issubclass(ARCH_MODEL_REGISTRY.get(arch, object), PositionTransformer):
        raise FlagError(
            f"there is no architecture {arch!r} here; it is transformer_ENCODING_SIZE with ENCODING one of "
            f"{', '.join(sorted(ENCODINGS))} and SIZE one of {', '.join(SIZES)}."
        )
    try:
        args = Namespace(**read("train", ("no-data", *flags, "--arch", arch)))
        model = build_unallocated(args, vocabulary)
    except (ValueError, NotImplementedError) as error:
        raise FlagError(f"{arch}: {error}") from error
    source, target = (encoding_of(args, side) for side in SIDES)
    return Description(arch=arch, source_encoding=source, target_encoding=target, **count(model))


def count(model: Any) -> dict[str, int]:
    """Counts all parameters of a model of this package, and those for positions in each part of it."""
    # named_parameters lists a shared parameter once.
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}

    def inside(stack: str, part: str) -> int:
        return sum(size for name, size in sizes.items() if name.startswith(f"{stack}.") and f".{part}." in name)

    return {
        "encoder": inside("encoder", "self_attn.position_encoding"),
        "decoder": inside("decoder", "self_attn.position_encoding"),
        "cross": inside("decoder", "encoder_attn.position_encoding"),
        "input": inside("encoder", "embed_positions") + inside("decoder", "embed_positions"),
        "total": sum(sizes.values()),
    }


def report(rows: Sequence[Description]) -> Report:
    """A report with one row for each model."""
    columns = {"architecture": [row.arch for row in rows], "encoding": [row.encoding for row in rows]}
    columns |= {part: [f"{getattr(row, part):,}" for row in rows] for part in PARTS}
    columns["share"] = [f"{row.share:.3f}" for row in rows]
    data = pd.DataFrame([{**asdict(row), "share": row.share} for row in rows])
    return Report([Table(columns, [NOTE], left=2)], data)
