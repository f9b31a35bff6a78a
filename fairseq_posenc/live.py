"""``--log-positions N``: what positions do while a model trains, in fairseq's log and in TensorBoard.

Every N updates it adds to fairseq's training statistics, of each layer,

* ``distance/encoder.1``, ``distance/decoder.1``, ``distance/cross.1``: the mean attended distance of all heads and
  tokens;
* ``norm/encoder.1``, ``norm/decoder.1``, ``norm/cross.1``: the Euclidean norm of the position parameters as they act,
  and ``norm/encoder.input``, ``norm/decoder.input`` of learned positions at the input. A stack that shares one encoding
  has one norm, at its first layer.

Distances are those of the update's first batch; of several processes, rank 0's, which writes the log. They take one
more computation of the logits, without gradients; nothing that the training computes changes.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from fairseq.logging import metrics
from torch import Tensor, nn

from .attention.module import PositionAttention
from .attention.observing import Observed, Place, attended_distance, attentions, observing, real_tokens
from .encodings.contract.gain import effective_parameters
from .positions import absolute_positions

#: after fairseq's own statistics of a batch, before its times
PRIORITY = 650


def log_positions(model: Any, every: int) -> None:
    """Makes a model of this package log what its positions do.

    Args:
        every: number of updates from one observation to the next.
    """
    log = PositionLog(every)
    model.position_log = log  # fairseq tells each submodule the number of updates
    model.register_forward_pre_hook(log.begin, with_kwargs=True)
    model.register_forward_hook(log.end, always_call=True)


class PositionLog(nn.Module):
    """Observes one batch of every so many updates. It has no parameters."""

    def __init__(self, every: int) -> None:
        super().__init__()
        self.every = every
        self._update: int | None = None  # the one that the next batch belongs to
        self._observed: int | None = None  # the last one observed
        self._running = ExitStack()
        self._distances: dict[str, Tensor] = {}
        self._latest: dict[str, float] = {}

    def set_num_updates(self, num_updates: int) -> None:
        """Learns how many updates are done; fairseq calls it before each batch."""
        self._update = num_updates + 1

    def begin(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Observes the forward pass that begins, if it is the first of an update that is due."""
        due = model.training and self._update is not None and self._update % self.every == 0
        if not due or self._update == self._observed:
            return
        self._observed = self._update
        inputs = dict(zip(("src_tokens", "src_lengths", "prev_output_tokens"), args, strict=False)) | kwargs
        sides = real_tokens(model, inputs)

        def see(place: Place, observed: Observed) -> None:
            stack, layer = place
            self._distances[f"distance/{stack}.{layer + 1}"] = _mean_distance(observed.shares, *sides[stack])

        # Projected keys are no words and have no distances.
        words = {
            place: module
            for place, module in attentions(model).items()
            if not (isinstance(module, PositionAttention) and module.position_encoding.facts.projects_length)
        }
        self._running.enter_context(observing(words, see))

    def end(self, model: Any, args: tuple[Any, ...], output: Any) -> None:
        """Hands what was observed to fairseq's statistics."""
        self._running.close()
        if not self._distances:
            return
        statistics = self._distances | _norms(model)
        self._distances = {}
        values = torch.stack([value.float() for value in statistics.values()]).tolist()  # waits for the GPU once
        for name, value in zip(statistics, values, strict=True):
            self._latest[name] = float(f"{value:.4g}")
            # Not log_scalar: fairseq saves its meters in checkpoints, and prints None after it has reset them.
            metrics.log_derived(name, lambda _, name=name: self._latest[name], PRIORITY)


def _mean_distance(shares: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
    """The mean attended distance of a batch over its heads and real queries.

    Args:
        shares: the share of each key in a query's attention, (B, H, T, S).
        queries, keys: the real ones, (B, T) and (B, S).
    """
    distances = absolute_positions(~keys)[:, None, :] - absolute_positions(~queries)[:, :, None]
    by_query = attended_distance(shares, distances[:, None]).mean(1)
    return (by_query * queries).sum() / queries.sum()


@torch.no_grad()
def _norms(model: Any) -> dict[str, Tensor]:
    """The norm of each encoding's parameters and of learned input positions, by the name of the statistic."""
    encodings: dict[Any, str] = {}
    for (stack, layer), module in attentions(model).items():
        if isinstance(module, PositionAttention):
            encodings.setdefault(module.position_encoding, f"norm/{stack}.{layer + 1}")
    for stack, part in (("encoder", model.encoder), ("decoder", model.decoder)):
        if part.embed_positions is not None:
            encodings[part.embed_positions] = f"norm/{stack}.input"
    parameters = {
        name: [value.float().flatten() for _, value in effective_parameters(m)] for m, name in encodings.items()
    }
    return {name: torch.cat(values).norm() for name, values in parameters.items() if values}
