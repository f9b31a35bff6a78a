"""A target language without blanks between words, from scores to tables and pages."""

import csv
import io
import json
from pathlib import Path

import pytest
from sacrebleu.metrics import bleu, chrf

from posenc_experiments.analysis.ribes import ribes
from posenc_experiments.base.done import set_done
from posenc_experiments.base.files import read_json, write_json
from posenc_experiments.evaluation.results import read_results
from posenc_experiments.evaluation.scores import score
from posenc_experiments.evaluation.statistics.together import parts_of_tests
from posenc_experiments.experiment.experiment import Experiment
from posenc_experiments.workflow.plan import EXPERIMENT_STAGES
from tests.experiments.tiny import CONF, make_recipe, make_run, run_here

JAPANESE = {
    "test": [
        "京都は日本の古い都です。",
        "彼は図書館で本を読んでいます。",
        "この寺は八世紀に建てられた。",
        "雨が降っている。",
    ],
    "other": ["東京は日本の首都です。", "彼女は毎朝コーヒーを飲む。", "その城は十六世紀に焼けた。"],
}
#: one word of most lines is another
SYSTEM = {
    "test": [
        "京都は日本の古い町です。",
        "彼は図書館で本を読んでいる。",
        "この寺は八世紀に建てられた。",
        "雪が降っている。",
    ],
    "other": ["東京は日本の首都です。", "彼女は毎朝お茶を飲む。", "その城は十七世紀に焼けた。"],
}
CHINESE = {"test": ["北京是中国的首都。", "他在图书馆看书。", "这座庙建于八世纪。"]}


def unspaced(
    directory: Path, pair: str, texts: dict[str, list[str]], more: str = "", name: str = "sinusoidal"
) -> Experiment:
    """An experiment whose test sets are translated."""
    conf = CONF.replace("pairs: en-de de-en", f"pairs: {pair}").replace("tests: test", f"tests: {' '.join(texts)}")
    path, _ = make_recipe(directory, conf + more)
    table = path.with_name("sources.tsv")
    rows = [row for row in table.read_text().splitlines() if not row.startswith("test")]
    rows += [f"{test}\t*\t{side}\ttest.{side}\t-\t-" for test in texts for side in ("en", "de")]
    for old, new in zip(("en", "de"), pair.split("-"), strict=True):
        rows = [row.replace(f"\t{old}\t", f"\t{new}\t") for row in rows]
    table.write_text("\n".join(rows) + "\n")
    experiment = Experiment(make_run(directory, path, None, pair=pair), name, 1)
    experiment.directory.mkdir(parents=True)
    references = CHINESE if pair.endswith("zh") else JAPANESE
    for test, hypotheses in texts.items():
        sources = [f"Line {'x ' * number}" for number in range(len(hypotheses))]
        for kind, lines in (("src", sources), ("ref", references[test]), ("hyp", hypotheses)):
            experiment.test_file(test, kind).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    write_json(experiment.about, experiment.description())
    files = [experiment.test_file(test, "hyp") for test in texts]
    set_done(experiment.directory, "translate", EXPERIMENT_STAGES["translate"].inputs(experiment), files)
    return experiment


@pytest.fixture
def japanese(tmp_path: Path) -> list[Experiment]:
    """Two scored experiments: one of the system, and one whose translations are the references."""
    more = "\nscore:\n  metrics: ter\n"
    experiments = [
        unspaced(tmp_path / name, "en-ja", texts, more, name)
        for name, texts in (("sinusoidal", SYSTEM), ("shaw-k2", JAPANESE))
    ]
    for experiment in experiments:
        score.ScoreStage().run(experiment)
    return experiments


def test_japanese_is_scored_by_mecab_everywhere(japanese: list[Experiment]) -> None:
    metric = bleu.BLEU(tokenize="ja-mecab")
    [written, _, ter] = read_json(japanese[0].test_file("test", "sacrebleu.json"))
    wanted = metric.corpus_score(SYSTEM["test"], [JAPANESE["test"]]).score
    assert written["score"] == round(wanted, 2)
    assert 50 < wanted < 90
    assert bleu.BLEU(tokenize="13a").corpus_score(SYSTEM["test"], [JAPANESE["test"]]).score < 40
    assert "|tok:ja-mecab-0.996-IPA|" in written["signature"]
    assert "|norm:yes|punct:yes|asian:yes|" in ter["signature"]
    assert [row["score"] for row in read_json(japanese[1].test_file("test", "sacrebleu.json"))] == [100, 100, 0]

    directories = [experiment.directory for experiment in japanese]
    result = run_here("compare", *directories, "--baseline", "sinusoidal", "--all-tests", "--format", "csv")
    assert result.exit_code == 0, result.output
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    together = [[*texts["test"], *texts["other"]] for texts in (SYSTEM, JAPANESE)]
    [both] = [float(row["bleu"]) for row in rows if row["test"] == "all tests" and row["experiment"] == "sinusoidal"]
    assert both == pytest.approx(metric.corpus_score(together[0], [together[1]]).score)
    [perfect] = [row for row in rows if row["test"] == "test" and row["experiment"] == "shaw-k2"]
    assert float(perfect["difference"]) == pytest.approx(100 - wanted)


