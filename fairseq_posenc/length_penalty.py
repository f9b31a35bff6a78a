"""The length penalty of Wu et al. (2016), eq. 14, in fairseq's own beam search: ``--task translation_gnmt_penalty``.

Shaw et al., DIET and all of tensor2tensor rank a finished hypothesis Y by

    log P(Y | X) / ((5 + |Y|) / 6) ** alpha,    |Y| with the end-of-sentence token,

fairseq by log P(Y | X) / |Y| ** lenpen. One alpha means two things then: at 0.6 a hypothesis of 40 tokens is divided by
3.35 in the papers and by 9.15 in fairseq, and fairseq's search prefers longer ones.

The task is fairseq's `translation` in all else, also for models that were trained with `--task translation`:

    fairseq-generate DATA --user-dir ... --task translation_gnmt_penalty --path MODEL --lenpen 0.6 ...
    model = PositionTransformer.from_pretrained(DIRECTORY, FILE, DATA, task={"_name": TASK, "data": DATA})
    model.translate(text, lenpen=0.6)

**How.** fairseq writes its penalty in one place, `eos_scores /= (step + 1) ** self.len_penalty` (`finalize_hypos`; step
+ 1 is |Y|). Here `len_penalty` is a `WuPenalty`, whose `__rpow__` Python then calls. The search stays fairseq's, of
every kind: n-best lists, prefixes (their tokens count, as in fairseq), sampling, diverse beams, constraints, ensembles,
alignments. `--unnormalized` means no penalty, as in fairseq. `--score-reference` has none either: fairseq's scorer
gives the mean log-probability of a token.

**What still differs from tensor2tensor.** Its search takes finished hypotheses from the best 2 * beam candidates of a
step, keeps the best `beam` of all steps, and ends when the best living one can no longer overtake the finished ones,
even divided by the penalty of the length limit; fairseq finishes only candidates among the best `beam`, and ends with
the first `beam` finished. Its length limit is the source's length + 50 (Vaswani et al.; tensor2tensor's default is
100), fairseq's is 200: `--max-len-a 1 --max-len-b 50` sets it (counted on the longest source of the batch, with its
end-of-sentence).
"""

from __future__ import annotations

from typing import Any

from fairseq.sequence_generator import SequenceGenerator
from fairseq.tasks import register_task
from fairseq.tasks.translation import TranslationConfig, TranslationTask

TASK = "translation_gnmt_penalty"


class WuPenalty:
    """An exponent: ``length ** WuPenalty(alpha)`` is ((5 + length) / 6) ** alpha.

    Not a subclass of float: any other operation with it must fail.
    """

    def __init__(self, alpha: float) -> None:
        self.alpha = alpha

    def __rpow__(self, length: float) -> float:
        return float(((5 + length) / 6) ** self.alpha)

    def __repr__(self) -> str:
        return f"WuPenalty({self.alpha})"


@register_task(TASK, dataclass=TranslationConfig)
class TranslationGnmtPenaltyTask(TranslationTask):
    """fairseq's translation, with hypotheses ranked as in Wu et al. (2016)."""

    def build_generator(self, models: Any, args: Any, *more: Any, **keywords: Any) -> Any:
        """fairseq's generator with the other penalty, whose alpha is `--lenpen`."""
        generator = super().build_generator(models, args, *more, **keywords)
        if isinstance(generator, SequenceGenerator):  # and not the scorer of --score-reference
            generator.len_penalty = WuPenalty(generator.len_penalty)
        return generator
