"""The test of a difference, on simulated scores with known variances and on the quickstart's kept translations."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from calibration import Sources, false_verdict, simulate
from click.testing import Result
from sacrebleu.metrics import bleu, chrf, ter
from scipy import stats

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.evaluation.metrics import BLEU
from posenc_experiments.evaluation.results import bleu_results, read_lines, read_results
from posenc_experiments.evaluation.statistics.comparison import ComparedRow, Comparison, compared_with_baseline
from posenc_experiments.evaluation.statistics.significance import (
    Difference,
    Jackknifed,
    PooledVariance,
    all_differences,
    difference,
    jackknife,
    jackknife_statistics,
    resample,
    sacrebleu_p,
)
from tests.experiments.analysis.quickstart import make_experiments
from tests.experiments.tiny import run_here

SINUSOIDAL, DIET = "transformer_sinusoidal_tiny", "transformer_diet_rel_tiny"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_experiments(tmp_path_factory.mktemp("made"), {SINUSOIDAL: 3, DIET: 2, "transformer_nopos_tiny": 1})


def compare(made: Path, *options: str) -> Result:
    return run_here("compare", made, "--baseline", "sinusoidal", *options)


def compared(made: Path, **options: Any) -> dict[str, ComparedRow]:
    """The rows by name."""
    [table] = compared_with_baseline(read_results([made]), "sinusoidal", Comparison(**options))
    return {row.row.setting.name: row for row in table.rows}


@pytest.mark.parametrize(
    "sources", [Sources(of_seed=0.2, of_system=3, of_model=5), Sources(of_seed=0, of_system=5, of_model=5)]
)
def test_the_test_holds_its_level(sources: Sources) -> None:
    """Of 600 equal systems in 200 tables, .05 are found to differ, within four standard errors.

    A bootstrap over sentences and n - 1 seeds finds .21 of those that differ in seeds alone. Seeds alone find .19 of
    those that differ in sentences, sentences alone .24 of the first kind.
    """
    tables = list(simulate(sources, tables=200, rows=4, seeds=3, random_seed=1))
    for pool_variance in (False, True):
        wrong = [row.p_value <= 0.05 for rows in tables for row in all_differences(rows[0], rows[1:], pool_variance)[0]]
        assert 0.014 <= np.mean(wrong) <= 0.086


def test_the_variance_is_that_of_the_difference() -> None:
    """The mean of the estimates is the variance that the differences have by the known variances.

    The sum of both variances, which counts the errors of each model twice, is higher by a quarter or more.
    """
    for sources in (Sources(0.2, 3, 5), Sources(0, 6, 0)):
        differences = [difference(a, b) for a, b in simulate(sources, tables=120, rows=2, seeds=3, random_seed=2)]
        test_variance = 2 * sources.of_system**2 / 1000
        known = 2 / 3 * sources.of_seed**2 + test_variance + 2 / 3 * sources.of_model**2 / 1000
        assert np.mean([tested.variance for tested in differences]) == pytest.approx(known, rel=0.2)


def test_without_variance_of_the_test_set_it_is_welchs_test() -> None:
    scores = [[1.0, 2.0, 4.0], [3.0, 5.0, 6.0, 6.5]]
    rows = [[Jackknifed(score, np.zeros(10)) for score in row] for row in scores]
    wanted = stats.ttest_ind(scores[1], scores[0], equal_var=False)
    tested = difference(rows[0], rows[1])
    assert tested.p_value == pytest.approx(wanted.pvalue)
    assert tested.interval() == pytest.approx(tuple(wanted.confidence_interval(0.95)))
    pooled = difference(rows[0], rows[1], PooledVariance.of(scores))
    assert pooled.p_value == pytest.approx(stats.ttest_ind(scores[1], scores[0]).pvalue)


def test_equivalence_is_two_one_sided_tests() -> None:
    tested = Difference(0.2, 0.01, 4.0)
    for margin in (0.35, 0.4, 0.42, 0.5, 1.0):
        sides = [stats.t.sf((margin - sign * tested.value) / 0.1, 4.0) for sign in (1, -1)]
        assert tested.margin_p_value(margin) == pytest.approx(max(sides))
    assert Difference(0.2, 0.0, np.inf).margin_p_value(0.3) == 0


@pytest.mark.parametrize(
    ("value", "comparisons", "margin", "word"),
    [
        (0.5, 1, None, "above"),
        (-0.5, 10, 0.5, "below"),
        (0.3, 1, 0.5, "above"),  # by less than the margin, but it is a difference
        (0.3, 10, 0.5, "undecided (alone: above)"),
        (0.1, 1, 0.5, "equivalent"),
        (-0.1, 10, 0.5, "equivalent"),
        (0.2, 2, 0.5, "equivalent"),
        (0.2, 10, 0.5, "undecided (alone: equivalent)"),
        (0.1, 1, None, "undecided"),
        (0.2, 10, 0.3, "undecided"),
    ],
)
def test_the_verdict_follows_from_the_interval_that_it_prints(
    value: float, comparisons: int, margin: float | None, word: str
) -> None:
    """The same as both p-values times the number of comparisons (Bonferroni)."""
    tested = Difference(value, 0.01, 12.0)
    said, low, high = tested.verdict(comparisons, margin)
    assert said == word
    corrected = comparisons * tested.p_value
    assert (low > 0, high < 0) == (word == "above", word == "below")
    if margin is not None:
        assert (word == "equivalent") == (comparisons * tested.margin_p_value(margin) <= 0.05 < corrected)
    assert (word in ("above", "below")) == (corrected <= 0.05)
    share = 0.1 if word == "equivalent" else 0.05
    assert (low, high) == tested.interval(1 - share / comparisons)


def test_false_verdicts_in_a_question_are_rare() -> None:
    """Of 1,500 questions of nine comparisons, at most .05 have any false verdict, within three standard errors.

    Every second row is above the baseline by exactly the margin, so that equivalence is false; the others are equal.
    """
    tables = simulate(Sources(0.1, 1, 2), tables=1500, rows=10, seeds=6, random_seed=3)
    errors = [false_verdict(all_differences(rows[0], rows[1:])[0]) for rows in tables]
    assert np.mean(errors) <= 0.05 + 3 * (0.05 * 0.95 / 1500) ** 0.5


def test_there_are_never_fewer_degrees_of_freedom_than_seeds_give() -> None:
    """Where single models err much and the test set varies little, the variance of the test set is estimated as 0."""
    chance = np.random.default_rng(0)
    moves = chance.normal(0, 0.1, (4, 50))
    for scores in ([30.0, 30.001, 31.0, 31.001], [30.0, 30.0, 31.0, 31.0]):
        rows = [Jackknifed(*seed) for seed in zip(scores, moves - moves.mean(axis=1)[:, None], strict=True)]
        tested = difference(rows[:2], rows[2:])
        assert tested.degrees >= 1
        assert tested.value == pytest.approx(1)
        assert np.isfinite(tested.interval()).all()


def test_rows_with_another_spread_are_not_pooled() -> None:
    chance = np.random.default_rng(0)
    rows = [[Jackknifed(30 + chance.normal(0, 0.1), np.zeros(10)) for _ in range(5)] for _ in range(4)]
    wide, collapsed = ([Jackknifed(mean + score, np.zeros(10)) for score in (-5, 5, 0, 2, -3)] for mean in (30, 2))
    _, alike = all_differences(rows[0], rows[1:], pool_variance=True)
    assert alike is not None
    assert (alike.allowed, alike.rows, alike.degrees) == (True, 4, 16)
    assert all_differences(rows[0], [], pool_variance=True)[1] is None
    tested, differing = all_differences(rows[0], [*rows[1:], wide], pool_variance=True)
    assert differing is not None
    assert not differing.allowed
    assert tested == all_differences(rows[0], [*rows[1:], wide])[0]
    tested, without = all_differences(rows[0], [*rows[1:], collapsed], pool_variance=True)
    assert without == alike
    assert tested[-1] == difference(rows[0], collapsed)


def test_leaving_sentences_out_gives_the_variance_of_a_mean() -> None:
    """Of independent values it is the variance of their mean; of documents, that of the documents' means."""
    values = np.random.default_rng(1).normal(30, 5, 400)
    statistics = np.array([values, np.ones(400)]).T
    for documents in (400, 20):
        units = np.arange(400) * documents // 400
        scored = jackknife_statistics(statistics, lambda sums: float(sums[0] / sums[1]), units)
        means = values.reshape(documents, -1).mean(axis=1)
        assert scored.score == pytest.approx(values.mean())
        assert np.square(scored.moves).sum() == pytest.approx(means.var(ddof=1) / documents)


