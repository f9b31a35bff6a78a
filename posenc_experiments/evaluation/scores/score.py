"""Stage `score`: scores translations as SacreBLEU's command does, against the unchanged references.

If the recipe says so, it also compares the references with SacreBLEU's own test set, and computes the historical score.
"""

import importlib.metadata
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.files import file_hash, not_default, write_json
from posenc_experiments.base.languages import has_asian_ter, local_reference
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.metrics import BLEU, BOOTSTRAP_SEED, CHRF, SACREBLEU_NAMES, make_metric
from posenc_experiments.evaluation.results import SEAL, read_experiment, read_lines, read_parallel, seal
from posenc_experiments.evaluation.scores.historical import historical_bleu, name_of
from posenc_experiments.evaluation.scores.translate import TranslateStage
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import HISTORICAL, HYPOTHESES, REFERENCES, SACREBLEU, SCORED
from posenc_experiments.experiment.stage import Stage


class ScoreStage(Stage):
    name = "score"
    reads = TranslateStage()

    def settings(self, experiment: Experiment) -> list[Any]:
        run, tokenizer = experiment.run, experiment.run.tokenizer
        # Neural metrics are the stage compare's.
        scoring = replace(run.recipe.score, tokenize=None if tokenizer == "13a" else tokenizer, neural={})
        tools = ["sacrebleu", *(["sacremoses"] if scoring.tokenized else [])]
        versions = [importlib.metadata.version(tool) for tool in tools]
        local = {test: local_reference(name, run.pair) is not None for test, name in scoring.testsets.items()}
        return [versions, not_default(scoring), local]

    def dry_run(self, experiment: Experiment) -> None:
        run = experiment.run
        for test in pair_tests(run):
            names = ", ".join(("BLEU", "chrF", *run.recipe.score.metrics))
            run.say(f"# SacreBLEU's {names} of {test} into {experiment.test_file(test, SACREBLEU)}")
            if run.recipe.score.tokenized:
                name = name_of(run.recipe.score.tokenized)
                run.say(f"# {name} of {test} into {experiment.test_file(test, HISTORICAL)}")

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the stage is done, and the scores still match their files."""
        if not super().is_done(experiment):
            return False
        try:
            return all(row["verified"] for row in read_experiment(experiment.directory, own_only=True))
        except RecipeError:
            return False

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        # Scores of earlier settings may be of other test sets, so they would not all be overwritten.
        for old in experiment.test_files((SACREBLEU, HISTORICAL)):
            old.unlink()
        return [file for test in pair_tests(experiment.run) for file in _score(experiment, test)]


def _score(experiment: Experiment, test: str) -> list[Path]:
    run = experiment.run
    reference = experiment.test_file(test, REFERENCES)
    hypotheses, references = read_parallel(experiment.test_file(test, HYPOTHESES), reference)
    result = sacrebleu(experiment, test, reference)
    if test in run.recipe.score.testsets:
        origin = compare_with_testset(experiment, test, result)
        result = [{**row, "reference": origin} for row in result]
        run.say(f"score: {experiment.title}: {test}: reference: {origin}")
    rows_by_kind = {SACREBLEU: result}
    if run.recipe.score.tokenized:
        rows_by_kind[HISTORICAL] = historical_bleu(hypotheses, references, run.target, run.recipe.score.tokenized)
    # compare uses the hashes to verify that the scores match their files.
    scored: dict[str, Any] = {name: file_hash(experiment.test_file(test, kind)) for kind, name in SCORED.items()}
    scored["translation"] = experiment.translation()
    for kind, rows in rows_by_kind.items():
        sealed = [{**row, **scored, SEAL: seal(row | scored)} for row in rows]
        write_json(experiment.test_file(test, kind), sealed)
    scores = ", ".join(f"{row['name']} {row['score']}" for rows in rows_by_kind.values() for row in rows)
    run.say(f"score: {experiment.title}: {test}: {scores}")
    return [experiment.test_file(test, kind) for kind in rows_by_kind]


def compare_with_testset(experiment: Experiment, test: str, result: list[dict[str, object]]) -> str:
    """Compares scores with those of SacreBLEU's own references; returns a note on the origin of the reference.

    The note is needed because SacreBLEU's signatures do not name the test set since version 2.

    Raises:
        RecipeError: SacreBLEU's own references give other scores.
    """
    name, pair = experiment.run.recipe.score.testsets[test], experiment.run.pair
    option = f"sacrebleu -t {name} -l {pair}"
    reference = local_reference(name, pair)
    if reference is None:
        return (
            f"{test} as downloaded, not compared with `{option}`, which is not on this machine "
            f"(`sacrebleu --download {name} -l {pair}` fetches it)"
        )
    other = sacrebleu(experiment, test, reference)
    if other != result:
        scores = [", ".join(f"{row['name']} {row['score']}" for row in rows) for rows in (result, other)]
        raise RecipeError(
            f"{test} is not SacreBLEU's {name} {pair}: {experiment.test_file(test, HYPOTHESES)} has {scores[0]} "
            f"against the corpus's reference and {scores[1]} against SacreBLEU's ({reference}); correct "
            "score.testsets or the data."
        )
    return f"{option} (same scores from both files)"


def sacrebleu(experiment: Experiment, test: str, reference: Path) -> list[dict[str, Any]]:
    """What SacreBLEU's command prints with `--confidence --format json`, of BLEU, chrF and other metrics of the recipe.

    The command itself of version 2.6.0 fails if some samples score exactly 0, as those of a weak model do.
    """
    # Imported here, because they would slow down --help and --dry-run.
    from sacrebleu.metrics.base import Score

    from posenc_experiments.evaluation.statistics.significance import (
        SAMPLES,
        compute_with,
        extract,
        resample_statistics,
    )

    run = experiment.run
    names = {name.lower(): name for name in SACREBLEU_NAMES.values()}  # as recipes write them
    hypotheses, references = read_lines(experiment.test_file(test, HYPOTHESES)), read_lines(reference)
    result = []
    for name in dict.fromkeys((BLEU, CHRF, *(names[one] for one in run.recipe.score.metrics))):
        # With case, perfect lowercase translations would get a BLEU of only 23 to 27 on Multi30k's German test sets.
        metric = make_metric(name, run.recipe.prepare.lowercase, run.tokenizer, has_asian_ter(run.target))
        score = metric.corpus_score(hypotheses, [references])
        resampled = resample_statistics(extract(metric, hypotheses, references), compute_with(metric))
        score.estimate_ci([Score(name, one) for one in resampled.samples.tolist()])
        metric.n_bootstrap, metric.seed = SAMPLES, BOOTSTRAP_SEED  # for its signature
        result.append(json.loads(score.format(signature=metric.get_signature().format(), is_json=True)))
    return result
