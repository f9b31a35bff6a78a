"""The plugin with the fairseq of this environment, as `scripts/try_fairseq.sh` runs it in an environment of its own."""

import pytest
import torch

from tests.models import build_model, logits, model_inputs, sentences
from tests.toy import PACKAGE, generate, hypotheses, train

pytestmark = pytest.mark.slow
TRIED = ("alibi", "deberta", "diet_rel", "learned", "linformer", "rotary", "shaw", "sinusoidal", "t5", "tupe_rel")


@pytest.mark.parametrize("name", TRIED)
def test_it_trains_and_translates(toy_data, tmp_path, name):
    train(toy_data, tmp_path, f"transformer_{name}_tiny", user_dir=PACKAGE)
    run = generate(toy_data, tmp_path / "checkpoint_last.pt", user_dir=PACKAGE)
    assert len(hypotheses(run.stdout)) == 20


def test_sinusoidal_is_its_own_transformer_to_the_bit():
    """In training: in evaluation, fairseq 0.12.2 computes whole layers by another function."""
    inputs = model_inputs(sentences([6, 3]), sentences([4, 2], seed=6))
    stock, ours = (build_model(f"transformer_{name}tiny").float().train() for name in ("", "sinusoidal_"))
    assert torch.equal(logits(stock, *inputs), logits(ours, *inputs))
