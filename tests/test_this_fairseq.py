"""The plugin with the fairseq of this environment, as `scripts/try_fairseq.sh` runs it in an environment of its own."""

import pytest
import torch

from tests.models import build_model
from tests.toy import PACKAGE, binarize, generate, hypotheses, make_corpus, train

pytestmark = pytest.mark.slow
TRIED = ("alibi", "deberta", "diet_rel", "learned", "linformer", "rotary", "shaw", "sinusoidal", "t5", "tupe_rel")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    directory = tmp_path_factory.mktemp("corpus")
    return binarize(make_corpus(directory / "text"), directory / "data")


@pytest.mark.parametrize("name", TRIED)
def test_it_trains_and_translates(data, tmp_path, name):
    train(data, tmp_path, f"transformer_{name}_tiny", user_dir=PACKAGE)
    run = generate(data, tmp_path / "checkpoint_last.pt", user_dir=PACKAGE)
    assert len(hypotheses(run.stdout)) == 20


def test_sinusoidal_is_its_own_transformer_to_the_bit():
    """In training: in evaluation, fairseq 0.12.2 computes whole layers by another function."""
    source = torch.tensor([[4, 7, 9, 7, 12, 5, 2], [1, 1, 1, 7, 6, 13, 2]])
    target = torch.tensor([[2, 8, 7, 4, 10], [2, 6, 5, 1, 1]])
    stock, ours = (build_model(f"transformer_{name}tiny").float().train() for name in ("", "sinusoidal_"))
    assert torch.equal(*(model(source, source.ne(1).sum(1), target)[0] for model in (stock, ours)))
