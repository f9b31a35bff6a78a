"""What a model has learned about positions, in attention and at the input, in the form that can be drawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from fairseq.modules import LearnedPositionalEmbedding
from torch import Tensor

from fairseq_posenc.attention.observing import Place
from fairseq_posenc.encodings import PositionEncoding
from fairseq_posenc.encodings.contract.base import ADDED
from fairseq_posenc.encodings.contract.gain import effective_parameters
from fairseq_posenc.encodings.shared.pairs import PairBias
from fairseq_posenc.positions import Positions

#: positions and distances that are reported: the first 64 positions, and distances below 64 on each side
LENGTH = 64
#: vectors are reported up to this distance on each side, since each is compared with each
FURTHEST_VECTOR = 32
#: a parameter with more numbers is reported by its norm alone
MOST_VALUES = 4096


def learned(encodings: Mapping[Place, PositionEncoding]) -> list[dict[str, Any]]:
    """Every position parameter in attention, with its gain; what layers share appears once, with None as its layer.

    A new encoding needs no code here: its parameters are found, and ``learned_by_distance`` says how to read them.
    """
    users = Counter(
        (stack, id(parameter)) for (stack, _), encoding in encodings.items() for parameter in encoding.parameters()
    )
    described: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}
    for (stack, layer), encoding in encodings.items():
        parameters = dict(encoding.named_parameters())
        for names, data in _described(encoding, goes_right=stack != "decoder"):
            # The parameters that make it; of a module inside the encoding, all of its parameters.
            made_of = tuple(id(parameters[name]) for name in names)
            shared = all(users[stack, parameter] > 1 for parameter in made_of)
            about = {"stack": stack, "layer": None if shared else layer, "name": ", ".join(names)}
            described.setdefault((stack, made_of), about | data)
    return list(described.values())


@torch.no_grad()
def learned_at_input(model: Any) -> list[dict[str, Any]]:
    """The learned position vectors at the input, with their gain, in the form of :func:`learned`; not sinusoids."""
    described: list[dict[str, Any]] = []
    for stack, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        if isinstance(part.embed_positions, LearnedPositionalEmbedding):
            ((name, table),) = effective_parameters(part.embed_positions)
            vectors = table[part.embed_positions.padding_idx + 1 :][:LENGTH]
            about = {"stack": stack, "layer": None, "name": f"embed_positions.{name}", "kind": "vectors by position"}
            described.append({**about, "positions": list(range(len(vectors))), **_compared(vectors[None])})
    return described


@torch.no_grad()
def _described(encoding: PositionEncoding, goes_right: bool) -> Iterator[tuple[list[str], dict[str, Any]]]:
    """The names of parameters, and what they are together.

    Args:
        goes_right: whether queries see keys to their right; where they do not, rows of those distances stay untrained.
    """
    length = min(LENGTH, getattr(encoding, "max_positions", LENGTH))
    device = next((parameter.device for parameter in encoding.parameters()), None)
    positions = Positions(length, length, device=device)
    parameters = dict(effective_parameters(encoding))
    described: list[str] = []
    if isinstance(encoding, PairBias):
        described = [name for name in parameters if not name.startswith(ADDED)]
        yield described, {"kind": "matrix", "heads": encoding.matrix(length, length).tolist()}
    by_distance = encoding.learned_by_distance(positions)
    if encoding.urpe is not None:
        by_distance["urpe.factors"] = encoding.urpe.by_distance(positions)
    for joined, values in by_distance.items():
        names = joined.split(", ")
        described = described + names
        yield names, _by_distance(positions.span, values, goes_right)
    for name, parameter in parameters.items():
        if name not in described:
            yield [name], _alone(parameter)


def _by_distance(distances: Tensor, values: Tensor, goes_right: bool) -> dict[str, Any]:
    """Scalars (H, distances), or vectors (H, distances, width), without the far distances at either end whose values
    are those of the nearer one (clipped). Norms and cosines of vectors are means over heads.
    """
    reported = torch.ones_like(distances, dtype=torch.bool) if goes_right else distances <= 0
    if values.dim() == 3:
        reported &= distances.abs() <= FURTHEST_VECTOR
    distances, values = distances[reported], values[:, reported]
    changes = (values[:, 1:] != values[:, :-1]).movedim(1, 0).flatten(1).any(1).nonzero()[:, 0].tolist()
    zero = distances.tolist().index(0)
    first, last = min([zero, *changes]), max([zero, *(place + 1 for place in changes)])
    distances, values = distances[first : last + 1], values[:, first : last + 1]
    if values.dim() == 2:
        return {"kind": "scalar by distance", "distances": distances.tolist(), "heads": values.tolist()}
    return {"kind": "vectors by distance", "distances": distances.tolist(), **_compared(values)}


def _compared(vectors: Tensor) -> dict[str, Any]:
    """The norms of vectors (H, n, width) and the cosine of each pair; means over heads."""
    directions = F.normalize(vectors, dim=-1)
    return {
        "norms": vectors.norm(dim=-1).mean(0).tolist(),
        "cosine": (directions @ directions.transpose(1, 2)).mean(0).tolist(),
    }


def _alone(parameter: Tensor) -> dict[str, Any]:
    if parameter.numel() <= MOST_VALUES:
        return {"kind": "scalars", "values": parameter.tolist()}
    return {"kind": "norm", "shape": list(parameter.shape), "norm": float(parameter.norm())}