def test_the_page_cuts_japanese_as_bleu_does(japanese: list[Experiment], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    directories = [experiment.directory for experiment in japanese]
    result = run_here("analyse", *directories, "--no-models", "--test", "test", "--output", page)
    assert result.exit_code == 0, result.output
    record = read_json(japanese[0].analysis)
    metric = bleu.BLEU(tokenize="ja-mecab")
    assert record["settings"]["tokenize"] == "ja-mecab"
    figures = record["text"]["tests"]["test"]
    assert figures["length_unit"] == "source words"
    cut = [[metric.tokenizer(line).split() for line in side["test"]] for side in (SYSTEM, JAPANESE)]
    by_hand = [100 * ribes(translation, reference) for translation, reference in zip(*cut, strict=True)]
    assert figures["RIBES"] == pytest.approx(sum(by_hand) / len(by_hand))
    assert figures["BLEU"] == pytest.approx(metric.corpus_score(SYSTEM["test"], [JAPANESE["test"]]).score)
    assert figures["chrF"] == pytest.approx(chrf.CHRF().corpus_score(SYSTEM["test"], [JAPANESE["test"]]).score)
    text = page.read_text(encoding="utf-8")
    assert json.dumps("京都 は 日本 の 古い 町 です 。") in text
    assert json.dumps("の 古い 都 です") in text


def test_lengths_of_chinese_sources_are_characters(tmp_path: Path) -> None:
    experiment = unspaced(tmp_path, "zh-ja", {"test": SYSTEM["test"][:3]})
    sources = ["北京", "北京是中国", "北京是中国的首都。"]
    for kind, lines in (("src", sources), ("ref", JAPANESE["test"][:3])):
        experiment.test_file("test", kind).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    score.ScoreStage().run(experiment)
    parts = parts_of_tests(read_results([experiment.directory]), "BLEU", "1-5 6-")
    assert list(parts["test"]) == ["test, 1-5 characters, 2 of 3 sentences", "test, 6- characters, 1 of 3 sentences"]
    result = run_here("analyse", experiment.directory, "--no-models", "--output", tmp_path / "page.html")
    assert result.exit_code == 0, result.output
    record = read_json(experiment.analysis)
    assert record["settings"]["length_unit"] == "characters"
    assert [bucket["from"] for bucket in record["text"]["tests"]["test"]["by_length"]] == [2, 3, 6]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "source length in characters" in page
    assert "source length in words" not in page


@pytest.mark.parametrize(
    ("pair", "tokenizer", "note"),
    [
        ("en-ja", "13a", "split at blanks"),
        ("en-th", "", "score.tokenize = flores200 or char."),
        ("en-th", "char", None),
    ],
)
def test_metrics_that_split_at_blanks_are_warned_of(
    tmp_path: Path, pair: str, tokenizer: str, note: str | None
) -> None:
    more = f"\nscore:\n  tokenize: {tokenizer}\n" if tokenizer else ""
    experiment = unspaced(tmp_path, pair, {"test": SYSTEM["test"]}, more)
    score.ScoreStage().run(experiment)
    said = run_here("compare", experiment.directory).stdout
    assert ("Warning" in said) == (note is not None)
    assert note is None or note in said


def test_a_missing_model_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU", str(tmp_path / "none"))
    experiment = unspaced(tmp_path, "en-ja", {"test": SYSTEM["test"]}, "\nscore:\n  tokenize: flores200\n")
    result = run_here("run", "--conf", experiment.run.recipe.path, "--pair", "en-ja", "--gpus", "0", "--dry-run")
    assert result.exit_code == 1
    assert "SacreBLEU's tokenizer flores200 cannot be used" in result.stderr
    assert result.stderr.count("\n") == 1
