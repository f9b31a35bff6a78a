"""Counts the parameters of an architecture, and those for positions, without data and without allocating the model."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from typing import Any

import pandas as pd
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_posenc.architectures import SIZES
from fairseq_posenc.arguments import PLACES, encodings_at
from fairseq_posenc.encodings import ENCODINGS
from fairseq_posenc.errors import FlagError
from fairseq_posenc.model import PositionTransformer
from posenc_experiments.base.errors import meant
from posenc_experiments.evaluation.tables.report import Report, Table
from posenc_experiments.experiment.fairseq_flags import read
from posenc_experiments.experiment.unallocated import build_unallocated

VOCABULARY = 32768
#: the parts of a model that have parameters for positions: self-attention of the encoder (with segments) and of the
#: decoder, attention between them, and the embeddings of both
PARTS = ("encoder", "decoder", "cross", "input")
NOTE = (
    "Position parameters of self-attention in encoder and decoder, of attention between them, and at the input; share: "
    "their part of the total, in %. Parameters that layers or embeddings share count once."
)


def describe(arch: str, flags: Sequence[str] = (), vocabulary: int = VOCABULARY) -> dict[str, Any]:
    """Counts the parameters of the model that fairseq-train would build.

    Args:
        arch: an architecture of this package.
        flags: further flags of fairseq-train.
        vocabulary: entries of each language's dictionary, fairseq's four special ones included.

    Returns:
        The architecture, the encodings of encoder and decoder, what `count` finds, the share of position parameters in
        the total, in %, and the vocabulary.

    Raises:
        FlagError: there is no such architecture, or no model can be built with these flags.
    """
    if not issubclass(ARCH_MODEL_REGISTRY.get(arch, object), PositionTransformer):
        raise FlagError(
            f"there is no architecture {arch!r} here{meant(arch, ARCH_MODEL_REGISTRY)}; it is "
            f"transformer_ENCODING_SIZE with ENCODING one of {', '.join(sorted(ENCODINGS))} and SIZE one of "
            f"{', '.join(SIZES)}."
        )
    try:
        args = Namespace(**read("train", ("no-data", *flags, "--arch", arch)))
        model = build_unallocated(args, vocabulary)
    except (ValueError, NotImplementedError) as error:
        raise FlagError(f"{arch}: {error}") from error
    encodings = {f"{place}_encoding": ",".join(c.name for c in encodings_at(args, place)) for place in PLACES}
    counts = count(model)
    share = 100 * sum(counts[part] for part in PARTS) / counts["total"]
    return {"arch": arch, **encodings, **counts, "share": share, "vocabulary": vocabulary}


def count(model: Any) -> dict[str, int]:
    """Counts the parameters for positions in each of PARTS, and in total all of a model of this package."""
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


def report(rows: Sequence[dict[str, Any]]) -> Report:
    """A report with one row for each model; all have the same vocabulary."""
    encodings = [dict.fromkeys(filter(None, (row[f"{place}_encoding"] for place in PLACES))) for row in rows]
    columns = {"architecture": [row["arch"] for row in rows], "encoding": list(map(", ".join, encodings))}
    columns |= {part: [f"{row[part]:,}" for row in rows] for part in (*PARTS, "total")}
    columns["share"] = [f"{row['share']:.3f}" for row in rows]
    assumed = f"The dictionary of each language is taken to have {rows[0]['vocabulary']:,} entries (--vocabulary)."
    return Report([Table(columns, [NOTE, assumed], left=2)], pd.DataFrame(rows))