def test_the_jackknife_agrees_with_bootstrap_samples(made: Path) -> None:
    results = read_results([made])
    pair = [bleu_results(results)[number].directory for number in (0, -1)]
    moves = [jackknife(results, directory, "test", BLEU).moves for directory in pair]
    samples = [resample(results, directory, "test", BLEU).samples for directory in pair]
    assert np.square(moves[1] - moves[0]).sum() == pytest.approx(np.var(samples[1] - samples[0]), rel=0.15)


def test_the_units_are_documents_where_these_are_known(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    names = copy / "quickstart/xa-xb" / SINUSOIDAL / "seed1" / "test.documents"  # the file of one seed serves all
    assert names.parent.is_dir()
    names.write_text("".join(f"article {number // 25}\n" for number in range(500)))
    results = read_results([copy])
    for directory in set(results["directory"]):
        assert len(jackknife(results, directory, "test", BLEU).moves) == 20
    assert "The test set varies by its 20 documents." in compare(copy).stdout
    assert "No documents are known: the test set varies by its sentences," in compare(made).stdout
    names.write_text("one document\n" * 500)
    assert "No documents are known: " in compare(copy).stdout
    names.write_text("a\n")
    assert "test.documents has 1 lines, and test has 500 sentences: write" in compare(copy).stderr


def test_documents_may_be_named(made: Path, tmp_path: Path) -> None:
    """For results that have none, in place of those that they have, and also for questions."""
    copy, names = Path(shutil.copytree(made, tmp_path / "copy")), tmp_path / "a=b.documents"
    next(copy.rglob("seed1")).joinpath("test.documents").write_text("one\ntwo\n" * 250)
    names.write_text("".join(f"article {number // 25}\n" for number in range(500)))
    questions = tmp_path / "questions.yaml"
    comparisons = "{question: a, tables: [quickstart xa-xb test], comparisons: {sinusoidal: [diet_rel]}}"
    questions.write_text(f"questions: [{comparisons}]\n")
    for directory, option in ((made, f"test={names}"), (made, f"{names}"), (copy, f"{names}")):
        for test in ("--baseline=sinusoidal", f"--questions={questions}"):
            result = run_here("compare", directory, test, "--documents", option)
            assert result.exit_code == 0, result.output
            assert "The test set varies by its 20 documents." in result.stdout
    shown = (compare(root, *words).stdout for root in (made, copy) for words in ((), ("--documents", str(names))))
    differences = [text.split("[", 1)[1].split("\n")[0] for text in shown]
    assert differences[1] == differences[3]
    assert len(set(differences)) == 3


def test_documents_that_fit_no_test_set_are_refused(made: Path, tmp_path: Path) -> None:
    copy, names = Path(shutil.copytree(made, tmp_path / "copy")), tmp_path / "x.documents"
    names.write_text("a\n" * 3)

    def refusal(option: str) -> str:
        result = compare(copy, "--documents", option)
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        return result.stderr.removeprefix("Error: ").rstrip()

    assert refusal(str(names)) == (
        f"{names} has 3 lines, and test has 500 sentences: write one line for each sentence, with the name of its "
        "document."
    )
    assert refusal(f"tset={names}") == (
        f"--documents tset={names}: there is no test set 'tset' here (did you mean test?); test sets are test."
    )
    assert refusal("test=nothing").startswith("--documents test=nothing: nothing is not a file: name one with the")
    for hypotheses in copy.rglob("test.hyp"):
        for kind in ("src", "ref", "hyp", "sacrebleu.json"):
            shutil.copy(hypotheses.with_name(f"test.{kind}"), hypotheses.with_name(f"test2.{kind}"))
    assert refusal(f"{names}") == (
        f"--documents {names}: these are several test sets, quickstart xa-xb test2, quickstart xa-xb test: write "
        f"test2={names}."
    )
    assert refusal(f"test2={names}").startswith(f"{names} has 3 lines, and test2 has 500")
    for about in copy.rglob(f"{DIET}/*/experiment.json"):
        about.write_text(about.read_text().replace('"xa-xb"', '"xa-xc"'))
    assert refusal(f"test={names}").endswith("xa-xc test, quickstart xa-xb test: name results of one corpus and pair.")
    result = run_here("compare", made, "--documents", names)
    assert "Error: --documents needs --baseline or --questions: without them nothing is tested.\n" in result.stderr


def test_a_part_of_one_sentence_is_refused() -> None:
    with pytest.raises(RecipeError, match="has one sentence or one document, too few for an interval: leave it out"):
        jackknife_statistics(np.array([[1.0, 1.0]]), lambda sums: float(sums[0] / sums[1]), np.zeros(1, int))


def test_scores_of_another_tool_need_no_references(tmp_path: Path) -> None:
    made = make_experiments(tmp_path, {SINUSOIDAL: 2, DIET: 2})
    for number, directory in enumerate(sorted(made.rglob("seed?"))):
        values = np.random.default_rng(number).normal(0.8, 0.1, 500)
        (directory / "test.COMET.scores").write_text("# comet\n" + "\n".join(map(str, values)) + "\n")
        (directory / "test.ref").unlink()
    result = compare(made, "--metric", "COMET")
    assert result.exit_code == 0, result.output
    assert "COMET less that of sinusoidal" in result.stdout


def test_documents_are_those_of_the_pair(made: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(made, tmp_path / "copy"))
    (copy / "quickstart/xa-xb" / SINUSOIDAL / "seed1" / "test.documents").write_text("one\ntwo\n" * 250)
    for about in copy.rglob(f"{DIET}/*/experiment.json"):
        about.write_text(about.read_text().replace('"xa-xb"', '"xa-xc"'))
    results = read_results([copy])
    units = {row.pair: len(jackknife(results, row.directory, "test", BLEU).moves) for row in bleu_results(results)}
    assert units == {"xa-xb": 2, "xa-xc": 500}


def test_samples_are_those_of_sacrebleu(made: Path) -> None:
    results = read_results([made])
    score = bleu_results(results)[0]
    resampled = resample(results, score.directory, "test", BLEU)
    sentences = np.random.default_rng(12345).choice(500, size=(1000, 500), replace=True)
    texts = [read_lines(score.directory / f"test.{kind}") for kind in ("hyp", "ref")]
    for number in (0, 999):
        hypotheses, references = ([lines[sentence] for sentence in sentences[number]] for lines in texts)
        wanted = bleu.BLEU().corpus_score(hypotheses, [references]).score
        assert resampled.samples[number] == pytest.approx(wanted, abs=1e-4)


@pytest.mark.parametrize("metric", [bleu.BLEU, chrf.CHRF, ter.TER])
@pytest.mark.parametrize("name", ["_extract_corpus_statistics", "_compute_score_from_stats"])
def test_sacrebleu_has_the_private_functions_that_significance_calls(metric: type, name: str) -> None:
    assert callable(getattr(metric, name, None)), (
        f"this SacreBLEU has no {metric.__name__}.{name}: `extract` and `compute_with` of significance.py need another "
        "one, or there are no intervals, tests, parts of test sets, and scores by length of `analyse`"
    )


def test_equal_translations_do_not_differ(made: Path) -> None:
    results = read_results([made])
    directories = list(dict.fromkeys(results[results["name"] == "sinusoidal"]["directory"]))
    row = [jackknife(results, directory, "test", BLEU) for directory in directories]
    tested = difference(row, row)
    assert (tested.value, tested.p_value) == (0, 1)
    translated = resample(results, directories[0], "test", BLEU)
    assert sacrebleu_p(translated, translated) == 1
    assert difference(row[:1] * 2, row[:1] * 2).p_value == 1


def test_rows_may_have_other_seeds(made: Path) -> None:
    """Three, two and one: a row with one seed stops no table, and has SacreBLEU's p."""
    rows = compared(made, margin=0.5)
    diet, nopos = rows["diet_rel"], rows["nopos"]
    assert rows["sinusoidal"].difference is None
    assert (diet.comparisons, diet.verdict) == (1, "undecided")
    assert nopos == ComparedRow(nopos.row, nopos.baseline, nopos.difference, one_seed_p_value=nopos.one_seed_p_value)
    assert nopos.difference is not None
    assert nopos.difference < -50
    assert nopos.one_seed_p_value == pytest.approx(1 / 1001)


def test_a_table_shows_differences_intervals_and_verdicts(tmp_path: Path) -> None:
    made = make_experiments(tmp_path, {SINUSOIDAL: 3, DIET: 3, "transformer_nopos_tiny": 3})
    text = compare(made, "--margin", "20").stdout
    tested = compared(made, margin=20)
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    for name, word in (("diet_rel", "equivalent"), ("nopos", "below")):
        value, low, high = (getattr(tested[name], f"difference{end}") for end in ("", "_low", "_high"))
        assert f" {value:+.2f} [{low:+.2f}, {high:+.2f}]  {word} [" in lines[name]
        assert low < value < high
    assert "corrected for its question's comparisons (2)." in text
    assert "equivalent if it lies between -20 and +20; otherwise undecided." in text
    text = compare(made, "--pool-variance").stdout
    assert "The seeds' variance is taken as equal in 2 rows: standard deviation 1.69, 4 degrees of freedom" in text


def test_latex_has_neither_signs_nor_names_that_it_cannot_print(made: Path) -> None:
    text = compare(made, "--format", "latex", "--margin", "50").stdout
    assert all(rule in text for rule in ("\\toprule", "\\midrule", "\\bottomrule", "diet\\_rel", "$\\pm$"))
    assert "±" not in set("".join(line for line in text.splitlines() if not line.startswith("%")))


def test_options_of_the_test_need_a_baseline(made: Path) -> None:
    result = run_here("compare", made, "--margin", "0.5")
    assert result.exit_code != 0
    assert "--metric, --margin and --pool-variance need --baseline: name the row" in result.output
    for margin in ("0", "-1"):
        assert "Invalid value for" in (failed := compare(made, f"--margin={margin}").output)
        assert "--margin" in failed
    result = compare(made, "--metric", "COMET")
    assert result.exit_code == 1
    assert (
        "--metric COMET: not all seeds of sinusoidal have this score of sentences on test; there are BLEU, chrF."
        in result.output
    )


def test_rows_without_the_metric_are_not_tested(tmp_path: Path) -> None:
    """Negative scores of another tool, which one of two seeds of a row lacks; the baseline has one seed."""
    made = make_experiments(tmp_path, {SINUSOIDAL: 1, DIET: 2, "transformer_nopos_tiny": 1})
    for number, directory in enumerate(made.rglob("seed1")):
        values = np.random.default_rng(number).normal(-0.4, 0.1, 500)
        (directory / "test.COMET.scores").write_text("# comet\n" + "\n".join(map(str, values)) + "\n")
    result = compare(made, "--metric", "COMET", "--pool-variance", "--margin", "1")
    assert result.exit_code == 0, result.output
    lines = {line.split()[0]: line for line in result.stdout.splitlines() if line}
    assert [lines[name].count("baseline") for name in ("diet_rel", "nopos", "sinusoidal")] == [0, 0, 1]
    assert "-0.40" in lines["nopos"]
    assert "Not tested, because not all seeds have COMET: diet_rel." in result.stdout
    assert "one seed's p: SacreBLEU's paired bootstrap" in result.stdout
