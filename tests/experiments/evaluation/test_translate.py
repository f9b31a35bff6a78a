"""The output of fairseq-generate becomes hypotheses in the order of the source."""

from pathlib import Path

import pytest

from posenc_experiments.base.errors import RecipeError
from posenc_experiments.base.subprocesses import run_command
from posenc_experiments.evaluation.scores import translate
from posenc_experiments.experiment.experiment import Experiment
from tests.experiments.tiny import make_run


def test_hypotheses_are_sorted_by_the_source(tmp_path: Path) -> None:
    path = tmp_path / "generate-test.txt"
    path.write_text(
        "S-1\tx\nH-1\t-0.5\tc d\nD-1\t-0.5\tnot this\nH-1\t-0.7\tsecond best\nS-0\ty\nH-0\t-0.1\t\nGenerate x\n"
    )
    assert translate.read_hypotheses(path, 2) == [[], ["c", "d"]]
    with pytest.raises(RecipeError, match=r"2 hypotheses for 3 source lines, none for lines \[3\]"):
        translate.read_hypotheses(path, 3)
    with pytest.raises(RecipeError, match=r"2 hypotheses for 1 source lines"):
        translate.read_hypotheses(path, 1)


def test_a_running_translation_shows_how_many_sentences_are_done(
    recipe: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(translate, "SHOWN_EVERY", 0)
    experiment = Experiment(make_run(recipe.parent, recipe / "tiny.yaml", None), "shaw-k2", 1)
    output = recipe.parent / "generate-test.txt"
    display = translate._Display(experiment, "test", output, 1000)
    lines = [f"printf 'S-{n}\\tx\\nH-{n}\\t-1\\ty\\nH-{n}\\t-2\\tz\\nS-' >>{output}; sleep 0.7" for n in range(3)]
    words = ["sh", "-c", f"; printf '9\\tx\\n' >>{output}; ".join(lines)]  # each line is cut once
    run_command(experiment.run, words, recipe.parent / "log", "Translating", while_running=display.show)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "translate: shaw-k2 en-de seed 1: test: 1 of 1,000 sentences"
    assert last.startswith("translate: shaw-k2 en-de seed 1: test: 5 of 1,000 sentences, about ")
    assert last.endswith(" min left")
