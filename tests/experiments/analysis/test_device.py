"""Commands that load models compute on a GPU where there is one, unless told --cpu."""

import pytest
import torch

from posenc_experiments.analysis.model import analyse_model
from posenc_experiments.analysis.targets import Model, Pair, score_targets
from tests.experiments.analysis.test_model import assert_same_figures
from tests.experiments.analysis.test_targets import run


@pytest.mark.parametrize("flags", [[], ["--cpu"]])
def test_the_model_is_moved_to_a_gpu_unless_told_not_to(flags, checkpoint, data, tmp_path, monkeypatch):
    """The GPU and the move are pretended, so that this runs without one."""
    moved = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda model: moved.append(model) or model)
    monkeypatch.setattr("posenc_experiments.analysis.analyse.render", lambda *_: "")
    path = checkpoint("transformer_shaw_tiny")
    (tmp_path / "pairs.tsv").write_text("s1\tt1\n")
    (tmp_path / "set.tsv").write_text("phenomenon\tdistance\tsource\tcorrect\tcontrastive\norder\t-\ts1\tt1\tt2\n")
    for words in (
        ["score-targets", path, tmp_path / "pairs.tsv"],
        ["contrast", path, "--source", tmp_path / "set.tsv"],
        ["analyse", "--checkpoint", path, "--pair", "en-de", "--sentences", 1, "--output", tmp_path / "page.html"],
    ):
        run(*words, "--data", data, *flags)
    assert len(moved) == (0 if flags else 3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ["shaw", "forget", "tupe_abs"])
def test_a_gpu_finds_what_the_cpu_finds(name, checkpoint, data):
    path = checkpoint(f"transformer_{name}_tiny")
    assert_same_figures(analyse_model(path, data), analyse_model(path, data, cpu=True))
    model, pairs = Model(name, path, data), [Pair(f"s{n} s3", f"t{n} t5", "") for n in range(9)]
    scored = [score_targets(model, pairs, print, cpu) for cpu in (False, True)]
    for on_gpu, on_cpu in zip(*scored, strict=True):
        assert on_gpu.log_probabilities == pytest.approx(on_cpu.log_probabilities, abs=1e-3)
