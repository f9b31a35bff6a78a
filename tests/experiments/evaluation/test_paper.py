"""The report of a paper's table, with its figures and what is missing."""

import csv
import json
import re
from pathlib import Path

import pytest
from sacrebleu.metrics.bleu import BLEU

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.markers import set_done, write_json
from posenc_experiments.evaluation.paper import Line, make_line, report
from posenc_experiments.evaluation.paper_table import Planned
from posenc_experiments.evaluation.results import seal
from posenc_experiments.experiment.experiment import Experiment
from tests.experiments.tables import HEADER, ROW, rows, write_table


def finish(experiment: Experiment, bleu: float, historical: float | None = None, interval: float | None = 0.5) -> None:
    """The files of an experiment that was scored."""
    directory = experiment.directory
    write_json(directory / "experiment.json", experiment.description())
    metrics = [
        {"name": "BLEU", "score": bleu, "signature": "sig:bleu", "confidence_var": interval},
        {"name": "chrF2", "score": 50.0, "signature": "sig:chrf"},
    ]
    write_json(experiment.test_file("test", "sacrebleu.json"), [{**row, "seal": seal(row)} for row in metrics])
    if historical is not None:
        value = {"name": "BLEU", "score": historical, "signature": "sig:old", "confidence_var": interval}
        write_json(experiment.test_file("test", "historical.json"), [{**value, "seal": seal(value)}])
    set_done(
        experiment.directory, "score", experiment.inputs("score"), [experiment.test_file("test", "sacrebleu.json")]
    )


def make_lines(rows: list[Planned], *failed: Path) -> list[Line]:
    return [make_line(planned, set(failed)) for planned in rows]


@pytest.fixture
def made(recipe: Path) -> list[Planned]:
    write_table(recipe, "# Paper", HEADER, ROW, ROW.replace("K = 2", "absolute").replace("shaw-k2", "sinusoidal"))
    return rows(recipe)


def test_one_seed_has_its_interval_and_several_their_spread(recipe: Path, made: list[Planned]) -> None:
    for planned, bleu in zip(made, (24.0, 26.3), strict=True):
        finish(planned.experiments[0], bleu)
    text = report("Paper", make_lines(made)).format("text")
    assert re.search(r"K = 2 +24.00 ± 0.50 +50.00 +25.80 +-1.80\n", text)
    assert "BLEU: sig:bleu\n" in text
    assert "missing" not in text
    assert "historical" not in text
    several = rows(recipe, "1,2,3")
    finish(several[0].experiments[1], 25.0)
    text = report("Paper", make_lines(several)).format("text")
    assert re.search(r"K = 2 +24.50 ± 0.71 +50.00 +25.80 +-1.30 +seed 3 not trained\n", text)


def test_the_historical_score_is_shown_beside_sacrebleus(recipe: Path) -> None:
    write_table(recipe, "# Paper", HEADER, ROW.replace("sacrebleu", "historical"))
    made = rows(recipe, overrides=("score.tokenized=split",))
    finish(made[0].experiments[0], 25.0, historical=26.0)
    lines = make_lines(made)
    text = report("Paper", lines).format("markdown")
    assert re.search(r"\| K = 2 \| +26.00 ± 0.50 \| 25.00 ± 0.50 \| +50.00 \| +25.8 \| +\+0.20 \|\n", text)
    assert "historical BLEU: sig:old\n" in text
    assert "SacreBLEU: sig:bleu\n" in text
    cells = next(csv.DictReader(report("Paper", lines).format("csv").splitlines()))
    assert (float(cells["score"]), float(cells["bleu"]), cells["historical_signature"]) == (26.0, 25.0, "sig:old")


def test_sentences_of_each_length_are_scored_on_their_own(recipe: Path) -> None:
    sources = ["a b c", "a b c d", "a  b c d e", "a b c d e f"]
    references = ["v w x y z", "a b c d", "a b c d e", "a b c d e f"]
    hypotheses = ["v w x y z", "a b c d", "a b c e d", "a b c d x f"]
    write_table(recipe, f"{HEADER}\twords", f"{ROW}\t1-4 5- 9-")
    made = rows(recipe, "1,2")
    for experiment in made[0].experiments:
        finish(experiment, 24.0)
        for kind, lines in (("src", sources), ("ref", references), ("hyp", hypotheses)):
            experiment.test_file("test", kind).write_text("".join(f"{line}\n" for line in lines))
    one = rows(recipe)
    text = report("Paper", make_lines(one)).format("markdown")
    assert re.search(r"\| row +\| +BLEU \| +1-4 words \| +5- words \| +9- words \| +chrF \|", text)
    assert "test has 2 with 1-4, 2 with 5-, 0 with 9-.\n" in text
    (cells,) = csv.DictReader(report("Paper", make_lines(one)).format("csv").splitlines())
    assert float(cells["bleu 1-4"]) == pytest.approx(100)
    score = BLEU().corpus_score(hypotheses[2:], [references[2:]]).score
    assert float(cells["bleu 5-"]) == pytest.approx(score)
    assert float(cells["bleu_interval 5-"]) > 0
    assert (cells["sentences 5-"], cells["bleu 9-"]) == ("2", "")
    made[0].experiments[1].test_file("test", "hyp").write_text("".join(f"{line}\n" for line in references))
    (cells,) = csv.DictReader(report("Paper", make_lines(made)).format("csv").splitlines())
    assert float(cells["bleu 5-"]) == pytest.approx((score + 100) / 2)
    assert float(cells["bleu_spread 5-"]) == pytest.approx((100 - score) / 2**0.5)
    made[0].experiments[0].test_file("test", "src").write_text("a\n")
    with pytest.raises(RecipeError, match=r"test\.src has 1 lines, its references 4 and its translations 4"):
        make_lines(made)


def test_the_reason_of_a_missing_score_is_shown(made: list[Planned]) -> None:
    first, second = (planned.experiments[0] for planned in made)
    assert [line.missing for line in make_lines(made)] == ["not trained", "not trained"]
    assert [line.missing for line in make_lines(made, first.directory)] == ["failed", "not trained"]
    write_json(second.about, second.description())
    write_json(second.directory / "training.json", {})
    set_done(second.directory, "train", second.inputs("train"), [second.directory / "training.json"])
    first.directory.mkdir(parents=True)
    first.train_log.touch()
    assert [line.missing for line in make_lines(made)] == ["training not finished", "not scored"]
    finish(first, 24.0)
    lines = make_lines(made)
    assert [line.scored.get(line.metric) for line in lines] == [24.0, None]
    # Scores of other settings are not shown.
    set_done(first.directory, "score", "other inputs", [])
    assert make_lines(made)[0].scored == {}


def test_signatures_that_differ_are_warned_of(made: list[Planned]) -> None:
    for planned in made:
        finish(planned.experiments[0], 24.0)
    path = made[0].experiments[0].test_file("test", "sacrebleu.json")
    changed = json.loads(path.read_text().replace("sig:bleu", "sig:other"))
    write_json(path, [{**row, "seal": seal(row)} for row in changed])
    experiment = made[0].experiments[0]
    set_done(experiment.directory, "score", experiment.inputs("score"), [path])
    assert "Warning: the BLEU signatures differ" in report("Paper", make_lines(made)).format("text")
