"""The length penalty of Wu et al. (2016), eq. 14, in fairseq's beam search: ``--task translation_gnmt_penalty``.

Shaw et al., DIET and tensor2tensor rank a finished hypothesis Y by

    log P(Y | X) / ((5 + |Y|) / 6) ** alpha,    where |Y| counts the end-of-sentence token,

and fairseq by log P(Y | X) / |Y| ** lenpen. The same value of alpha and lenpen thus has a different effect: with 0.6
the score of 40 tokens is divided by 3.35 in the papers and by 9.15 in fairseq, whose search prefers longer hypotheses.

In all other respects the task is fairseq's `translation`. It also works for models trained with `--task translation`:

    fairseq-generate DATA --user-dir ... --task translation_gnmt_penalty --path MODEL --lenpen 0.6 ...
    model = PositionTransformer.from_pretrained(DIRECTORY, FILE, DATA, task={"_name": TASK, "data": DATA})
    model.translate(text, lenpen=0.6)

**Implementation.** fairseq applies its penalty in one place, `eos_scores /= (step + 1) ** self.len_penalty` in
`finalize_hypos`, where step + 1 is |Y|. The task sets `len_penalty` to a `WuPenalty`, whose `__rpow__` Python then
calls. All of fairseq's search works unchanged: n-best lists, prefixes (their tokens count, as in fairseq), sampling,
diverse beams, constraints, ensembles, alignments. `--unnormalized` disables the penalty, as in fairseq.
`--score-reference` applies no penalty: fairseq's scorer returns the mean log-probability of a token.

**Remaining differences from tensor2tensor.** tensor2tensor takes finished hypotheses from the best 2 * beam candidates
of a step, and keeps the best `beam` of all steps. It ends when no unfinished hypothesis can overtake the finished ones,
even with the penalty of the maximum length. fairseq finishes only candidates among the best `beam`, and ends once
`beam` hypotheses are finished. The maximum output length is the source's length + 50 in Vaswani et al. (tensor2tensor's
default is + 100), and 200 in fairseq. `--max-len-a 1 --max-len-b 50` sets the former, computed from the longest source
of the batch including its end-of-sentence token.
"""

from __future__ import annotations

from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

TASK = "translation_gnmt_penalty"


class WuPenalty:
    """An exponent: ``length ** WuPenalty(alpha)`` is ((5 + length) / 6) ** alpha.

    It is not a subclass of float, so that all other operations fail.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def __rpow__(self, length: float) -> float:
        return float(((5 + length) / 6) ** self.alpha)


@register_task(TASK, dataclass=TranslationConfig)
class TranslationGnmtPenaltyTask(TranslationTask):
    """fairseq's translation, with hypotheses ranked as in Wu et al. (2016)."""

    def build_generator(self, models: Any, args: Any, *more: Any, **keywords: Any) -> Any:
        """Builds fairseq's generator with the penalty of Wu et al., whose alpha is `--lenpen`."""
        generator = super().build_generator(models, args, *more, **keywords)
        if isinstance(generator, SequenceGenerator):  # not the scorer of --score-reference
            generator.len_penalty = WuPenalty(generator.len_penalty)
        return generator
