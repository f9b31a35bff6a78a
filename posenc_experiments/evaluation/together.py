"""BLEU of an experiment on all its test sets together, as if they were one."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sacrebleu.metrics import bleu

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import fingerprint
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import Score, read_translations, translation_files
from posenc_experiments.evaluation.significance import SAMPLES

#: the name of all test sets together; no test set has a blank in its name
ALL_TESTS = "all tests"


def all_tests(scores: Sequence[Score]) -> list[Score]:
    """The scores of the experiments on all their test sets together, in the same order; BLEU alone.

    Raises:
        RecipeError: experiments of one corpus and pair have different test sets, or a file is missing.
    """
    parts: dict[Path, list[Score]] = defaultdict(list)
    for score in scores:
        parts[score.directory].append(score)
    first: dict[tuple[str, str], Score] = {}
    for of_one in parts.values():
        score = first.setdefault((of_one[0].corpus, of_one[0].pair), of_one[0])
        tests, own = ([one.test for one in parts[found.directory]] for found in (score, of_one[0]))
        if tests != own:
            raise RecipeError(
                f"--all-tests: {score.directory} has {', '.join(tests)}, and {of_one[0].directory} has "
                f"{', '.join(own)}: run the stages translate and score again, or leave one out."
            )
    return [_together(of_one) for of_one in parts.values() if len(of_one) > 1]


def _together(parts: Sequence[Score]) -> Score:
    whole = replace(
        parts[0],
        test=ALL_TESTS,
        references=fingerprint([one.references for one in parts]),
        verified=all(one.verified for one in parts),
        parts=tuple(parts),
    )
    hypotheses, references = read_translations(translation_files(whole))
    metric = bleu.BLEU(lowercase=whole.bleu.lowercased)
    scored = metric.corpus_score(hypotheses, [references], n_bootstrap=SAMPLES)
    return replace(whole, metrics={BLEU: replace(whole.bleu, score=scored.score, interval=scored._ci, reference=None)})
