"""Commands that load models compute on a GPU where there is one, unless told --cpu."""

import pytest
import torch
from click.testing import CliRunner

from posenc_experiments.analysis.model import analyse_model
from posenc_experiments.analysis.pairs import read_pairs
from posenc_experiments.analysis.targets import find_models, score_targets
from posenc_experiments.cli import group
from tests.experiments.analysis.test_model import same


def words_of(command, checkpoint, data, tmp_path):
    texts = [(data.parent / "text" / f"test.{side}").read_text().splitlines() for side in ("en", "de")]
    lines = [f"{source}\t{target}\t{texts[1][0]}\n" for source, target in zip(*texts, strict=True)][1:]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    (tmp_path / "set.tsv").write_text(
        "phenomenon\tdistance\tsource\tcorrect\tcontrastive\n" + "".join(f"order\t-\t{line}" for line in lines)
    )
    return {
        "score-targets": ["score-targets", checkpoint, tmp_path / "pairs.tsv", "--data", data],
        "contrast": ["contrast", checkpoint, "--source", tmp_path / "set.tsv", "--data", data],
        "analyse": [
            *("analyse", "--checkpoint", checkpoint, "--data", data, "--pair", "en-de"),
            *("--output", tmp_path / "page.html"),
        ],
    }[command]


@pytest.mark.parametrize(
    ("command", "flags"), [("score-targets", []), ("contrast", ["--cpu"]), ("analyse", []), ("analyse", ["--cpu"])]
)
def test_the_model_is_moved_to_a_gpu_unless_told_not_to(command, flags, checkpoint, data, tmp_path, monkeypatch):
    """The GPU and the move are pretended, so that this runs without one."""
    moved = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.nn.Module, "cuda", lambda model: moved.append(model) or model)
    words = words_of(command, checkpoint("transformer_shaw_tiny"), data, tmp_path)
    result = CliRunner().invoke(group, [*map(str, [*words, *flags])])
    assert result.exit_code == 0, result.output
    assert len(moved) == (0 if flags else 1)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("name", ["shaw", "forget", "tupe_abs"])
def test_a_gpu_finds_what_the_cpu_finds(name, checkpoint, data, tmp_path):
    path = checkpoint(f"transformer_{name}_tiny")
    same(analyse_model(path, data, "en", "de"), analyse_model(path, data, "en", "de", cpu=True))
    words_of("score-targets", path, data, tmp_path)
    [model], pairs = find_models([path], data), read_pairs(tmp_path / "pairs.tsv")
    on_gpu, on_cpu = (score_targets(model, pairs, cpu=cpu) for cpu in (False, True))
    assert [one.sum for one in on_gpu] == pytest.approx([one.sum for one in on_cpu], abs=1e-3)
