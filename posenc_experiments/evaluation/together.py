"""Scores of an experiment on all its test sets together, as if they were one."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import Metric, Score
from posenc_experiments.evaluation.significance import resample

#: the name of all test sets together; no test set has a blank in its name
ALL_TESTS = "all tests"


def all_tests(scores: Sequence[Score], metric: str = BLEU) -> list[Score]:
    """The scores of the experiments on all their test sets together, in the same order: BLEU and one other metric.

    Raises:
        RecipeError: experiments of one corpus and pair have different test sets; or none has several; or a file is
            missing.
    """
    parts: dict[Path, list[Score]] = defaultdict(list)
    for score in scores:
        parts[score.directory].append(score)
    firsts: dict[tuple[str, str], list[Score]] = {}
    for mine in parts.values():
        first = firsts.setdefault((mine[0].corpus, mine[0].pair), mine)
        wanted, own = ([one.test for one in scored] for scored in (first, mine))
        if wanted != own:
            raise RecipeError(
                f"--all-tests: {first[0].directory} has {', '.join(wanted)}, and {mine[0].directory} has "
                f"{', '.join(own)}: run the stages translate and score again, or leave one out."
            )
    several = [mine for mine in parts.values() if len(mine) > 1]
    if not several:
        raise RecipeError("--all-tests: no experiment here has several test sets: leave the option out.")
    return [_together(mine, dict.fromkeys((BLEU, metric))) for mine in several]


def _together(parts: Sequence[Score], metrics: Iterable[str]) -> Score:
    whole = replace(
        parts[0],
        test=ALL_TESTS,
        references=fingerprint([one.references for one in parts]),
        sources=None,  # those of the single test sets are compared
        verified=all(one.verified for one in parts),
        parts=tuple(parts),
    )
    found = {}
    for name in metrics:
        if all(name in one.metrics for one in parts):
            resampled = resample(whole, name)
            found[name] = Metric(resampled.score, resampled.interval, parts[0].metrics[name].signature)
    return replace(whole, metrics=found)
