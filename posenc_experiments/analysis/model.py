"""What one trained model does with positions, on real sentences: attention, what it has learned, and the shift test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from torch import Tensor
from tqdm import tqdm  # type: ignore[import-untyped]

from fairseq_posenc.attention.module import PositionAttention
from fairseq_posenc.attention.observing import Observed, Place, attentions, observing, real_tokens
from fairseq_posenc.errors import brief
from fairseq_posenc.trained import Trained, load_trained
from posenc_experiments.analysis.attention import LayerStatistics
from posenc_experiments.analysis.learned import learned, learned_at_input
from posenc_experiments.analysis.shift import ShiftTest, forced
from posenc_experiments.base.errors import RecipeError

#: source or target tokens in a batch, padding included
BATCH_TOKENS = 1000
STACKS = ("encoder", "decoder", "cross")


def analyse_model(
    checkpoint: Path, binarized: Path, subset: str = "test", sentences: int | None = None, cpu: bool = False
) -> dict[str, Any]:
    """Analyses a checkpoint of this package on pairs of a binarized subset, with the references as the decoder's input.

    Memory does not grow with the number of sentences.

    Args:
        checkpoint: trained or averaged.
        binarized: the directory of fairseq-preprocess, with the dictionaries.
        subset: such as "test" or "valid".
        sentences: how many, spread evenly over the subset; all by default.
        cpu: whether the model computes on the CPU even where there is a GPU.

    Returns:
        figures that JSON can hold, with 6 significant digits.

    Raises:
        CheckpointError: the checkpoint cannot be used, or does not fit the dictionaries.
        RecipeError: the subset cannot be used.
    """
    trained = load_trained(checkpoint, binarized, cpu=cpu)
    try:
        trained.task.load_dataset(subset)
    except Exception as error:  # of many kinds, by what is missing or cut off
        raise RecipeError(
            f"{binarized}: the subset {subset!r} cannot be read ({brief(error)}): binarize it with fairseq-preprocess."
        ) from None
    dataset = trained.task.dataset(subset)
    chosen, skipped = _choose(trained, dataset, sentences)
    if not len(chosen):
        raise RecipeError(f"{binarized}: {subset} has no sentence that {checkpoint} can take: name another subset.")
    figures = json.dumps(_analyse(trained, dataset, chosen) | {"skipped": skipped})
    return dict(json.loads(figures, parse_float=lambda text: float(f"{float(text):.6g}")))


@torch.no_grad()
def _analyse(trained: Trained, dataset: Any, chosen: np.ndarray) -> dict[str, Any]:
    model = trained.model
    modules = attentions(model)
    encodings = {place: m.position_encoding for place, m in modules.items() if isinstance(m, PositionAttention)}
    layers = {
        (stack, number): LayerStatistics(
            module.num_heads,
            keys_are_words=not ((stack, number) in encodings and encodings[stack, number].facts.projects_length),
            is_bidirectional=stack == "encoder",
        )
        for (stack, number), module in modules.items()
    }
    shift = ShiftTest(model)
    tokens = {"source": 0, "target": 0}
    for numbers in tqdm(_batches(dataset, chosen), unit="batch", leave=False, disable=None):
        inputs = dataset.collater([dataset[number] for number in numbers])["net_input"]
        inputs = {name: tensor.to(trained.device) for name, tensor in inputs.items()}
        real = real_tokens(model, inputs)
        target_is_real, source_is_real = real["cross"]

        def see(place: Place, seen: Observed, real: dict[str, tuple[Tensor, Tensor]] = real) -> None:
            add_sentences(layers[place], seen, *real[place[0]])

        with observing(modules, see):
            output = forced(model, inputs)
        shift.add(inputs, output, source_is_real, target_is_real)
        tokens["source"] += int(source_is_real.sum())
        tokens["target"] += int(target_is_real.sum())
    stacks = {stack: [layers[place] for place in layers if place[0] == stack] for stack in STACKS}
    return {
        "sentences": len(chosen),
        "tokens": tokens,
        "attention": {stack: [layer.attention() for layer in own] for stack, own in stacks.items()},
        "position_logits": {stack: [layer.position_logits() for layer in own] for stack, own in stacks.items()},
        "learned": [*learned_at_input(model), *learned(encodings)],
        "shift": shift.result(),
    }


def add_sentences(layer: LayerStatistics, observed: Observed, queries: Tensor, keys: Tensor) -> None:
    """Adds each sentence of a batch without its padding; ``queries`` (B, T) and ``keys`` (B, S) are the real ones.

    Figures are computed on the CPU: they take many small steps.
    """
    shape = observed.logits.shape
    seen = torch.ones(shape[2:], dtype=torch.bool) if observed.forbidden is None else ~observed.forbidden
    seen = seen.expand(shape[0], 1, *shape[2:])
    tensors = [tensor.cpu() for tensor in (observed.shares, observed.logits, observed.content, seen)]
    keys = keys.cpu() if layer.keys_are_words else torch.ones(shape[0], shape[3], dtype=torch.bool)
    for rows, columns, sentence in zip(queries.cpu(), keys, zip(*tensors, strict=True), strict=True):
        shares, logits, content, visible = (tensor[:, rows][:, :, columns] for tensor in sentence)
        layer.add(shares, logits, content, visible[0])


def _choose(trained: Trained, dataset: Any, sentences: int | None) -> tuple[np.ndarray, int]:
    """Numbers of pairs, spread evenly over those that the model can take; and how many pairs it cannot."""
    most_source, most_target = trained.model.max_positions()
    taken = np.flatnonzero((dataset.src_sizes <= most_source) & (dataset.tgt_sizes <= most_target))
    skipped = len(dataset) - len(taken)
    if sentences is not None and sentences < len(taken):
        taken = taken[np.arange(sentences) * len(taken) // sentences]
    return taken, skipped


def _batches(dataset: Any, chosen: np.ndarray) -> list[np.ndarray]:
    """Numbers of pairs of about one length."""
    longer = np.maximum(dataset.src_sizes, dataset.tgt_sizes)
    order = chosen[np.lexsort((dataset.src_sizes[chosen], longer[chosen]))].astype(np.int64)
    most = max(BATCH_TOKENS, int(longer[chosen].max()))
    return list(data_utils.batch_by_size(order, lambda number: longer[number], max_tokens=most))
