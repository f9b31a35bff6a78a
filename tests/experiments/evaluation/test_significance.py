"""The paired test over sentences and seeds, and Holm's correction, on the quickstart's kept translations."""

import itertools
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import bleu

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.pooling import pool
from posenc_experiments.evaluation.results import Score, read_experiments, read_lines
from posenc_experiments.evaluation.significance import SAMPLES, holm, paired_bootstrap
from tests.experiments.analysis.quickstart import make_experiments

SINUSOIDAL, DIET = "transformer_sinusoidal_tiny", "transformer_diet_rel_tiny"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_experiments(tmp_path_factory.mktemp("made"), {SINUSOIDAL: 3, DIET: 3})


def seeds(made: Path, setting: str) -> list[Score]:
    return [score for score in read_experiments([made]) if score.directory.parent.name == setting]


def copied(score: Score, seed: int, directory: Path) -> Score:
    """The same translations as those of another seed."""
    return replace(score, directory=shutil.copytree(score.directory, directory / f"seed{seed}"), seed=seed)


def bleu_of(score: Score, sentences: list[int]) -> float:
    """SacreBLEU's BLEU of some sentences, computed from their texts."""
    texts = [read_lines(score.file(kind)) for kind in ("hyp", "ref")]
    hypotheses, references = ([lines[number] for number in sentences] for lines in texts)
    return bleu.BLEU().corpus_score(hypotheses, [references]).score


def test_it_is_the_mean_over_seeds_that_is_resampled(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("posenc_experiments.evaluation.significance.SAMPLES_OF_SEEDS", 12)
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    one, other = seeds(made, SINUSOIDAL), seeds(made, DIET)
    sentences = np.random.default_rng(7).choice(500, size=(12, 500), replace=True)
    drawn = np.random.default_rng(7).integers(3, size=(2, 12))

    def difference(seeds_drawn: list[int], numbers: list[int]) -> float:
        found = [bleu_of(one[seed], numbers) - bleu_of(other[seed], numbers) for seed in seeds_drawn]
        return sum(found) / len(found)

    real = difference([0, 1, 2], list(range(500)))
    samples = [difference(list(drawn[:, i]), list(sentences[i])) for i in range(12)]
    wanted = (sum(abs(sample - real) > abs(real) for sample in samples) + 1) / (len(samples) + 1)
    assert paired_bootstrap(one, other) == pytest.approx(wanted)
    assert paired_bootstrap(one[::-1], other) == paired_bootstrap(one, other)  # seeds are paired, not their order


def test_seeds_that_disagree_count_against_a_difference(made: Path, tmp_path: Path) -> None:
    """A winner in one seed that loses in the other is no winner."""
    good, bad = seeds(made, SINUSOIDAL)[0], seeds(made, DIET)[0]
    one = [good, copied(bad, 2, tmp_path / "one")]
    other = [bad, copied(good, 2, tmp_path / "other")]
    assert paired_bootstrap(one[:1], other[:1]) < 0.5
    assert paired_bootstrap(one, other) == 1


def test_equal_translations_do_not_differ(made: Path, tmp_path: Path) -> None:
    ours = seeds(made, SINUSOIDAL)
    same = [copied(score, score.seed, tmp_path) for score in ours]
    assert paired_bootstrap(ours, same) == 1
    assert paired_bootstrap(ours[:1], same[:1]) == 1


def test_other_seeds_are_refused(made: Path) -> None:
    scores = read_experiments([made])
    missing = [score for score in scores if (score.directory.parent.name, score.seed) != (DIET, 2)]
    assert pool(missing)  # a table without tests
    with pytest.raises(RecipeError) as refused:
        pool(missing, "sinusoidal")
    assert str(refused.value) == (
        "sinusoidal has seeds 1, 2, 3 and diet_rel has seeds 1, 3: only equal seeds can be tested; train the missing "
        "ones, or choose common ones with --seeds."
    )


def test_a_missing_reference_is_named(tmp_path: Path) -> None:
    made = make_experiments(tmp_path, {SINUSOIDAL: 1, DIET: 1})
    scores = read_experiments([made])
    scores[0].file("ref").unlink()
    with pytest.raises(
        RecipeError, match=rf"^{scores[0].file('ref')} is missing, and --baseline and --all-tests need it: prep"
    ):
        pool(scores, "sinusoidal")


def test_a_table_has_p_values_with_holms_correction(tmp_path: Path) -> None:
    rows = pool(read_experiments([make_experiments(tmp_path)])[:-1], "shaw-k16")  # without sinusoidal's second seed
    tested = [row for row in rows if row.p_value is not None]
    assert len(tested) == len(rows) - 1 == 3
    assert [row.holm_p_value for row in tested] == holm([row.p_value or 0 for row in tested])
    assert max(row.p_value or 0 for row in tested) > 1 / (SAMPLES + 1)


@pytest.mark.parametrize("p_values", [[0.01, 0.04, 0.03, 0.005], [0.5], [], [0.02, 0.02], [0.9, 0.6, 0.001]])
def test_holm_rejects_what_the_procedure_rejects(p_values: list[float]) -> None:
    """Step by step, the smallest p first, against alpha / (number of tests that remain); the first failure ends it."""
    corrected = holm(p_values)
    for alpha in np.linspace(0.001, 0.999, 199):
        order = sorted(range(len(p_values)), key=p_values.__getitem__)
        levels = [alpha / (len(p_values) - rank) for rank in range(len(p_values))]
        steps = zip(order, levels, strict=True)
        rejected = {number for number, _ in itertools.takewhile(lambda step: p_values[step[0]] <= step[1], steps)}
        assert rejected == {number for number, value in enumerate(corrected) if value <= alpha}
