"""`fairseq-posenc estimate-cost`."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.commands.estimate_cost import estimates
from tests.experiments.tiny import make_recipe, run_here

RECIPES = Path(__file__).resolve().parents[3] / "recipes"


def test_a_training_costs_its_words_at_the_speed_of_its_size() -> None:
    (diet,) = estimates([RECIPES / "wmt18"], words_per_second=10_000)
    assert diet.trainings == 4 * 3  # pairs, experiments
    assert diet.words == 12 * 250_000 * 25_000
    assert diet.hours == pytest.approx(diet.words / 10_000 / 3600)  # the model that was measured
    costs = {cost.table: cost for cost in estimates([RECIPES / "wmt14"], words_per_second=10_000)}
    base, both = (costs[f"shaw-table{n}"] for n in (2, 1))  # the second also has models of size big, which are slower
    assert base.hours / base.words < diet.hours / diet.words  # ffn 1024 instead of 2048
    assert both.hours / both.words > 2 * base.hours / base.words


def test_smaller_batches_have_fewer_words() -> None:
    costs = {cost.table: cost for cost in estimates([RECIPES / "iwslt14"], words_per_second=10_000)}
    assert costs["clipping"].words == 8 * 100_000 * 25_000 * 4096 / 32_768


def test_what_cannot_be_estimated_is_refused(tmp_path: Path) -> None:
    conf, _ = make_recipe(tmp_path)  # it trains by epochs
    result = run_here("estimate-cost", conf.parent, "--words-per-second", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{conf.parent} has no tables/*.tsv: name the directory" in result.stderr
    (conf.parent / "tables").mkdir()
    header, row = "row\tpair\tconf\texperiment\ttest\tmetric\tpaper", "*\ten-de\ttiny\t*\ttest\tsacrebleu\t-"
    (conf.parent / "tables" / "mine.tsv").write_text(f"{header}\n{row}\n")
    with pytest.raises(RecipeError, match=rf"^{conf} has no max-update in `train`: add it"):
        list(estimates([conf.parent], 1))
    conf.write_text(conf.read_text().replace("batch-tokens: 400", "max-update: 9"))
    with pytest.raises(RecipeError, match=rf"^{conf} has no batch-tokens in `train`: add it"):
        list(estimates([conf.parent], 1))
