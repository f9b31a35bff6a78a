"""The shift test (after SHAPE, Kiyono et al. 2021): what changes if all positions of the source are k higher, as they
are in a longer text.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_posenc.augmentation.modes import FixedShift
from fairseq_posenc.errors import FlagError

SHIFTS = (1, 10, 100)
#: what a model computes of a batch: the encoder's states (B, S, C), and logits of the next target token
Output = tuple[Tensor, Tensor]


def forced(model: Any, inputs: dict[str, Tensor]) -> Output:
    """The model's output where the references are the decoder's input."""
    encoded = model.encoder(inputs["src_tokens"], src_lengths=inputs["src_lengths"])
    logits, _ = model.decoder(inputs["prev_output_tokens"], encoder_out=encoded)
    return encoded["encoder_out"][0].transpose(0, 1), logits


class ShiftTest:
    """Adds up, over batches, how much of the output of a model changes, and how alike the encoder's states stay.

    The model is in evaluation mode.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        # By k; None where a table is too short.
        self._sums: dict[int, Tensor | None] = {k: torch.zeros(2, dtype=torch.float64) for k in SHIFTS}
        self._tokens = torch.zeros(2, dtype=torch.float64)

    def add(self, inputs: dict[str, Tensor], output: Output, source_is_real: Tensor, target_is_real: Tensor) -> None:
        """Adds one batch, whose ``output`` is that without a shift; masks are (B, S) and (B, T)."""
        self._tokens += torch.tensor([target_is_real.sum(), source_is_real.sum()])
        states, logits = output
        for k, sums in self._sums.items():
            if sums is None:
                continue
            try:
                with shifted(self.model, k):
                    moved_states, moved_logits = forced(self.model, inputs)
            except FlagError:  # how encodings say that their tables end
                self._sums[k] = None
                continue
            changed = (moved_logits.argmax(-1) != logits.argmax(-1)) & target_is_real
            cosine = F.cosine_similarity(moved_states.double(), states.double(), dim=-1)
            sums += torch.stack([changed.sum(), cosine[source_is_real].sum()]).cpu()

    def result(self) -> list[dict[str, Any]]:
        """For each k the share of target tokens whose most probable word changes, and the mean cosine of the states of
        source tokens; None where a table is too short.
        """
        means = {k: [None, None] if sums is None else (sums / self._tokens).tolist() for k, sums in self._sums.items()}
        return [{"k": k, "changed_outputs": changed, "cosine": cosine} for k, (changed, cosine) in means.items()]


@contextmanager
def shifted(model: Any, k: int) -> Iterator[None]:
    """Within the context, the model's positions in the source are k higher: at the encoder's input, in its attention,
    and in attention from the target to the source.

    Raises:
        FlagError: in a forward pass, if a table of positions is too short.
    """
    before = {stack: stack.settings for stack in (model.encoder, model.decoder)}
    for stack, settings in before.items():
        stack.settings = replace(settings, augmentation=FixedShift(k, settings.augmentation))
    try:
        yield
    finally:
        for stack, settings in before.items():
            stack.settings = settings
