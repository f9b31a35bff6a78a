"""Stage `score`: scores translations as SacreBLEU's command does, against the unchanged references.

If the recipe says so, it also compares the references with SacreBLEU's own test set, and computes the historical score.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.languages import has_asian_ter, local_reference
from posenc_experiments.base.markers import file_hash, read_json, write_json
from posenc_experiments.data import text
from posenc_experiments.data.sources import pair_tests
from posenc_experiments.evaluation.historical import historical_bleu, name_of
from posenc_experiments.evaluation.metrics import BOOTSTRAP_SEED
from posenc_experiments.evaluation.results import SEAL, read_lines, seal
from posenc_experiments.evaluation.translate import TranslateStage
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.experiment.layout import HISTORICAL, HYPOTHESES, REFERENCES, SACREBLEU, SCORED
from posenc_experiments.experiment.step import Step


class ScoreStage(Step):
    name = "score"
    after = TranslateStage()

    def dry_run(self, experiment: Experiment) -> None:
        for test in pair_tests(experiment.run):
            _dry_run(experiment, test)

    def is_done(self, experiment: Experiment) -> bool:
        """Whether the stage is done, and the scores still match their files."""
        return super().is_done(experiment) and all(
            _matches_files(experiment, test) for test in pair_tests(experiment.run)
        )

    def make(self, experiment: Experiment, locks: tuple[int, ...]) -> list[Path]:
        # Scores of earlier settings may be of other test sets, so they would not all be overwritten.
        for old in experiment.test_files((SACREBLEU, HISTORICAL)):
            old.unlink()
        return [file for test in pair_tests(experiment.run) for file in _score(experiment, test)]


def _hashes(experiment: Experiment, test: str) -> dict[str, str]:
    return {name: file_hash(experiment.test_file(test, kind)) for kind, name in SCORED.items()}


def _matches_files(experiment: Experiment, test: str) -> bool:
    """Whether a score records the hashes of the current hypotheses and references, and is as it was written."""
    try:
        hashes = _hashes(experiment, test)
    except FileNotFoundError:
        return False
    kinds = (SACREBLEU, *[HISTORICAL] * experiment.run.recipe.score.historical)
    files = [read_json(experiment.test_file(test, kind)) for kind in kinds]
    return all(
        isinstance(row, dict) and row.items() >= hashes.items() and row.get(SEAL) == seal(row)
        for rows in files
        for row in (rows if isinstance(rows, list) else [rows])
    )


def _score(experiment: Experiment, test: str) -> list[Path]:
    run = experiment.run
    reference, hypothesis = experiment.test_file(test, REFERENCES), experiment.test_file(test, HYPOTHESES)
    found, wanted = (sum(1 for _ in text.read_lines(path)) for path in (hypothesis, reference))
    if found != wanted:
        raise RecipeError(
            f"{hypothesis} has {found:,} lines and {reference} has {wanted:,}: run the stages translate and score."
        )
    result = sacrebleu(experiment, test, reference)
    if test in run.recipe.score.testsets:
        origin = compare_with_testset(experiment, test, result)
        result = [{**row, "reference": origin} for row in result]
        run.say(f"score: {experiment.title}: {test}: reference: {origin}")
    # compare uses the hashes to verify that the scores match their files.
    scored = {**_hashes(experiment, test), "translation": experiment.translation()}
    files = [experiment.test_file(test, SACREBLEU)]
    _write_sealed(files[0], [{**row, **scored} for row in result])
    if run.recipe.score.historical:
        files.append(experiment.test_file(test, HISTORICAL))
        historical = historical_bleu(_decoded(hypothesis), _decoded(reference), run.target, run.recipe.score.tokenized)
        _write_sealed(files[1], [{**row, **scored} for row in historical])
        result += historical
    scores = ", ".join(f"{row['name']} {row['score']}" for row in result)
    run.say(f"score: {experiment.title}: {test}: {scores}")
    return files


def _write_sealed(path: Path, rows: Iterable[dict[str, object]]) -> None:
    write_json(path, [{**row, SEAL: seal(row)} for row in rows])


def _dry_run(experiment: Experiment, test: str) -> None:
    run = experiment.run
    names = ", ".join(("BLEU", "chrF", *run.recipe.score.metrics))
    run.say(f"# SacreBLEU's {names} of {test} into {experiment.test_file(test, SACREBLEU)}")
    if run.recipe.score.historical:
        run.say(f"# {name_of(run.recipe.score.tokenized)} of {test} into {experiment.test_file(test, HISTORICAL)}")


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


def _decoded(path: Path) -> list[str]:
    return [line.decode("utf-8") for line in text.read_lines(path)]


def sacrebleu(experiment: Experiment, test: str, reference: Path) -> list[dict[str, Any]]:
    """What SacreBLEU's command prints with `--confidence --format json`, of BLEU, chrF and other metrics of the recipe.

    The command itself of version 2.6.0 fails if some samples score exactly 0, as those of a weak model do.
    """
    # Imported here, because they would slow down --help and --dry-run.
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    from posenc_experiments.evaluation.significance import SAMPLES, resample_lines

    recipe = experiment.run.recipe
    # With case, perfect lowercase translations would get a BLEU of only 23 to 27 on Multi30k's German test sets.
    lowercase, asian = recipe.prepare.lowercase, has_asian_ter(experiment.run.target)
    made: dict[str, Any] = {
        "BLEU": BLEU(lowercase=lowercase, tokenize=experiment.run.tokenizer, force=True),
        "chrF": CHRF(lowercase=lowercase),
        "chrf++": CHRF(word_order=2, lowercase=lowercase),
        "ter": TER(normalized=asian, asian_support=asian),
    }
    hypotheses, references = read_lines(experiment.test_file(test, HYPOTHESES)), read_lines(reference)
    result = []
    for metric in (made[name] for name in dict.fromkeys(("BLEU", "chrF", *recipe.score.metrics))):
        score, resampled = metric.corpus_score(hypotheses, [references]), resample_lines(metric, hypotheses, references)
        score._mean, score._ci = resampled.samples.mean(), resampled.interval
        metric.n_bootstrap, metric.seed = SAMPLES, BOOTSTRAP_SEED  # for its signature
        result.append(json.loads(score.format(signature=metric.get_signature().format(), is_json=True)))
    return result
